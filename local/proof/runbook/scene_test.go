package runbook

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/outbox/sqssender"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/local/proof/rig"
)

var (
	refund = idem.Operation{Name: "refund"}
	// key is the one that the page names.
	key = refund.Key("acme", "r-1")

	errTimedOut = errors.New("the provider did not answer")
)

// scene is the page's table, some time ago.
type scene struct {
	t     *testing.T
	table string
	store *dynamostore.AdminStore
	now   func() time.Time
	env   []string // what a reader knows besides
	queue queuetest.Queue
}

func newScene(t *testing.T, ago time.Duration) *scene {
	t.Helper()
	s := &scene{t: t, table: table(t), now: func() time.Time { return time.Now().Add(-ago) }}
	client := dynamotest.Client(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, s.table))
	rig.DeleteTable(t, s.table)
	var err error
	s.store, err = dynamostore.NewAdminStore(client, s.table,
		&dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	return s
}

func (s *scene) engine() *idem.Engine {
	e, err := idem.New(s.store, &idem.Options{Now: s.now, ClaimBudget: time.Minute,
		Observer: idem.LogTo(slog.New(slog.DiscardHandler))})
	require.NoError(s.t, err)
	return e
}

func (s *scene) reconciler() *reconcile.Reconciler {
	r, err := reconcile.New(s.store, &reconcile.Options{Now: s.now})
	require.NoError(s.t, err)
	return r
}

// end ends the operation with an error, or with a result.
func (s *scene) end(with error) string {
	_, err := idem.Do(s.t.Context(), s.engine(), key, "100 EUR",
		func(context.Context, string) (string, error) { return "re_1", with })
	require.Equal(s.t, with != nil, err != nil, "%v", err)
	return key.ID()
}

// unknown is a refund whose outcome is unknown.
func (s *scene) unknown() string { return s.end(errTimedOut) }

// failed is a refund that failed for good.
func (s *scene) failed() string { return s.end(idem.Permanent(errTimedOut)) }

// died is a refund whose process died.
func (s *scene) died() string {
	now := s.now()
	require.NoError(s.t, s.store.Acquire(s.t.Context(), now, protocol.Claim{Record: protocol.Record{
		ID: key.ID(), State: idem.InProgress, Fingerprint: "1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k", Owner: "o1",
		Write: "o1", Attempt: 1,
		LeaseUntil: now.Add(30 * time.Second), Due: now.Add(32 * time.Second), Retention: idem.DefaultRetention,
		CreatedAt: now, UpdatedAt: now,
	}}))
	return key.ID()
}

// interrupted is a refund whose process died in a step that runs at most once.
func (s *scene) interrupted() string {
	id := s.died()
	require.NoError(s.t, s.store.RecordStep(s.t.Context(), s.now(),
		protocol.StepWrite{ID: id, Owner: "o1", Write: "o2", Name: "charge", Begin: true}))
	return id
}

// paused are refunds that are paused.
func (s *scene) paused() string {
	require.NoError(s.t, s.reconciler().Pause(s.t.Context(), refund.Name, "", time.Time{},
		reconcile.Change{Actor: "bob", Reason: "case 4711"}))
	return refund.Name
}

// isPaused requires that the refunds of these tenants are paused, and that the block's change is in the history.
func (s *scene) isPaused(b block, tenants []string) {
	s.t.Helper()
	s.now = time.Now
	all, err := s.reconciler().Paused(s.t.Context())
	require.NoError(s.t, err)
	var got []string
	for _, p := range all {
		require.Equal(s.t, refund.Name, p.Operation)
		got = append(got, p.Tenant)
	}
	require.Equal(s.t, tenants, got)
	p := protocol.Pause{Operation: refund.Name}
	if len(tenants) > 0 {
		p.Tenant = tenants[0]
	}
	history, err := s.reconciler().History(s.t.Context(), p.ID())
	require.NoError(s.t, err)
	last := history[len(history)-1]
	require.Equal(s.t, []string{"alice", "idemctl"}, []string{last.Who, last.Tool})
	require.Contains(s.t, b.commands, fmt.Sprintf("%q", last.Why))
}

