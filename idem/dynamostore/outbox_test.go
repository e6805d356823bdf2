package dynamostore

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// box is an outbox on a fresh table.
type box struct {
	*Outbox
	*fixture
}

func openBox(t *testing.T) *box { return open(t, nil).box() }

func (f *fixture) box() *box {
	return &box{must(NewOutbox(f.clientAs(asRelay), f.table, &patient)), f}
}

func order(key string) outbox.Message {
	return outbox.Message{
		Destination: "orders", OrderingKey: key, Type: "order.placed", ContentType: "text/plain",
		Body: []byte("hello"), Attributes: map[string]string{"region": "eu"},
	}
}

// publish stores the n-th message of a record.
func (b *box) publish(t *testing.T, record string, n int, m outbox.Message, at time.Time) outbox.Ref {
	it, err := outboxItem(record, base, n, message{strconv.Itoa(n), m}, nil, at)
	require.NoError(t, err)
	b.put(t, it)
	return outbox.Ref{Record: record, ID: outbox.MessageID(record, base, strconv.Itoa(n))}
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

func (b *box) waiting(t *testing.T, before time.Time) []string {
	return b.listed(t, func(ctx context.Context, shard int, cursor string) ([]*outbox.Entry, string, error) {
		refs, next, err := b.Waiting(ctx, shard, "orders", before, cursor)
		require.NoError(t, err)
		found, _, err := b.Load(ctx, refs, math.MaxInt)
		var entries []*outbox.Entry
		for _, ref := range refs {
			entries = append(entries, found[ref])
		}
		return entries, next, err
	})
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

func TestOutboxOnTheWire(t *testing.T) {
	b := openBox(t)
	ctx := t.Context()
	ref := b.publish(t, "acme#charge#abc", 1, order("k"), base)

	e := b.entry(t, ref)
	want := order("k")
	want.ID, want.TenantGroup = ref.ID, protocol.TenantGroup("acme#charge#abc")
	require.Equal(t, &outbox.Entry{Record: ref.Record, Message: want, State: outbox.New, Number: 1, Created: base}, e)
	require.Equal(t, []string{"acme#charge#abc/1"}, b.waiting(t, base.Add(time.Second)))
	require.Empty(t, b.waiting(t, base.Add(-time.Second)))

	isTrue(t)(b.Begin(ctx, e, 1, base.Add(time.Minute)))
	isFalse(t, "a try is begun once")(b.Begin(ctx, e, 1, base.Add(time.Minute)))
	isTrue(t)(b.Retry(ctx, e, 1, base.Add(2*time.Minute), "down"))
	e = b.entry(t, ref)
	require.Equal(t, &outbox.Entry{Record: ref.Record, Message: want, State: outbox.Retrying, Number: 1, Created: base,
		Tries: 1, NextTry: base.Add(2 * time.Minute), Reason: "down"}, e)
	require.NotContains(t, b.item(t, ref), "expires_at")

	isTrue(t)(b.DeadLetter(ctx, base.Add(time.Hour), e, 2, "given up"))
	require.Empty(t, b.waiting(t, base.Add(24*time.Hour)))
	require.Equal(t, []string{"acme#charge#abc/1"}, b.listed(t, b.Dead))
	require.NotContains(t, b.item(t, ref), "expires_at", "the table never forgets what is not sent")
	const ended = "it is sent or given up"
	isFalse(t, ended)(b.Begin(ctx, e, 9, base))
	isFalse(t, ended)(b.Retry(ctx, e, 9, base, "x"))
	isFalse(t, ended)(b.DeadLetter(ctx, base, e, 9, "x"))

	e = b.entry(t, ref)
	require.Equal(t, outbox.Dead, e.State)
	require.NoError(t, b.adminStore(t).Requeue(ctx, e, requeued(e, 1)))
	require.Empty(t, b.listed(t, b.Dead))
	require.Equal(t, []string{"acme#charge#abc/1"}, b.waiting(t, base.Add(time.Second)))
	e = b.entry(t, ref)
	require.Equal(t, outbox.New, e.State)
	require.Zero(t, e.Tries)

	isTrue(t)(b.Dispatch(ctx, base.Add(time.Hour), e, base.Add(25*time.Hour)))
	isFalse(t)(b.Dispatch(ctx, base.Add(time.Hour), e, base.Add(26*time.Hour)))
	it := b.item(t, ref)
	require.Equal(t, num(fmt.Sprint(base.Add(25*time.Hour).Unix())), it["expires_at"])
	require.NotContains(t, it, "open_shard")
	require.NotContains(t, it, "open_due")
	require.Empty(t, b.waiting(t, base.Add(24*time.Hour)))
}

// What is left to the sweep with an ordering key is found by the key, and listed
// before all else of its shard and destination.
func TestHeldMessages(t *testing.T) {
	b := openBox(t)
	ctx := t.Context()
	lane := outbox.Lane{Destination: "orders", OrderingKey: "k"}
	var other outbox.Message // of another lane in the same shard
	for n := 0; ; n++ {
		other = order(fmt.Sprint("x", n))
		if outboxShard("", "", &other) == outboxShard("", "", ptr(order("k"))) {
			break
		}
	}
	strange := outbox.Lane{Destination: "orders", OrderingKey: other.OrderingKey}
	put := func(record string, n int, m outbox.Message, at time.Duration) outbox.Ref {
		return b.publish(t, record, n, m, base.Add(at))
	}
	early := put("early", 0, order("k"), 0)
	var want []outbox.Ref
	for n := range outbox.MaxHeld + 2 {
		want = append(want, put(fmt.Sprintf("r%02d", n/7), n%7, order("k"), time.Second+time.Duration(n/7)*time.Millisecond))
	}
	foreign := put("foreign", 0, other, 2*time.Second)
	unordered := put("unordered", 0, order(""), 0)
	lanes := []outbox.Lane{lane, strange, {Destination: "prices", OrderingKey: "k"}}
	found, err := b.Held(ctx, lanes)
	require.NoError(t, err)
	require.Empty(t, found, "nobody has tried them")

	for _, ref := range append(slices.Clone(want), foreign, unordered) {
		isTrue(t)(b.Retry(ctx, b.entry(t, ref), 0, base, "down"))
	}
	found, err = b.Held(ctx, lanes)
	require.NoError(t, err)
	require.Equal(t, map[outbox.Lane][]outbox.Ref{lane: want[:outbox.MaxHeld], strange: {foreign}}, found)
	all := b.waiting(t, base.Add(-time.Hour))
	require.Len(t, all, outbox.MaxHeld+1, "however young they are, and so many of a lane")
	all = b.waiting(t, base.Add(time.Hour))
	require.Len(t, all, outbox.MaxHeld+3)
	require.Greater(t, slices.Index(all, "early/0"), slices.Index(all, "foreign/0"))

	e := b.entry(t, want[0])
	isTrue(t)(b.Begin(ctx, e, 1, base))
	e.Tries = 1
	isTrue(t, "the relay that began a try can take it back")(b.Retry(ctx, e, 0, base, "it was not sent"))
	require.Zero(t, b.entry(t, want[0]).Tries)
	isTrue(t)(b.Begin(ctx, b.entry(t, early), 1, base))
	for _, ref := range want {
		isTrue(t)(b.Dispatch(ctx, base, b.entry(t, ref), base.Add(time.Hour)))
	}
	found, err = b.Held(ctx, lanes[:1])
	require.NoError(t, err)
	require.Equal(t, map[outbox.Lane][]outbox.Ref{lane: {early}}, found)

	b.wire.refuse("", noAccess)
	_, err = b.Held(ctx, lanes)
	require.ErrorContains(t, err, "dynamodb:")
}

// Notes about a message do nothing to another one that has taken its place, and
// make none where it is gone.
func TestNotesAreAboutTheMessageThatWasRead(t *testing.T) {
	b := openBox(t)
	ctx := t.Context()
	ref := b.publish(t, "r", 0, order(""), base)
	old := b.entry(t, ref)
	b.publish(t, "r", 0, order(""), base.Add(time.Hour))
	for _, is := range []item{b.item(t, ref), nil} {
		if is == nil { // and nothing is made of a note
			_, err := b.admin.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: &b.fixture.table, Key: messageKey(ref)})
			require.NoError(t, err)
		}
		isFalse(t)(b.Begin(ctx, old, 1, base))
		isFalse(t)(b.Retry(ctx, old, 1, base, "x"))
		isFalse(t)(b.DeadLetter(ctx, base, old, 1, "x"))
		isFalse(t)(b.Dispatch(ctx, base, old, base))
		require.Equal(t, is, b.item(t, ref))
	}
	found, _, err := b.Load(ctx, []outbox.Ref{ref}, math.MaxInt)
	require.NoError(t, err)
	require.Empty(t, found)
}

