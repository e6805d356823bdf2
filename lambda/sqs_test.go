package idemlambda

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/pause"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/stretchr/testify/require"
)

var fulfil = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable, Values: idem.KeepValues}

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

// reports collects what a queue's handler reports.
type reports struct {
	mu       sync.Mutex
	outcomes map[string]SQSDelivery // by message
	all      []SQSDelivery          // in order
}

func (o *reports) hook(_ context.Context, out SQSDelivery) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.outcomes == nil {
		o.outcomes = map[string]SQSDelivery{}
	}
	o.outcomes[out.Event.MessageId] = out
	o.all = append(o.all, out)
}

func (o *reports) reasons() map[string]Reason {
	all := map[string]Reason{}
	for id, out := range o.outcomes {
		all[id] = out.Reason
	}
	return all
}

// queueOf is a queue's handler by the key's attribute, and what it reports.
func queueOf[In any](e *idem.Engine, op idem.Operation, fn func(context.Context, In) error) (SQSHandler, *reports) {
	seen := new(reports)
	return SQS(e, op, byAttribute, &SQSOptions{OnOutcome: seen.hook}, fn), seen
}

func named(res events.SQSEventResponse) []string {
	ids := []string{}
	for _, f := range res.BatchItemFailures {
		ids = append(ids, f.ItemIdentifier)
	}
	return ids
}