// overHTTP is an unknown refund that a client asked for over HTTP.
func (s *scene) overHTTP() string {
	contract, err := idemhttp.New(s.engine(), idemhttp.Routes{"POST /refunds": refund}, idemhttp.SingleTenant, nil)
	require.NoError(s.t, err)
	_, err = contract.Serve(s.t.Context(), &idemhttp.Request{
		Method: "POST", Path: "/refunds", Route: "/refunds", Body: []byte(`{"amount":100,"currency":"EUR"}`),
		Header: map[string][]string{"Idempotency-Key": {"key-0123456789abc"}, "Content-Type": {"application/json"}},
	}, func(context.Context) (*idemhttp.Response, error) { return nil, errTimedOut })
	require.ErrorIs(s.t, err, errTimedOut)
	return refund.Key(idem.SingleTenant, "key-0123456789abc").ID()
}

// notStarted is a refund that was accepted for later, and that no worker came for.
func (s *scene) notStarted() string {
	now := s.now
	s.now = func() time.Time { return now().Add(-2 * time.Hour) }
	_, err := later.Accept[string](s.t.Context(), s.engine(), key, "100 EUR", nil)
	require.NoError(s.t, err)
	s.now = now
	sweeper, err := reconcile.NewSweeper(s.reconciler(), &reconcile.SweepOptions{
		Log: slog.New(slog.DiscardHandler), Operations: []reconcile.Operation{{Operation: refund}},
	})
	require.NoError(s.t, err)
	report, err := sweeper.Sweep(s.t.Context())
	require.NoError(s.t, err)
	require.Equal(s.t, 1, report.NotStarted)
	return key.ID()
}

// escalated is an unknown refund that the sweep has escalated.
func (s *scene) escalated() string { return s.leftTo(nil) }

func (s *scene) leftTo(escalate func(context.Context, reconcile.Escalation) error) string {
	id := s.unknown()
	sweeper, err := reconcile.NewSweeper(s.reconciler(), &reconcile.SweepOptions{
		Escalate: escalate, Log: slog.New(slog.DiscardHandler), Operations: []reconcile.Operation{{
			Operation: refund, Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				return reconcile.CannotBeKnown("the provider says nothing"), nil
			},
		}},
	})
	require.NoError(s.t, err)
	report, err := sweeper.Sweep(s.t.Context())
	require.NoError(s.t, err)
	require.Equal(s.t, 1, report.Escalated, "%v", report)
	return id
}

// inTheQueue is such a refund, with its message in the escalation queue.
func (s *scene) inTheQueue() string {
	queue := queuetest.New(s.t, queuetest.Spec{})
	s.env = []string{"ESCALATIONS=" + queue.URL, "AWS_ENDPOINT_URL_SQS=" + queuetest.Endpoint(s.t)}
	sender, err := sqssender.New(queue.Client, queue.URL)
	require.NoError(s.t, err)
	return s.leftTo(reconcile.SendTo(sender))
}

// inTheDeadLetterQueue is an unknown refund whose message was received as often as it may be.
func (s *scene) inTheDeadLetterQueue() string {
	s.queue = queuetest.New(s.t, queuetest.Spec{MaxReceives: 3})
	s.env = []string{"QUEUE=" + s.queue.URL, "DEAD=" + s.queue.DeadURL, "AWS_ENDPOINT_URL_SQS=" + queuetest.Endpoint(s.t)}
	_, err := s.queue.Client.SendMessage(s.t.Context(),
		&sqs.SendMessageInput{QueueUrl: &s.queue.DeadURL, MessageBody: aws.String(`{"refund":"r-1"}`)})
	require.NoError(s.t, err)
	return s.unknown()
}

// receivedFromTheDeadLetterQueue has two messages there. A reader has received one of them.
func (s *scene) receivedFromTheDeadLetterQueue() string {
	id := s.inTheDeadLetterQueue()
	got, err := s.queue.Client.ReceiveMessage(s.t.Context(),
		&sqs.ReceiveMessageInput{QueueUrl: &s.queue.DeadURL, VisibilityTimeout: 600, WaitTimeSeconds: 5})
	require.NoError(s.t, err)
	require.Len(s.t, got.Messages, 1)
	s.env = append(s.env, "RECEIPT="+aws.ToString(got.Messages[0].ReceiptHandle))
	_, err = s.queue.Client.SendMessage(s.t.Context(),
		&sqs.SendMessageInput{QueueUrl: &s.queue.DeadURL, MessageBody: aws.String(`{"refund":"r-2"}`)})
	require.NoError(s.t, err)
	return id
}

