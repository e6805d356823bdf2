package dynamostore

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/outbox/outboxtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// box is an outbox on a fresh table.
type box struct {
	*Outbox
	*fixture
}

func openBox(t *testing.T) *box { return open(t, nil).box() }

func (f *fixture) box() *box { return &box{must(NewOutbox(f.clientAs(asRelay), f.table, &patient)), f} }

func order(key string) outbox.Message {
	return outbox.Message{
		Destination: "orders", OrderingKey: key, Type: "order.placed", ContentType: "text/plain",
		Body: []byte("hello"), Attributes: map[string]string{"region": "eu"},
	}
}

// published is the n-th message of a record.
func published(record string, n int, m outbox.Message, at time.Time) *outbox.Entry {
	m.ID = outbox.MessageID(record, base, strconv.Itoa(n))
	return &outbox.Entry{Record: record, Message: m, Number: n, Created: at}
}

// publish stores the n-th message of a record.
func (b *box) publish(t *testing.T, record string, n int, m outbox.Message, at time.Time) outbox.Ref {
	e := published(record, n, m, at)
	b.put(t, outboxItem(e))
	return e.Ref()
}

func (b *box) entry(t *testing.T, ref outbox.Ref) *outbox.Entry {
	found, _, err := b.Load(t.Context(), []outbox.Ref{ref}, math.MaxInt)
	require.NoError(t, err)
	require.Contains(t, found, ref)
	return found[ref]
}

func (b *box) item(t *testing.T, ref outbox.Ref) item { return b.rawAt(t, messageKey(ref)) }