// More than a page of the index and more than a BatchGetItem takes, in order.
func TestManyMessages(t *testing.T) {
	t.Parallel()
	b := openBox(t)
	m := order("k")
	var want []string
	var refs []outbox.Ref
	for n := range 180 {
		at := base.Add(time.Duration(n/10) * time.Second)
		record := fmt.Sprintf("r-%03d", n/10)
		refs = append(refs, b.publish(t, record, n%10, m, at))
		want = append(want, fmt.Sprintf("%s/%d", record, n%10))
	}
	require.Equal(t, want, b.waiting(t, base.Add(time.Hour)))
	found, _, err := b.Load(t.Context(), refs, math.MaxInt)
	require.NoError(t, err)
	require.Len(t, found, 180)
}

// Load reads as much as the caller says, whatever the messages' sizes, in the order that it is asked for.
func TestLoadOfASize(t *testing.T) {
	t.Parallel()
	b := openBox(t)
	m := order("k")
	refs := []outbox.Ref{{Record: "gone", ID: "x"}}
	for n := range 30 {
		// Small ones, and then large ones that a guess by these does not expect.
		m.Body = make([]byte, []int{10, 50 << 10}[n/15])
		refs = append(refs, b.publish(t, fmt.Sprintf("r-%02d", n), 0, m, base))
	}
	for _, size := range []int{1, 120 << 10, 500 << 10, math.MaxInt} {
		for left := refs; len(left) > 0; {
			found, read, err := b.Load(t.Context(), left, size)
			require.NoError(t, err)
			require.Positive(t, read)
			sum := 0
			for _, ref := range left[:read] {
				e := found[ref]
				require.Equal(t, ref != refs[0], e != nil)
				if e != nil {
					sum += e.Size()
				}
				delete(found, ref)
			}
			require.True(t, sum <= size || read == 1, "%d", sum)
			require.Empty(t, found)
			left = left[read:]
		}
	}
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
			it, err := outboxItem("r", base, 0, message{"0", order("")}, nil, base)
			require.NoError(t, err)
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
	_, err := b.Dispatch(ctx, base, e, base.Add(time.Hour))
	isStoreError(t, err, true)
	b.wire.set(nil)
	require.Equal(t, outbox.Dispatched, b.entry(t, ref).State, "it had landed")

	b.wire.refuse("", noAccess)
	_, _, err = b.Load(t.Context(), []outbox.Ref{ref}, math.MaxInt)
	require.ErrorContains(t, err, "dynamodb:")
	_, _, err = b.Waiting(t.Context(), 0, "orders", base, "")
	require.ErrorContains(t, err, "dynamodb:")
	b.wire.set(nil)
	_, _, err = b.Waiting(t.Context(), 0, "orders", base, "nonsense")
	require.ErrorContains(t, err, "is no cursor")
	_, _, err = b.Waiting(t.Context(), 16, "orders", base, "")
	require.ErrorContains(t, err, "no shard 16")
}

