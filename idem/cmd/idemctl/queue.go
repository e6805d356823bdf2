package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"

	"github.com/idem-go/idempotency/idem/reconcile"
)

// queueCmd is about queues: those of dead letters, and that of questions for people.
type queueCmd struct {
	List   queueListCmd   `cmd:"" help:"List messages of a queue without taking them: dead letters, or questions that were left to people."`
	Replay queueReplayCmd `cmd:"" help:"Send the messages of a dead-letter queue to the queue that they come from."`
}

// queues is what the commands do with SQS: a *sqs.Client.
type queues interface {
	ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error)
	ChangeMessageVisibility(context.Context, *sqs.ChangeMessageVisibilityInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error)
	SendMessage(context.Context, *sqs.SendMessageInput, ...func(*sqs.Options)) (*sqs.SendMessageOutput, error)
	DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error)
	ListDeadLetterSourceQueues(context.Context, *sqs.ListDeadLetterSourceQueuesInput, ...func(*sqs.Options)) (*sqs.ListDeadLetterSourceQueuesOutput, error)
}

const (
	// lookFor is for how long a message that is looked at is hidden from others.
	lookFor = 20 * time.Second
	// replayFor is for sending and deleting a batch.
	replayFor = 2 * time.Minute
	// deduplication is for how long a FIFO queue drops a message with an id that it had, with a
	// minute for clocks.
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/using-messagededuplicationid-property.html
	deduplication = 6 * time.Minute
)

// queueFlags name a queue.
type queueFlags struct {
	URL   string `required:"" placeholder:"URL" help:"The queue's URL."`
	Limit int    `default:"10" help:"At most so many messages."`
}

func (f *queueFlags) check() error {
	switch {
	case f.Limit < 1:
		return misuse("--limit is %d: it is 1 at least", f.Limit)
	case !strings.HasPrefix(f.URL, "https://") && !strings.HasPrefix(f.URL, "http://"):
		return misuse("--url is %q: it is the queue's URL, such as https://sqs.eu-central-1.amazonaws.com/111122223333/orders-dead", f.URL)
	}
	return nil
}

// receive takes messages until there are enough, or the queue has no more to show, and gives
// each to each as long as it is hidden from others. One that comes again, and has another
// handle then, ends it with its batch.
func (f *queueFlags) receive(ctx context.Context, q queues, hidden time.Duration, each func(m *types.Message, again bool) error) error {
	seen, around := map[string]bool{}, false
	for len(seen) < f.Limit && !around {
		got, err := q.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{
			QueueUrl: &f.URL, MaxNumberOfMessages: int32(min(f.Limit-len(seen), 10)), WaitTimeSeconds: 1, VisibilityTimeout: int32(hidden / time.Second),
			MessageAttributeNames:       []string{"All"},
			MessageSystemAttributeNames: []types.MessageSystemAttributeName{types.MessageSystemAttributeNameAll},
		})
		if err != nil {
			return fmt.Errorf("the queue cannot be read: check --url, the region, and that sqs:ReceiveMessage is allowed: %w", err)
		}
		if len(got.Messages) == 0 {
			return nil
		}
		for i := range got.Messages {
			m := &got.Messages[i]
			id := aws.ToString(m.MessageId)
			again := seen[id]
			seen[id], around = true, around || again
			if err := each(m, again); err != nil {
				return err
			}
		}
	}
	return nil
}

// queued is a message of a queue as it is written as JSON.
type queued struct {
	ID       string    `json:"id"`
	Sent     time.Time `json:"sent"`
	Receives int       `json:"receives"`
	Size     int       `json:"size"`
	Group    string    `json:"group,omitempty"`
	Body     string    `json:"body,omitempty"`
	// Question is what the sweep has left to people, without the caller's value and the text of
	// the error.
	Question *reconcile.Escalation `json:"question,omitempty"`
}

func describeQueued(m *types.Message, body bool) queued {
	attribute := func(name types.MessageSystemAttributeName) string { return m.Attributes[string(name)] }
	ms, _ := strconv.ParseInt(attribute(types.MessageSystemAttributeNameSentTimestamp), 10, 64)
	receives, _ := strconv.Atoi(attribute(types.MessageSystemAttributeNameApproximateReceiveCount))
	text := aws.ToString(m.Body)
	d := queued{
		ID: aws.ToString(m.MessageId), Sent: time.UnixMilli(ms).UTC(), Receives: receives, Size: len(text),
		Group: attribute(types.MessageSystemAttributeNameMessageGroupId),
	}
	if body {
		d.Body = text
	}
	var g reconcile.Escalation
	if json.Unmarshal([]byte(text), &g) == nil && g.Record != "" && g.Operation != "" && g.Help != "" {
		g.Value, g.ErrorMessage = "", ""
		d.Question = &g
	}
	return d
}

