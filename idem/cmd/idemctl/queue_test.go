package main

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/local/aws/queue/queuetest"
)

// send puts a message into a queue.
func send(t *testing.T, q queuetest.Queue, url, body, group string) {
	t.Helper()
	in := &sqs.SendMessageInput{QueueUrl: &url, MessageBody: &body, MessageAttributes: map[string]types.MessageAttributeValue{
		"key": {DataType: aws.String("String"), StringValue: aws.String("order-1")},
	}}
	if group != "" {
		in.MessageGroupId, in.MessageDeduplicationId = &group, aws.String("d-"+body)
	}
	_, err := q.Client.SendMessage(t.Context(), in)
	require.NoError(t, err)
}

func (o *tool) runQueue(t *testing.T, args ...string) (code int, out, errs string) {
	t.Setenv("AWS_ENDPOINT_URL_SQS", queuetest.Endpoint(t))
	return o.run(args...)
}

func TestTheCommandReplaysADeadLetterQueue(t *testing.T) {
	o := newTool(t)
	q := queuetest.New(t, queuetest.Spec{MaxReceives: 3})
	for _, body := range []string{"1", "2", "3"} {
		send(t, q, q.DeadURL, body, "")
	}
	code, out, errs := o.runQueue(t, "queue", "list", "--url", q.DeadURL, "-o", "json")
	require.Equal(t, exitDone, code, errs)
	var all []queued
	require.NoError(t, json.Unmarshal([]byte(out), &all))
	require.Len(t, all, 3)
	require.Empty(t, all[0].Body)
	// A look hides nothing for long, and takes nothing.
	code, out, errs = o.runQueue(t, "queue", "list", "--url", q.DeadURL, "--show-body")
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "1 byte")

	code, _, errs = o.runQueue(t, "queue", "replay", "--reason", "repaired", "--url", q.DeadURL, "--to", q.URL, "--limit", "2")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "--count 2")
	code, out, errs = o.runQueue(t, "queue", "replay", "--reason", "repaired", "--url", q.DeadURL, "--to", q.URL, "--limit", "2", "--count", "2")
	require.Equal(t, exitDone, code, errs)
	require.Contains(t, out, "Done: 2 sent.")
	got := queuetest.Drain(t, q.Client, q.URL)
	require.Len(t, got, 2)
	code, out, errs = o.runQueue(t, "changes")
	require.Equal(t, exitDone, code, errs)
	require.Regexp(t, `replayed\n  - 2 messages to\s+\S+\n  - by alice, with idemctl\n  - why: repaired\n  - queue `+regexp.QuoteMeta(q.DeadURL), out)
	require.Equal(t, "order-1", *got[0].MessageAttributes["key"].StringValue)
	require.Equal(t, 1, queuetest.Held(t, q.Client, q.DeadURL))
}

// A FIFO queue drops a message with an id that it had within five minutes. Deleted from the
// dead-letter queue it would be lost.
func TestAReplayLosesNothingToDeduplication(t *testing.T) {
	o := newTool(t)
	q := queuetest.New(t, queuetest.Spec{FIFO: true, MaxReceives: 3})
	send(t, q, q.DeadURL, "1", "a")
	code, _, errs := o.runQueue(t, "queue", "replay", "--reason", "repaired", "--url", q.DeadURL, "--to", q.URL, "--limit", "1", "--count", "1")
	require.Equal(t, exitFailed, code)
	require.Contains(t, errs, "stay in the dead-letter queue")
	require.Zero(t, queuetest.Held(t, q.Client, q.URL))
	require.Equal(t, 1, queuetest.Held(t, q.Client, q.DeadURL))
}

// box is a queue in memory: one message a receive.
type box struct {
	messages []types.Message
	sources  []string
	sent     []*sqs.SendMessageInput
	deleted  int
	failSend error
	onSend   func()
}

func (b *box) ReceiveMessage(_ context.Context, in *sqs.ReceiveMessageInput, _ ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out := &sqs.ReceiveMessageOutput{}
	if len(b.messages) > 0 {
		out.Messages, b.messages = b.messages[:1:1], b.messages[1:]
	}
	return out, nil
}

func (b *box) ChangeMessageVisibility(context.Context, *sqs.ChangeMessageVisibilityInput, ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	return nil, nil
}

func (b *box) SendMessage(_ context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	if b.failSend != nil {
		return nil, b.failSend
	}
	b.sent = append(b.sent, in)
	if b.onSend != nil {
		b.onSend()
	}
	return nil, nil
}