// A note whose answer was lost is known again: else a try would be used up without
// having been made, and an operator told that nothing was done.
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
	m := message{"placed", outbox.Message{
		Destination: "orders", OrderingKey: "o-1", Type: "order.placed", ContentType: "text/plain",
		Body: []byte("hello"), Attributes: map[string]string{"region": "eu"},
	}}
	it, err := outboxItem("acme#charge#abc", base, 0, m, nil, base)
	require.NoError(t, err)
	at := it["created_at"].(*types.AttributeValueMemberN).Value
	require.Equal(t, item{
		"pk": str("acme#charge#abc"), "sk": str("outbox#" + outbox.MessageID("acme#charge#abc", base, "placed")),
		"v": num("1"), "in_state": str("new"), "destination": str("orders"), "ordering_key": str("o-1"),
		"message_type": str("order.placed"), "content_type": str("text/plain"), "number": num("0"),
		"body":       &types.AttributeValueMemberB{Value: []byte("hello")},
		"tags":       &types.AttributeValueMemberM{Value: item{"region": str("eu")}},
		"created_at": num(at), "open_shard": it["open_shard"],
		"open_due": num(destinationHash("orders") + "999999999" + "00" + at + "00001"),
	}, it)
	require.Regexp(t, `^outbox-(0\d|1[0-5])$`, text(it, "open_shard"))
	require.NotContains(t, it, "expires_at", "the table never forgets what is not sent")

	again, err := outboxItem("acme#charge#abc", base, 0, m, nil, base)
	require.NoError(t, err)
	require.Equal(t, it, again)

	other, err := outboxItem("acme#refund#xyz", base, 3, m, []string{"a", "b"}, base)
	require.NoError(t, err)
	require.Equal(t, it["open_shard"], other["open_shard"], "what is in order with each other lies in one shard")

	require.Equal(t, []string{"a", "b"}, decodeMessage(other).After)
	for _, damaged := range []types.AttributeValue{str("a"),
		&types.AttributeValueMemberL{Value: []types.AttributeValue{num("1")}}} {
		other["after"] = damaged
		require.ErrorContains(t, decodeMessage(other).Unreadable, "after")
	}

	m.Body = nil
	_, err = outboxItem("acme#charge#abc", base, 0, m, nil, base)
	require.ErrorContains(t, err, "Body is empty")
}
