package idemlambda

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/require"
)

var fulfil = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable, Values: idem.KeepValues}

var quiet = slog.New(slog.DiscardHandler)

var byAttribute = SQSAttribute(idem.SingleTenant, SQSKeyAttribute)

// order is the body of the tests' messages: what its handler does with it.
type order struct {
	ID string `json:"id"`
	Do string `json:"do,omitempty"`
}

func messageOf(id, key, body string) events.SQSMessage {
	return events.SQSMessage{
		MessageId: id, ReceiptHandle: "receipt-" + id, Body: body,
		Attributes:        map[string]string{"ApproximateReceiveCount": "1"},
		MessageAttributes: map[string]events.SQSMessageAttribute{SQSKeyAttribute: {DataType: "String", StringValue: &key}},
		EventSourceARN:    "arn:aws:sqs:eu-central-1:111122223333:orders",
		EventSource:       "aws:sqs",
	}
}

func inGroup(m events.SQSMessage, group string) events.SQSMessage {
	m.EventSourceARN += ".fifo"
	m.Attributes[sqsGroup] = group
	m.Attributes["MessageDeduplicationId"] = "dedup-" + m.MessageId
	return m
}

func batchOf(ms ...events.SQSMessage) events.SQSEvent { return events.SQSEvent{Records: ms} }

// told collects what a queue's handler reports.
type told struct {
	mu       sync.Mutex
	outcomes map[string]SQSDelivery // by message
	all      []SQSDelivery          // as told
}

func (o *told) hook(_ context.Context, out SQSDelivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.outcomes == nil {
		o.outcomes = map[string]SQSDelivery{}
	}
	o.outcomes[out.Event.MessageId] = out
	o.all = append(o.all, out)
}

func (o *told) reasons() map[string]Reason {
	all := map[string]Reason{}
	for id, out := range o.outcomes {
		all[id] = out.Reason
	}
	return all
}

func named(res events.SQSEventResponse) []string {
	ids := []string{}
	for _, f := range res.BatchItemFailures {
		ids = append(ids, f.ItemIdentifier)
	}
	return ids
}

var (
	errDown     = errors.New("connection reset")
	errDeclined = errors.New("no such article")
)

// work does what the order says.
func work(ctx context.Context, o order) error {
	switch o.Do {
	case "fail":
		return errDown
	case "permanent":
		return idem.Permanent(errDeclined)
	case "not executed":
		return idem.NotExecuted(errDown)
	case "success not executed":
		idem.SetNotExecuted(ctx)
		return nil
	case "panic":
		panic("boom")
	case "goexit":
		runtime.Goexit()
	}
	return nil
}