// queueListCmd lists messages.
type queueListCmd struct {
	queueFlags
	ShowBody bool `help:"Show the messages' bodies."`
}

// Run runs the command. A look counts as a receive of each message that it shows.
func (c *queueListCmd) Run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	q, err := s.queues(ctx, s.globals)
	if err != nil {
		return err
	}
	all := []queued{}
	var handles []*string
	err = c.receive(ctx, q, lookFor, func(m *types.Message, again bool) error {
		if handles = append(handles, m.ReceiptHandle); !again {
			all = append(all, describeQueued(m, c.ShowBody))
		}
		return nil
	})
	// What was looked at is shown to others again, also after Ctrl-C. What fails is hidden for
	// some more seconds.
	back, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
	defer cancel()
	for _, h := range handles {
		_, _ = q.ChangeMessageVisibility(back, &sqs.ChangeMessageVisibilityInput{QueueUrl: &c.URL, ReceiptHandle: h})
	}
	if err != nil {
		return err
	}
	if s.json() {
		return s.writeJSON(all)
	}
	s.queued(all)
	return nil
}

// queued writes messages for people.
func (s *session) queued(all []queued) {
	if len(all) == 0 {
		fmt.Fprintln(s.out, "The queue shows no messages now. Those that somebody is working on are hidden.")
	}
	for _, m := range all {
		fmt.Fprintln(s.out, line(m.ID))
		s.item(fmt.Sprintf("%s, sent %s, received %s", plural(m.Size, "byte"), when(m.Sent, s.now()), plural(m.Receives, "time")))
		if m.Group != "" {
			s.item("group " + line(m.Group))
		}
		if g := m.Question; g != nil {
			s.item(fmt.Sprintf("question: %s since %s, asked %s: %s", s.state(g.State), at(g.Since), plural(g.Probes, "time"), line(g.Reason)))
			s.item("record " + line(g.Record))
		}
		if m.Body != "" {
			fmt.Fprintln(s.out, plain(m.Body))
		}
	}
}

// queueReplayCmd sends dead letters to where they come from.
type queueReplayCmd struct {
	queueFlags
	whyFlags
	To    string `placeholder:"URL" help:"The queue to send to; else the only one whose dead-letter queue this is."`
	Count int    `placeholder:"N" help:"Instead of an answer at a terminal: how many messages to send at most."`
}

// Run runs the command. A message is deleted after it was sent: what comes in between sends it
// twice, and loses none. Its key makes the second one a duplicate. SQS does not keep who did
// this: the table does, with an entry that is written before the first message is sent.
func (c *queueReplayCmd) Run(ctx context.Context, s *session) error {
	if err := c.check(); err != nil {
		return err
	}
	r, b, err := s.reconciler(ctx)
	if err != nil {
		return err
	}
	by, err := s.by(ctx, b, c.whyFlags)
	if err != nil {
		return err
	}
	q, err := s.queues(ctx, s.globals)
	if err != nil {
		return err
	}
	to, err := c.target(ctx, q)
	if err != nil {
		return err
	}
	shown := s.aside()
	shown.field("From", "%s", line(c.URL))
	shown.field("To", "%s", line(to))
	say(shown.out, "This will send at most %s, with their bodies and attributes as they are, and delete each from the first queue after it was sent. "+
		"They get new message ids, as with a redrive of SQS. The table keeps who did this.", plural(c.Limit, "message"))
	shown.signed(by)
	n := strconv.Itoa(c.Limit)
	switch {
	case c.DryRun:
		fmt.Fprintln(shown.out, "Dry run: nothing was sent. queue list shows the messages.")
		return nil
	case c.Count != 0 && c.Count != c.Limit:
		return misuse("--count is %d, and --limit %d: give the same number", c.Count, c.Limit)
	case c.Count == 0:
		if err := s.ask(ctx, "Type the number of messages to send them: ", n, "--count "+n+" after queue list"); err != nil {
			return err
		}
	}
	done, left, unsent := 0, 0, 0
	stopped := map[string]bool{} // groups of which a message was left: the later ones wait for it
	err = r.Replay(ctx, c.URL, fmt.Sprintf("at most %s to %s", plural(c.Limit, "message"), to), by, func(ctx context.Context) (string, error) {
		err := c.receive(ctx, q, replayFor, func(m *types.Message, again bool) error {
			if again || ctx.Err() != nil {
				return ctx.Err()
			}
			group := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]
			var err error = errStopped
			if !stopped[group] {
				err = s.replay(ctx, q, c.URL, to, m)
			}
			if err != nil {
				left++
				if _, surely := errors.AsType[notSent](err); surely {
					unsent++
				}
				stopped[group] = group != "" && strings.HasSuffix(to, ".fifo")
				shown.item(line(aws.ToString(m.MessageId)) + ": " + line(err.Error()))
				return nil
			}
			done++
			return nil
		})
		what := fmt.Sprintf("%s to %s", plural(done, "message"), to)
		if unsure := left - unsent; unsure > 0 {
			what += fmt.Sprintf(", %d may have been sent", unsure)
		}
		if unsent > 0 {
			what += fmt.Sprintf(", %d not sent", unsent)
		}
		return what, err
	})
	fmt.Fprintf(shown.out, "Done: %d sent.\n", done)
	if s.json() {
		if werr := s.writeJSON(map[string]int{"sent": done, "left": left}); werr != nil {
			return werr
		}
	}
	switch {
	case err != nil:
		return err
	case done == c.Limit:
		say(shown.out, "There may be more: queue list shows them.")
	case left > 0:
		return fmt.Errorf("not sent, or not deleted: %s: they stay in the dead-letter queue, and are hidden there for %s", plural(left, "message"), span(replayFor))
	}
	return nil
}