// listed are the messages in the index: of all shards, those waiting or dead letters.
func (b *box) listed(t *testing.T, list func(ctx context.Context, shard int, cursor string) ([]*outbox.Entry,
	string, error)) []string {
	var ids []string
	for shard := range outbox.Shards {
		for cursor := ""; ; {
			entries, next, err := list(t.Context(), shard, cursor)
			require.NoError(t, err)
			for _, e := range entries {
				ids = append(ids, fmt.Sprintf("%s/%d", e.Record, e.Number))
			}
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return ids
}

// isTrue requires that a note about a message was made, isFalse that it was not.
func isTrue(t *testing.T, why ...any) func(bool, error) {
	return func(ok bool, err error) {
		t.Helper()
		require.NoError(t, err)
		require.True(t, ok, why...)
	}
}

func isFalse(t *testing.T, why ...any) func(bool, error) {
	return func(ok bool, err error) {
		t.Helper()
		require.NoError(t, err)
		require.False(t, ok, why...)
	}
}

func TestOutboxConformance(t *testing.T) {
	outboxtest.Run(t, outboxHarness(&patient))
	t.Run("no transactions", func(t *testing.T) { outboxtest.RunOperators(t, outboxHarness(&noTransactions)) })
}

func outboxHarness(o *Options) func(t *testing.T) outboxtest.Harness {
	return func(t *testing.T) outboxtest.Harness {
		f := open(t, o)
		return outboxtest.Harness{
			Store: f.box().Outbox, Operators: f.adminStore(t),
			Put: func(t testing.TB, e *outbox.Entry) {
				it := outboxItem(e)
				if e.State == outbox.Retrying {
					hold(it, e)
				}
				f.put(t, it)
			},
			Remove: func(t testing.TB, ref outbox.Ref) {
				_, err := f.admin.DeleteItem(t.Context(), &dynamodb.DeleteItemInput{TableName: &f.table, Key: messageKey(ref)})
				require.NoError(t, err)
			},
			Lane: func(n int) string { return laneIn("outbox-07", "orders", n) },
		}
	}
}

// hold makes of a message's item what Retry makes of it.
func hold(it item, e *outbox.Entry) {
	u := newUpdate("", 0, 0)
	u.hold(e)
	it["in_state"] = str("retrying")
	if at := u.item[":at"]; at != nil {
		it["open_due"] = at
	}
}

// What is not sent never expires, and what is sent is in the index no more.
func TestOutboxOnTheWire(t *testing.T) {
	b := openBox(t)
	ctx := t.Context()
	ref := b.publish(t, "acme#charge#abc", 1, order("k"), base)
	b.die(t, ref, "given up")
	require.Equal(t, []string{"acme#charge#abc/1"}, b.listed(t, b.Dead))
	require.NotContains(t, b.item(t, ref), "expires_at")
	e := b.entry(t, ref)
	require.NoError(t, b.adminStore(t).Requeue(ctx, e, requeued(e, 1)))
	require.Empty(t, b.listed(t, b.Dead))
	isTrue(t)(b.Retry(ctx, b.entry(t, ref), 1, base, "down"))
	require.NotContains(t, b.item(t, ref), "expires_at")
	isTrue(t)(b.Dispatch(ctx, base.Add(time.Hour), b.entry(t, ref), "sqs-1", base.Add(25*time.Hour)))
	it := b.item(t, ref)
	require.Equal(t, num(fmt.Sprint(base.Add(25*time.Hour).Unix())), it["expires_at"])
	require.NotContains(t, it, "open_shard")
	require.NotContains(t, it, "open_due")
	e = b.entry(t, ref)
	require.NoError(t, b.adminStore(t).Requeue(ctx, e, requeued(e, 2)))
	for _, name := range []string{"expires_at", "dispatched_at", "tries"} {
		require.NotContains(t, b.item(t, ref), name)
	}
}

// The service's id of a send is in the one write that notes the send, and takes no unit of its own.
func TestTheIdOfASendTakesNoUnit(t *testing.T) {
	f := open(t, nil)
	var units float64
	cfg := aws.Config{APIOptions: []func(*middleware.Stack) error{
		MeterCapacity(f.table, func(_ context.Context, _ string, write, _ float64) { units += write })}}
	client := must(NewClient(cfg,
		&ClientOptions{Endpoint: *f.admin.Options().BaseEndpoint, Transport: as{asRelay, f.wire}}))
	b := &box{must(NewOutbox(client, f.table, &patient)), f}
	var took []float64
	for n, id := range []string{"", "a1b2c3d4-0000-4000-8000-000000000001"} {
		e := b.entry(t, b.publish(t, "acme#charge#abc", n, order(""), base))
		b.wire.set(nil)
		units = 0
		isTrue(t)(b.Dispatch(t.Context(), base, e, id, base.Add(time.Hour)))
		require.Equal(t, []string{"UpdateItem"}, b.wire.calls())
		took = append(took, units)
	}
	require.Positive(t, took[0])
	require.Equal(t, took[0], took[1])
}

func TestUnreadableMessages(t *testing.T) {
	b := openBox(t)
	for name, damage := range map[string]func(item){
		"newer":    func(it item) { it["v"] = num("2") },
		"no body":  func(it item) { delete(it, "body") },
		"state":    func(it item) { it["in_state"] = str("lost") },
		"tags":     func(it item) { it["tags"] = str("x") },
		"tag":      func(it item) { it["tags"] = &types.AttributeValueMemberM{Value: item{"a": num("1")}} },
		"created":  func(it item) { delete(it, "created_at") },
		"number":   func(it item) { it["number"] = num("-1") },
		"no place": func(it item) { delete(it, "destination") },
	} {
		t.Run(name, func(t *testing.T) {
			it := outboxItem(published("r", 0, order(""), base))
			damage(it)
			b.put(t, it)
			e := b.entry(t, outbox.Ref{Record: "r", ID: outbox.MessageID("r", base, "0")})
			require.ErrorIs(t, e.Unreadable, protocol.ErrRecordUnreadable)
			require.Equal(t, outbox.MessageID("r", base, "0"), e.ID)
		})
	}
}

func TestOutboxWhenTheStoreIsDown(t *testing.T) {
	b := openBox(t)
	ref := b.publish(t, "r", 0, order(""), base)
	e := b.entry(t, ref)
	ctx, cancel := context.WithCancel(t.Context())
	b.wire.set(func(n int, _ string, req *http.Request) (*http.Response, error) {
		endAfter(2, n, cancel)
		return b.wire.loseReply(req)
	})
	_, err := b.Dispatch(ctx, base, e, "", base.Add(time.Hour))
	isStoreError(t, err, true)
	b.wire.set(nil)
	require.Equal(t, outbox.Dispatched, b.entry(t, ref).State, "it had landed")

	b.wire.refuse("", noAccess)
	_, _, err = b.Load(t.Context(), []outbox.Ref{ref}, math.MaxInt)
	require.ErrorContains(t, err, "dynamodb:")
	_, _, err = b.Waiting(t.Context(), 0, "orders", base, "")
	require.ErrorContains(t, err, "dynamodb:")
}

// A note whose answer was lost is known again. Otherwise a try would be used up without
// having been made, and an operator would learn that nothing was done.
func TestOutboxRepliesLost(t *testing.T) {
	b := openBox(t)
	ctx := t.Context()
	lose := func() { b.wire.loseFirst(1) }
	ref := b.publish(t, "acme#charge#abc", 0, order(""), base)
	e := b.entry(t, ref)
	lose()
	isTrue(t, "begun by this call")(b.Begin(ctx, e, 1, base.Add(time.Minute)))
	lose()
	isFalse(t, "begun by another one")(b.Begin(ctx, e, 1, base.Add(2*time.Minute)))
	lose()
	isTrue(t)(b.DeadLetter(ctx, base.Add(time.Hour), e, 1, "down"))
}

func TestOutboxItem(t *testing.T) {
	m := order("o-1")
	it := outboxItem(published("acme#charge#abc", 0, m, base))
	at := it["created_at"].(*types.AttributeValueMemberN).Value
	require.Equal(t, item{
		"pk": str("acme#charge#abc"), "sk": str("outbox#" + outbox.MessageID("acme#charge#abc", base, "0")),
		"v": num("1"), "in_state": str("new"), "destination": str("orders"), "ordering_key": str("o-1"),
		"message_type": str("order.placed"), "content_type": str("text/plain"), "number": num("0"),
		"body":       &types.AttributeValueMemberB{Value: []byte("hello")},
		"tags":       &types.AttributeValueMemberM{Value: item{"region": str("eu")}},
		"created_at": num(at), "open_shard": it["open_shard"],
		"open_due": num(destinationHash("orders") + "999999999" + "00" + at + "00001"),
	}, it)
	require.Regexp(t, `^outbox-(0\d|1[0-5])$`, text(it, "open_shard"))
	require.NotContains(t, it, "expires_at", "the table never forgets what is not sent")

	e := published("acme#refund#xyz", 3, m, base)
	e.After = []string{"a", "b"}
	other := outboxItem(e)
	require.Equal(t, it["open_shard"], other["open_shard"], "what is in order with each other lies in one shard")

	require.Equal(t, []string{"a", "b"}, decodeMessage(other).After)
	for _, damaged := range []types.AttributeValue{str("a"),
		&types.AttributeValueMemberL{Value: []types.AttributeValue{num("1")}}} {
		other["after"] = damaged
		require.ErrorContains(t, decodeMessage(other).Unreadable, "after")
	}
}