// The table of what acknowledges: what the handler does, by declaration, then what
// the next delivery gets.
func TestSQSReasons(t *testing.T) {
	for _, c := range []struct {
		do          string
		repeat      idem.Repeat
		first, next Reason
		err         string
		state       idem.State
	}{
		{"", idem.Repeatable, ReasonExecuted, ReasonReplayed, "", idem.Completed},
		{"", idem.NotRepeatable, ReasonExecuted, ReasonReplayed, "", idem.Completed},
		{"fail", idem.Repeatable, ReasonReleased, ReasonReleased, "connection reset", idem.Released},
		{"fail", idem.NotRepeatable, ReasonUnknown, ReasonUnknown, "connection reset", idem.Unknown},
		{"permanent", idem.Repeatable, ReasonFailed, ReasonFailed, "no such article", idem.Failed},
		{"permanent", idem.NotRepeatable, ReasonFailed, ReasonFailed, "no such article", idem.Failed},
		{"not executed", idem.Repeatable, ReasonReleased, ReasonReleased, "connection reset", idem.Released},
		{"not executed", idem.NotRepeatable, ReasonReleased, ReasonReleased, "connection reset", idem.Released},
		{"success not executed", idem.NotRepeatable, ReasonReleased, ReasonReleased, "its success is not the outcome", idem.Released},
		{"panic", idem.Repeatable, ReasonPanicked, ReasonPanicked, "panic: a value of type string", ""},
		{"panic", idem.NotRepeatable, ReasonPanicked, ReasonUnknown, "panic: a value of type string", ""},
		{"goexit", idem.Repeatable, ReasonPanicked, ReasonPanicked, "runtime.Goexit", ""},
		{"goexit", idem.NotRepeatable, ReasonPanicked, ReasonUnknown, "runtime.Goexit", ""},
	} {
		t.Run(fmt.Sprint(c.do, " ", c.repeat), func(t *testing.T) {
			op := fulfil
			op.Repeat = c.repeat
			var seen told
			h := SQS(newEngine(t, memory()), op, byAttribute, &SQSOptions{OnOutcome: seen.hook, Logger: quiet}, work)
			body, err := json.Marshal(order{"o1", c.do})
			require.NoError(t, err)
			event := batchOf(messageOf("m1", "k1", string(body)))

			res, err := h(t.Context(), event)
			require.NoError(t, err)
			out := seen.outcomes["m1"]
			require.Equal(t, c.first, out.Reason)
			require.Equal(t, c.state, out.State)
			if c.err == "" {
				require.NoError(t, out.Err)
			} else {
				require.ErrorContains(t, out.Err, c.err)
			}
			require.Equal(t, !c.first.Acknowledges(), slices.Contains(named(res), "m1"))

			_, err = h(t.Context(), event)
			require.NoError(t, err)
			require.Equal(t, c.next, seen.outcomes["m1"].Reason)
		})
	}
}

// What the engine answers in place of an attempt.
func TestSQSReasonsOfAnswers(t *testing.T) {
	until := noon.Add(30 * time.Second)
	for _, c := range []struct {
		name  string
		store idem.Store
		want  Reason
		state idem.State
	}{
		{"in flight", occupied{memory(), idem.Record{State: idem.InProgress, Owner: "o", Write: "o.0", Attempt: 3, LeaseUntil: until}}, ReasonInFlight, idem.InProgress},
		{"unknown", occupied{memory(), idem.Record{State: idem.Unknown, Owner: "o", Write: "o.0", Attempt: 3}}, ReasonUnknown, idem.Unknown},
		{"accepted", occupied{memory(), idem.Record{State: idem.Pending, Owner: "o", Write: "o.0", Attempt: 3}}, ReasonAccepted, idem.Pending},
		{"damaged", damaged(), ReasonRecordUnreadable, ""},
		{"down", unreachable(), ReasonStoreUnavailable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen told
			h := SQS(newEngine(t, c.store), fulfil, byAttribute, &SQSOptions{OnOutcome: seen.hook, Logger: quiet}, func(context.Context, order) error {
				t.Error("the handler ran")
				return nil
			})
			res, err := h(t.Context(), batchOf(messageOf("m1", "k1", `{}`)))
			require.NoError(t, err)
			require.Equal(t, []string{"m1"}, named(res))
			out := seen.outcomes["m1"]
			require.Equal(t, c.want, out.Reason)
			require.Equal(t, c.state, out.State)
			require.Error(t, out.Err)
			require.NotEmpty(t, out.RecordID)
			if c.want == ReasonInFlight {
				require.Equal(t, 3, out.Attempt)
				require.WithinDuration(t, time.Now().Add(32*time.Second), out.LeaseUntil, 5*time.Second)
			} else {
				require.Zero(t, out.LeaseUntil)
			}
		})
	}
}

