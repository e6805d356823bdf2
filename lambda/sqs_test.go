package idemlambda

import (
	"context"
	"errors"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
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

// paused pauses everything for so long.
type paused time.Duration

func (p paused) MayExecute(context.Context, time.Time, string, string) error {
	return &idem.PausedError{RetryAfter: time.Duration(p)}
}

// What the engine answers in place of an attempt: the message goes back, and tells until when it may wait.
func TestSQSReasonsOfAnswers(t *testing.T) {
	standing := func(state idem.State) idem.Store {
		return occupied{memory(), idem.Record{State: state, Owner: "o", Write: "o.0", Attempt: 3,
			LeaseUntil: noon.Add(30 * time.Second)}}
	}
	full := broken(memory(), func(context.Context, *idemtest.Call) error {
		return &idem.LimitExceededError{RetryAfter: 45 * time.Second}
	}, idemtest.Acquire)
	for name, c := range map[string]struct {
		store   idem.Store
		paused  time.Duration
		want    Reason
		state   idem.State
		attempt int
		wait    time.Duration
	}{
		"in flight": {standing(idem.InProgress), 0, ReasonInFlight, idem.InProgress, 3, 32 * time.Second},
		"unknown":   {standing(idem.Unknown), 0, ReasonUnknown, idem.Unknown, 0, 0},
		"accepted":  {standing(idem.Pending), 0, ReasonAccepted, idem.Pending, 0, 0},
		"damaged":   {damaged(), 0, ReasonRecordUnreadable, "", 0, 0},
		"down":      {unreachable(), 0, ReasonStoreUnavailable, "", 0, 0},
		"limited":   {full, 0, ReasonLimitExceeded, "", 0, 45 * time.Second},
		"paused":    {memory(), time.Hour, ReasonPaused, "", 0, time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			o := &idem.Options{Now: func() time.Time { return noon }}
			if c.paused > 0 {
				o.Pauses = paused(c.paused)
			}
			engine, err := idem.New(c.store, o)
			require.NoError(t, err)
			h, seen := queueOf(engine, fulfil, func(context.Context, order) error {
				t.Error("the handler ran")
				return nil
			})
			require.Equal(t, []string{"m1"}, deliver(t, h, messageOf("m1", "k1", `{}`)))
			out := seen.outcomes["m1"]
			require.Equal(t, []any{c.want, c.state, c.attempt}, []any{out.Reason, out.State, out.Attempt})
			require.Error(t, out.Err)
			require.NotEmpty(t, out.RecordID)
			if c.wait > 0 {
				require.WithinDuration(t, time.Now().Add(c.wait), out.LeaseUntil, 5*time.Second)
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

// An attempt whose claim is lost, and whose record is deleted, names no time for the next try.
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