// answers is a sender whose destination gives each message the same answer.
type answers outbox.Sent

func (a answers) Send(_ context.Context, messages []outbox.Message) []outbox.Sent {
	return slices.Repeat([]outbox.Sent{outbox.Sent(a)}, len(messages))
}

// deadLetter is a completed refund whose message became a dead letter.
func (s *scene) deadLetter() string {
	report := s.published(answers{Err: outbox.Reject(errors.New("the queue does not exist"))})
	require.Equal(s.t, 1, report.Dead, "%v", report)
	return key.ID()
}

// sent is a completed refund whose message was sent.
func (s *scene) sent() string {
	box := s.publish()
	messages, _, err := s.reconciler().Messages(s.t.Context(), key.ID(), "")
	require.NoError(s.t, err)
	_, err = box.Dispatch(s.t.Context(), s.now(), messages[0], "a1b2c3d4-0000-4000-8000-000000000001",
		s.now().Add(24*time.Hour))
	require.NoError(s.t, err)
	s.env = []string{"MESSAGE=" + messages[0].ID}
	return key.ID()
}

// publish makes a refund that publishes a message.
func (s *scene) publish() *dynamostore.Outbox {
	_, err := idem.Do(s.t.Context(), s.engine(), key, "100 EUR",
		dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, _ string) (string, error) {
			tx.Publish("made", outbox.Message{Destination: "orders", Type: "refund.made", Body: []byte("re_1")})
			return "re_1", nil
		}))
	require.NoError(s.t, err)
	box, err := dynamostore.NewOutbox(dynamotest.Client(s.t), s.table, nil)
	require.NoError(s.t, err)
	return box
}

// published is what a relay reports that has tried to send the message of a refund.
func (s *scene) published(sender outbox.Sender) outbox.Report {
	relay, err := outbox.NewRelay(s.publish(), map[string]outbox.Sender{"orders": sender}, nil)
	require.NoError(s.t, err)
	report, err := relay.Sweep(s.t.Context())
	require.NoError(s.t, err)
	return report
}

// waiting counts the outbox's messages that the relay will send.
func (s *scene) waiting() (n int) {
	box, err := dynamostore.NewOutbox(dynamotest.Client(s.t), s.table, nil)
	require.NoError(s.t, err)
	for shard := range outbox.Shards {
		refs, _, err := box.Strays(s.t.Context(), shard, nil, time.Now(), "")
		require.NoError(s.t, err)
		n += len(refs)
	}
	return n
}

// settledWrongly has the refund recorded as completed, with the reference of another one.
func (s *scene) settledWrongly(id string) string {
	require.NoError(s.t, s.reconciler().Resolve(s.t.Context(), id, reconcile.Resolution{To: idem.Completed, Ref: "re_1"},
		reconcile.Change{Actor: "bob", Reason: "a guess"}))
	return id
}

// completed is a refund that is done.
func (s *scene) completed() string { return s.end(nil) }

// unreadable is an unknown refund that a newer version has written.
func (s *scene) unreadable() string {
	id := s.unknown()
	_, err := dynamotest.Client(s.t).UpdateItem(s.t.Context(), &dynamodb.UpdateItemInput{
		TableName: &s.table, Key: map[string]types.AttributeValue{
			schema.PK: &types.AttributeValueMemberS{Value: id}, schema.SK: &types.AttributeValueMemberS{Value: schema.RecordSK},
		},
		UpdateExpression:          aws.String("SET v = :v"),
		ExpressionAttributeValues: map[string]types.AttributeValue{":v": &types.AttributeValueMemberN{Value: "99"}},
	})
	require.NoError(s.t, err)
	return id
}

// atTheProvider is an unknown refund that is in the provider's export of its day.
func (s *scene) atTheProvider() string {
	id, at := s.unknown(), s.now().UTC()
	file := filepath.Join(s.t.TempDir(), "export.csv")
	require.NoError(s.t, os.WriteFile(file, fmt.Appendf(nil, "id,reference,created\nre_1,%s,%s\n",
		protocol.Token(id, ""), at.Format(time.RFC3339)), 0o600))
	s.env = []string{"EXPORT=" + file, "DAY=" + at.Format(time.DateOnly)}
	return id
}

// nothing is a refund that no record tells of.
func (s *scene) nothing() string { return key.ID() }