// What a step has stopped goes back with the reason that the next delivery meets. A message that
// waits tells until when, and so do those behind it.
func TestSQSReasonsOfStoppedAttempts(t *testing.T) {
	for want, after := range map[Reason]time.Duration{ReasonUnknown: 0, ReasonNotYetKnown: 24 * time.Hour} {
		store, seen := memory(), told{}
		deliver := func(store idem.Store, now time.Time) {
			e, err := idem.New(store, &idem.Options{Now: func() time.Time { return now }})
			require.NoError(t, err)
			op := fulfil
			op.Repeat, op.MaxAttempts = idem.Repeatable, 2
			h := SQS(e, op, byAttribute, &SQSOptions{OnOutcome: seen.hook, Logger: quiet}, func(ctx context.Context, _ order) error { return charging(after)(ctx) })
			_, err = h(t.Context(), batchOf(inGroup(messageOf("m1", "k1", `{}`), "a"), inGroup(messageOf("m2", "k2", `{}`), "a")))
			require.NoError(t, err)
		}
		deliver(dying(store), noon)
		for range 3 {
			deliver(store, noon.Add(time.Hour))
			out := seen.outcomes["m1"]
			require.Equal(t, want, out.Reason)
			if want == ReasonNotYetKnown {
				require.Equal(t, idem.Released, out.State)
				for _, id := range []string{"m1", "m2"} {
					require.WithinDuration(t, time.Now().Add(23*time.Hour), seen.outcomes[id].LeaseUntil, time.Minute)
				}
			}
		}
	}
}

// A group stays behind its first failure; another group goes on.
func TestSQSStopsAGroupAtItsFirstFailure(t *testing.T) {
	var seen told
	h := SQS(newEngine(t, memory()), fulfil, byAttribute, &SQSOptions{OnOutcome: seen.hook, Logger: quiet}, work)
	res, err := h(t.Context(), batchOf(
		inGroup(messageOf("a1", "ka1", `{"id":"a1"}`), "a"),
		inGroup(messageOf("b1", "kb1", `{"id":"b1"}`), "b"),
		inGroup(messageOf("a2", "ka2", `{"id":"a2","do":"fail"}`), "a"),
		inGroup(messageOf("a3", "ka3", `{"id":"a3"}`), "a"),
		inGroup(messageOf("a4", "", `{`), "a"),
		inGroup(messageOf("b2", "kb2", `{"id":"b2"}`), "b"),
	))
	require.NoError(t, err)
	require.Equal(t, []string{"a2", "a3", "a4"}, named(res))
	require.Equal(t, map[string]Reason{
		"a1": ReasonExecuted, "a2": ReasonReleased, "a3": ReasonBlocked, "a4": ReasonBlocked, "b1": ReasonExecuted, "b2": ReasonExecuted,
	}, seen.reasons())
}

// An attempt whose claim is gone, and whose record too, names no time for the next try.
func TestSQSLostClaim(t *testing.T) {
	var seen told
	lost := broken(memory(), idemtest.BareConflict, idemtest.Finish)
	lost.Always(func(context.Context, *idemtest.Call) error { return nil }, idemtest.Get) // and no record
	h := SQS(newEngine(t, lost), fulfil, byAttribute, &SQSOptions{OnOutcome: seen.hook, Logger: quiet}, work)
	res, err := h(t.Context(), batchOf(messageOf("m1", "k1", `{}`)))
	require.NoError(t, err)
	require.Equal(t, []string{"m1"}, named(res))
	out := seen.outcomes["m1"]
	require.Equal(t, ReasonInFlight, out.Reason)
	require.ErrorIs(t, out.Err, idem.ErrLeaseLost)
	require.Zero(t, out.LeaseUntil)
}

// Outcomes outlast the queue and its dead-letter queue, unless the operation says
// otherwise.
func TestSQSRetentionOfRecords(t *testing.T) {
	for given, want := range map[time.Duration]time.Duration{0: 29 * 24 * time.Hour, time.Hour: time.Hour} {
		store := memory()
		op := fulfil
		op.Retention = given
		h := SQS(newEngine(t, store), op, byAttribute, &SQSOptions{Logger: quiet}, work)
		_, err := h(t.Context(), batchOf(messageOf("m1", "k1", `{}`)))
		require.NoError(t, err)
		rec, err := store.Get(t.Context(), op.Key(idem.SingleTenant, "k1").ID())
		require.NoError(t, err)
		require.Equal(t, noon.Add(want), rec.ExpiresAt.UTC())
	}
}