// notSent says why a message was certainly not sent.
type notSent string

func (e notSent) Error() string { return string(e) }

// errStopped keeps the order of a group.
const errStopped = notSent("it was not sent, since one before it in its group was left")

// target is where the messages go.
func (c *queueReplayCmd) target(ctx context.Context, q queues) (string, error) {
	if c.To != "" {
		if c.To == c.URL {
			return "", misuse("--to is the queue itself")
		}
		return c.To, nil
	}
	got, err := q.ListDeadLetterSourceQueues(ctx, &sqs.ListDeadLetterSourceQueuesInput{QueueUrl: &c.URL})
	switch {
	case err != nil:
		return "", fmt.Errorf("it cannot be found out whose dead-letter queue this is: use --to: %w", err)
	case len(got.QueueUrls) == 0:
		return "", errors.New("this is the dead-letter queue of no queue: use --to")
	case len(got.QueueUrls) > 1 || got.NextToken != nil:
		return "", fmt.Errorf("this is the dead-letter queue of several: use --to with one of %s", strings.Join(got.QueueUrls, ", "))
	}
	return got.QueueUrls[0], nil
}

// replay sends one message, and deletes it where it was. Ctrl-C does not end it in between.
func (s *session) replay(ctx context.Context, q queues, from, to string, m *types.Message) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime)
	defer cancel()
	in := &sqs.SendMessageInput{QueueUrl: &to, MessageBody: m.Body, MessageAttributes: m.MessageAttributes}
	if group := m.Attributes[string(types.MessageSystemAttributeNameMessageGroupId)]; group != "" {
		in.MessageGroupId = &group
	}
	if id := m.Attributes[string(types.MessageSystemAttributeNameMessageDeduplicationId)]; id != "" && strings.HasSuffix(to, ".fifo") {
		// Keys may be made of it, so it stays. The queue must have forgotten it.
		if sent := describeQueued(m, false).Sent; s.now().Sub(sent) < deduplication {
			return notSent(fmt.Sprintf("it came here at %s, and the queue would drop it as a repeat for some minutes: try again later", at(sent)))
		}
		in.MessageDeduplicationId = &id
	}
	if trace := m.Attributes[string(types.MessageSystemAttributeNameAWSTraceHeader)]; trace != "" {
		in.MessageSystemAttributes = map[string]types.MessageSystemAttributeValue{
			string(types.MessageSystemAttributeNameForSendsAWSTraceHeader): {DataType: aws.String("String"), StringValue: &trace},
		}
	}
	if _, err := q.SendMessage(ctx, in); err != nil {
		return fmt.Errorf("it may or may not have been sent: %w", err)
	}
	if _, err := q.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &from, ReceiptHandle: m.ReceiptHandle}); err != nil {
		return fmt.Errorf("it was sent, and could not be deleted here: %w", err)
	}
	return nil
}