// deliver gives the messages to the handler, and returns which are redelivered.
func deliver(t *testing.T, h SQSHandler, ms ...events.SQSMessage) []string {
	t.Helper()
	res, err := h(t.Context(), batchOf(ms...))
	require.NoError(t, err)
	return named(res)
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

// What the engine answers in place of an attempt.
func TestSQSReasonsOfAnswers(t *testing.T) {
	until := noon.Add(30 * time.Second)
	for _, c := range []struct {
		name  string
		store idem.Store
		want  Reason
		state idem.State
	}{
		{"in flight", occupied{memory(), idem.Record{State: idem.InProgress, Owner: "o", Write: "o.0", Attempt: 3,
			LeaseUntil: until}}, ReasonInFlight, idem.InProgress},
		{"unknown", occupied{memory(), idem.Record{State: idem.Unknown, Owner: "o", Write: "o.0", Attempt: 3}},
			ReasonUnknown, idem.Unknown},
		{"accepted", occupied{memory(), idem.Record{State: idem.Pending, Owner: "o", Write: "o.0", Attempt: 3}},
			ReasonAccepted, idem.Pending},
		{"damaged", damaged(), ReasonRecordUnreadable, ""},
		{"down", unreachable(), ReasonStoreUnavailable, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			h, seen := queueOf(newEngine(t, c.store), fulfil, func(context.Context, order) error {
				t.Error("the handler ran")
				return nil
			})
			require.Equal(t, []string{"m1"}, deliver(t, h, messageOf("m1", "k1", `{}`)))
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
		store, op := memory(), fulfil
		op.MaxAttempts = 2
		deliver := func(store idem.Store, now time.Time) *reports {
			h, seen := queueOf(engineAt(t, store, &now), op,
				func(ctx context.Context, _ order) error { return charging(after)(ctx) })
			deliver(t, h, inGroup(messageOf("m1", "k1", `{}`), "a"), inGroup(messageOf("m2", "k2", `{}`), "a"))
			return seen
		}
		deliver(dying(store), noon)
		for range 3 {
			seen := deliver(store, noon.Add(time.Hour))
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

// An attempt whose claim is gone, and whose record too, names no time for the next try.
func TestSQSLostClaim(t *testing.T) {
	lost := broken(memory(), idemtest.BareConflict, idemtest.Finish)
	lost.Always(func(context.Context, *idemtest.Call) error { return nil }, idemtest.Get) // and no record
	h, seen := queueOf(newEngine(t, lost), fulfil, work)
	require.Equal(t, []string{"m1"}, deliver(t, h, messageOf("m1", "k1", `{}`)))
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
		h, _ := queueOf(newEngine(t, store), op, work)
		deliver(t, h, messageOf("m1", "k1", `{}`))
		require.Equal(t, noon.Add(want), store.Records()[0].ExpiresAt.UTC())
	}
}

// What an attempt in atomic mode saw before it ran is not its own end: over a failure
// that has expired, one that is not recorded still asks for another delivery.
func TestSQSFailureOverAnExpiredOneIsRedelivered(t *testing.T) {
	now := noon
	answer := idem.Permanent(errors.New("no such account"))
	h, seen := queueOf(engineAt(t, memory(), &now),
		idem.Operation{Name: "move", Repeat: idem.Repeatable, Mode: idem.Atomic},
		func(context.Context, order) error { return answer })
	require.Empty(t, deliver(t, h, messageOf("m1", "k", `{"id":"1"}`)))

	now = now.Add(SQSRetention + time.Hour)
	answer = errors.New("timeout")
	require.Equal(t, []string{"m2"}, deliver(t, h, messageOf("m2", "k", `{"id":"1"}`)), "%v", seen.reasons())
}

// A poison message runs as often as its operation may, and no more: every later delivery
// of it, a redrive from the dead-letter queue among them, goes back unrun, as one whose
// outcome is unknown. The other messages of its batch are not held up.
func TestSQSPoisonMessageRunsAsOftenAsItMay(t *testing.T) {
	for _, do := range []string{"fail", "panic"} {
		t.Run(do, func(t *testing.T) {
			op := fulfil
			op.MaxAttempts = 3
			var mu sync.Mutex // a batch's messages run concurrently
			runs := map[string]int{}
			h, seen := queueOf(newEngine(t, memory()), op, func(ctx context.Context, o order) error {
				mu.Lock()
				runs[o.ID]++
				mu.Unlock()
				return work(ctx, o)
			})
			body := `{"id":"poison","do":"` + do + `"}`
			deliver := func(id string) Reason {
				require.Equal(t, []string{id}, deliver(t, h, messageOf(id, "k1", body), messageOf("other-"+id, "other-"+id,
					`{"id":"good"}`)), "it goes back, also once it is parked: a dead-letter queue must get it")
				return seen.outcomes[id].Reason
			}
			for range 2 {
				require.NotEqual(t, ReasonUnknown, deliver("m1"))
			}
			last := deliver("m1")
			if do == "fail" {
				require.Equal(t, ReasonUnknown, last, "the last attempt says itself that it was the last")
			}
			require.Equal(t, ReasonUnknown, deliver("m1"))
			require.ErrorIs(t, seen.outcomes["m1"].Err, idem.ErrOutcomeUnknown)
			require.Equal(t, ReasonUnknown, deliver("m1-redriven"))
			require.Equal(t, map[string]int{"poison": 3, "good": 2}, runs, "the good ones are replayed")
		})
	}
}

// A message over the limit is returned to its queue unrun and unrecorded, until the next window: only
// the queue counts its receives.
func TestSQSMessageOverTheLimitIsReturnedUnrecorded(t *testing.T) {
	op := fulfil
	op.MaxAttempts = 1
	store := memory()
	limited, err := limit.Over(store, map[string]limit.PerTenant{op.Name: {Keys: 1, Window: time.Minute}})
	require.NoError(t, err)
	now := time.Date(2030, 1, 2, 3, 4, 15, 0, time.UTC)
	ran := 0
	h, seen := queueOf(engineAt(t, limited, &now), op, func(context.Context, order) error {
		ran++
		return nil
	})
	send := func(id, key string) []string {
		t.Helper()
		return deliver(t, h, messageOf(id, key, `{"id":"`+id+`"}`))
	}
	require.Empty(t, send("m1", "k1"))
	for range 3 {
		require.Equal(t, []string{"m2"}, send("m2", "k2"))
		out := seen.outcomes["m2"]
		require.Equal(t, ReasonLimitExceeded, out.Reason)
		require.ErrorIs(t, out.Err, idem.ErrLimitExceeded)
		require.Zero(t, out.Attempt)
		require.WithinDuration(t, time.Now().Add(45*time.Second), out.LeaseUntil, 30*time.Second)
		require.Len(t, store.Records(), 1)
		require.Empty(t, send("m1", "k1"), "a duplicate has its answer")
	}
	require.Equal(t, 1, ran)
	now = now.Add(45 * time.Second)
	require.Empty(t, send("m2", "k2"))
	require.Equal(t, 1, seen.outcomes["m2"].Attempt)
	require.Equal(t, 2, ran)
}

// A message of a paused operation is returned to its queue unrun and unrecorded, for as long as the pause has lasted
// and five minutes at least; what is recorded is acknowledged.
func TestSQSMessageOfAPausedOperationIsReturned(t *testing.T) {
	op := fulfil
	op.MaxAttempts = 1
	synctest.Test(t, func(t *testing.T) {
		store := memory()
		pauses, err := pause.New(store)
		require.NoError(t, err)
		engine, err := idem.New(store, &idem.Options{Pauses: pauses})
		require.NoError(t, err)
		records, err := reconcile.New(store, nil)
		require.NoError(t, err)
		why := reconcile.Change{Actor: "alice", Reason: "case 4711"}
		ran := 0
		h, seen := queueOf(engine, op, func(context.Context, order) error {
			ran++
			return nil
		})
		send := func(id string) []string {
			t.Helper()
			return deliver(t, h, messageOf(id, id, `{"id":"`+id+`"}`))
		}
		require.Empty(t, send("m1"))
		require.NoError(t, records.Pause(t.Context(), op.Name, "", time.Time{}, why))
		began := time.Now()
		for _, at := range []time.Duration{5, 6, 10, 20, 40, 80, 200} {
			time.Sleep(at*time.Minute - time.Since(began))
			require.Equal(t, []string{"m2"}, send("m2"))
			out := seen.outcomes["m2"]
			require.Equal(t, ReasonPaused, out.Reason)
			require.ErrorIs(t, out.Err, idem.ErrPaused)
			require.Zero(t, out.Attempt)
			require.Equal(t, at*time.Minute, time.Until(out.LeaseUntil))
			require.Empty(t, send("m1"), "a duplicate has its answer")
		}
		require.Len(t, store.Records(), 1)
		require.NoError(t, records.Resume(t.Context(), op.Name, "", why))
		time.Sleep(pause.Within)
		require.Empty(t, send("m2"))
		require.Equal(t, 1, seen.outcomes["m2"].Attempt)
		require.Equal(t, 2, ran)
	})
}