func (b *box) DeleteMessage(context.Context, *sqs.DeleteMessageInput, ...func(*sqs.Options)) (*sqs.DeleteMessageOutput, error) {
	b.deleted++
	return nil, nil
}

func (b *box) ListDeadLetterSourceQueues(context.Context, *sqs.ListDeadLetterSourceQueuesInput, ...func(*sqs.Options)) (*sqs.ListDeadLetterSourceQueuesOutput, error) {
	return &sqs.ListDeadLetterSourceQueuesOutput{QueueUrls: b.sources}, nil
}

// batches is a queue that gives several messages at once.
type batches struct {
	box
	all   [][]types.Message
	fails string
	shown []string // the handles whose messages were shown to others again
}

func (q *batches) ReceiveMessage(context.Context, *sqs.ReceiveMessageInput, ...func(*sqs.Options)) (*sqs.ReceiveMessageOutput, error) {
	out := &sqs.ReceiveMessageOutput{}
	if len(q.all) > 0 {
		out.Messages, q.all = q.all[0], q.all[1:]
	}
	return out, nil
}

func (q *batches) SendMessage(ctx context.Context, in *sqs.SendMessageInput, _ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	if *in.MessageBody == q.fails {
		return nil, errors.New("throttled")
	}
	return q.box.SendMessage(ctx, in)
}

func (q *batches) ChangeMessageVisibility(_ context.Context, in *sqs.ChangeMessageVisibilityInput, _ ...func(*sqs.Options)) (*sqs.ChangeMessageVisibilityOutput, error) {
	q.shown = append(q.shown, *in.ReceiptHandle)
	return nil, nil
}

func inGroup(group, body, handle string) types.Message {
	return types.Message{
		MessageId: aws.String("id-" + body), Body: &body, ReceiptHandle: &handle,
		Attributes: map[string]string{"MessageGroupId": group, "MessageDeduplicationId": body, "SentTimestamp": "1"},
	}
}

// After a message that could not be sent, the later ones of its group wait for it, in this batch
// and the next one.
func TestAReplayKeepsTheOrderOfAGroup(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		for to, want := range map[string][]string{"https://sqs/1/orders.fifo": {"paid", "other"}, "https://sqs/1/orders": {"paid", "credit", "other", "close"}} {
			q := &batches{fails: "debit", all: [][]types.Message{
				{inGroup("g", "paid", "0"), inGroup("g", "debit", "1"), inGroup("g", "credit", "2"), inGroup("h", "other", "3")},
				{inGroup("g", "close", "4")},
			}}
			b.box = q
			code, out, errs := b.run("queue", "replay", "--reason", "repaired", "--url", "https://sqs/1/orders-dead.fifo", "--to", to, "--limit", "9", "--count", "9")
			require.Equal(t, exitFailed, code)
			var sent []string
			for _, m := range q.sent {
				sent = append(sent, *m.MessageBody)
			}
			require.Equal(t, want, sent)
			require.Equal(t, len(want), q.deleted)
			require.Contains(t, errs, plural(5-len(want), "message"))
			require.Equal(t, len(want) == 2, strings.Contains(out, "one before it in its group was left"))
		}
	})
}

// What comes behind a message that was shown before is shown too, and nothing stays hidden.
func TestAQueueIsListedToTheEndOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		q := &batches{all: [][]types.Message{{inGroup("", "1", "h1")}, {inGroup("", "1", "h1 again"), inGroup("", "2", "h2")}, {inGroup("", "3", "h3")}}}
		b.box = q
		code, out, errs := b.run("queue", "list", "--url", "https://sqs/1/people")
		require.Equal(t, exitDone, code, errs)
		require.Equal(t, []string{"h1", "h1 again", "h2"}, q.shown)
		require.Equal(t, []string{"id-1", "id-2"}, regexp.MustCompile(`(?m)^id-.*$`).FindAllString(out, -1))
	})
}

// inBox makes a queue with a question for people and a dead letter.
func (b *bench) inBox() *box {
	question, err := json.Marshal(reconcile.Escalation{
		Message: "m", Record: r1.ID(), Tenant: "acme", Operation: "refund", Value: "secret-value", State: idem.Unknown, Attempt: 1, Probes: 3,
		Since: b.Clock.Now().Add(-4 * time.Hour).UTC(), Reason: "nobody could be asked for 4h", ErrorMessage: "secret-message", Help: "see the runbook",
	})
	require.NoError(b.t, err)
	message := func(id, body string, ago time.Duration) types.Message {
		return types.Message{
			MessageId: &id, Body: &body, ReceiptHandle: &id,
			Attributes: map[string]string{
				"SentTimestamp": strconv.FormatInt(b.Clock.Now().Add(-ago).UnixMilli(), 10), "ApproximateReceiveCount": "1",
				"MessageGroupId": "g", "MessageDeduplicationId": "d-" + id, "AWSTraceHeader": "Root=1",
			},
		}
	}
	return &box{
		sources:  []string{"https://sqs/1/orders.fifo"},
		messages: []types.Message{message("question-1", string(question), time.Hour), message("letter-1", `{"order":1}`, time.Minute)},
	}
}

func TestAReplayGoesToWhereTheDeadLettersComeFrom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		box := b.inBox()
		b.box, b.answers = box, []string{"2"}
		code, out, errs := b.run("queue", "replay", "--reason", "repaired", "--url", "https://sqs/1/orders-dead.fifo", "--limit", "2")
		require.Equal(t, exitFailed, code)
		require.Contains(t, out, "orders.fifo")
		require.Contains(t, errs, "not deleted: 1 message")
		require.Len(t, box.sent, 1, "the other one is too young")
		require.Equal(t, 1, box.deleted)
		sent := box.sent[0]
		require.Equal(t, []string{"https://sqs/1/orders.fifo", "g", "d-question-1", "Root=1"},
			[]string{*sent.QueueUrl, *sent.MessageGroupId, *sent.MessageDeduplicationId, *sent.MessageSystemAttributes["AWSTraceHeader"].StringValue})

		b.Clock.Advance(time.Hour)
		for _, sources := range [][]string{nil, {"a", "b"}} {
			box.sources = sources
			code, _, errs = b.run("queue", "replay", "--reason", "repaired", "--url", "https://sqs/1/dead", "--limit", "1", "--count", "1")
			require.Equal(t, exitFailed, code)
			require.Contains(t, errs, "use --to")
		}

		box = b.inBox()
		box.failSend = errors.New("throttled")
		b.box = box
		code, _, _ = b.run("queue", "replay", "--reason", "repaired", "--url", "https://sqs/1/dead", "--limit", "2", "--count", "2")
		require.Equal(t, exitFailed, code)
		require.Zero(t, box.deleted, "what was not sent stays")
	})
}

// Who replays is noted before anything is sent, and what was sent afterwards.
func TestAReplayThatCannotBeNotedSendsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.Clock.Advance(time.Hour)
		box := b.inBox()
		b.box = box
		replay := []string{"queue", "replay", "--url", "https://sqs/1/dead", "--limit", "2", "--count", "2", "--reason", "repaired"}
		good := b.backend.store
		b.backend.store = unnoted{good}
		code, _, errs := b.run(replay...)
		require.Equal(t, exitFailed, code)
		require.Contains(t, errs, "nothing was sent")
		require.Empty(t, box.sent)

		b.backend.store = good
		ctx, interrupt := context.WithCancel(t.Context())
		b.ctx, box.onSend = ctx, interrupt
		code, _, _ = b.run(replay...)
		require.Equal(t, exitFailed, code, "Ctrl-C")
		require.Len(t, box.sent, 1)
		require.Len(t, b.noted, 1)
		for _, a := range b.noted {
			require.Equal(t, "1 message to https://sqs/1/orders.fifo", a.What)
			require.Equal(t, []string{"https://sqs/1/dead", "alice", "repaired"}, []string{a.ID, a.Who, a.Why})
			require.False(t, a.Unconfirmed)
		}
	})
}

// What was certainly not sent is told apart from what may have been.
func TestTheHistoryOfAReplayTellsWhatMayHaveBeenSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		young := inGroup("young", "debit", "2")
		young.Attributes["SentTimestamp"] = "9999999999999"
		b.box = &batches{all: [][]types.Message{{
			inGroup("a", "paid", "1"), young, inGroup("young", "credit", "3"), inGroup("b", "lost", "4"), inGroup("b", "close", "5"),
		}}, fails: "lost"}
		code, _, _ := b.run("queue", "replay", "--reason", "repaired", "--url", "https://sqs/1/d.fifo", "--to", "https://sqs/1/o.fifo", "--limit", "9", "--count", "9")
		require.Equal(t, exitFailed, code)
		_, out, errs := b.run("changes")
		require.Contains(t, out, "1 message to https://sqs/1/o.fifo, 1 may have been sent, 3 not sent", errs)
	})
}

// unnoted is a store to which nothing can be written.
type unnoted struct{ reconcile.Store }

func (unnoted) Note(context.Context, protocol.Audit) error { return errCut }

func (unnoted) Requeue(context.Context, *outbox.Entry, protocol.Audit) error { return errCut }
