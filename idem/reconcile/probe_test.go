package reconcile_test

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

func TestAnAnswerIsDone(t *testing.T) {
	soon := func(d time.Duration) func(*testing.T, time.Duration) {
		return func(t *testing.T, due time.Duration) { require.Equal(t, d, due) }
	}
	between := func(from, to time.Duration) func(*testing.T, time.Duration) {
		return func(t *testing.T, due time.Duration) {
			require.GreaterOrEqual(t, due, from)
			require.LessOrEqual(t, due, to)
		}
	}
	long := strings.Repeat("x", 401<<10)
	type row struct {
		name   string
		answer reconcile.Answer
		err    error
		kind   notice.Kind
		state  idem.State
		reason string
		due    func(t *testing.T, in time.Duration)
	}
	rows := []row{
		{name: "completed", answer: reconcile.CompletedWith(7).WithRef("ch_1"), kind: notice.Resolved, state: idem.Completed},
		{name: "completed, encoded", answer: reconcile.CompletedWithEncoded(protocol.Encoded{Body: []byte("7")}),
			kind: notice.Resolved, state: idem.Completed},
		{name: "completed, result not known", answer: reconcile.CompletedWithoutResult(), kind: notice.Resolved,
			state: idem.Completed},
		{name: "failed", answer: reconcile.FailedWith(idem.Failure{Message: "declined"}), kind: notice.Resolved,
			state: idem.Failed},
		{name: "not executed", answer: reconcile.NotExecuted(), kind: notice.Resolved, state: idem.Released},
		{name: "still unknown", answer: reconcile.StillUnknown(0), kind: notice.Probed, state: idem.Unknown,
			due: between(30*time.Second, time.Minute)},
		{name: "the zero answer", kind: notice.Probed, state: idem.Unknown, due: between(30*time.Second, time.Minute)},
		{name: "still unknown, with a wish", answer: reconcile.StillUnknown(10 * time.Minute), kind: notice.Probed,
			state: idem.Unknown, due: soon(10 * time.Minute)},
		{name: "a wish for ever", answer: reconcile.StillUnknown(1 << 62), kind: notice.Probed, state: idem.Unknown,
			due: soon(reconcile.DefaultProbeAge)},
		{name: "cannot be known", answer: reconcile.CannotBeKnown("the provider keeps a day"), kind: notice.Escalated,
			state: idem.Unknown, reason: "the provider keeps a day"},
		{name: "an error", err: errPlain, kind: notice.Probed, state: idem.Unknown,
			due: between(30*time.Second, time.Minute)},
	}
	encoded := reconcile.CompletedWithEncoded
	seven := []byte("7")
	for name, answer := range map[string]reconcile.Answer{
		"a result that is none":          reconcile.CompletedWith(func() {}),
		"a result in another codec":      encoded(protocol.Encoded{Body: seven, Codec: "http"}),
		"a result of no version":         encoded(protocol.Encoded{Body: seven, ResponseVersion: -1}),
		"a result of a version too high": encoded(protocol.Encoded{Body: seven, ResponseVersion: math.MaxInt32 + 1}),
		"a result whose check panics": encoded(protocol.Encoded{Body: seven,
			Check: func([]byte) error { panic("boom") }}),
		"a result that is not JSON":             encoded(protocol.Encoded{Body: []byte("x")}),
		"a long reference":                      reconcile.CompletedWithoutResult().WithRef(long),
		"a reference with a line break":         reconcile.CompletedWithoutResult().WithRef("pay\n1"),
		"a reference that is no text":           reconcile.CompletedWithoutResult().WithRef("\xff"),
		"a failure with a long message":         reconcile.FailedWith(idem.Failure{Message: long}),
		"a failure with a long type":            reconcile.FailedWith(idem.Failure{Type: long}),
		"a failure with a code that is no text": reconcile.FailedWith(idem.Failure{Code: "\xff"}),
	} {
		rows = append(rows, row{name: name, answer: answer, kind: notice.Escalated, state: idem.Unknown,
			reason: "cannot be recorded"})
	}
	for _, tc := range rows {
		inBubble(t, tc.name, func(t *testing.T) {
			r, key := lapsed(t, refund)
			asked := 0
			s := r.asking(func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
				asked++
				require.Equal(t, []any{key.ID(), "acme", "refund", idem.Unknown, 1, 1},
					[]any{q.ID, q.Tenant, q.Operation, q.State, q.Attempt, q.Probes})
				require.Equal(t, protocol.Token(key.ID(), ""), q.Token)
				return tc.answer, tc.err
			})
			now := r.Clock.Now()
			require.Equal(t, []notice.Kind{notice.SweepParked, tc.kind}, r.sweep(s))
			require.Equal(t, 1, asked)
			rec := r.Record(key)
			require.Equal(t, tc.state, rec.State)
			switch tc.kind {
			case notice.Resolved:
				require.True(t, rec.Resolved)
				require.Zero(t, rec.Due)
				require.Equal(t, []protocol.Change{protocol.ChangeParked, protocol.ChangeResolved}, r.changes(key))
			case notice.Escalated:
				require.Len(t, r.escalations, 1)
				require.Contains(t, r.escalations[0].Reason, tc.reason)
				require.False(t, rec.EscalatedAt.IsZero())
				require.Equal(t, []protocol.Change{protocol.ChangeParked, protocol.ChangeEscalated}, r.changes(key))
				r.Clock.Advance(1000 * time.Hour)
				require.Empty(t, r.sweep(s), "it is not read again")
			default:
				require.Equal(t, 1, rec.Probes)
				tc.due(t, rec.Due.Sub(now))
			}
		})
	}
}

// textless is an error whose text cannot be had.
type textless struct{}

func (*textless) Error() string { panic("no text") }

// A panic is of one record: the sweep reports it and goes on with the others.
func TestAPanicDoesNotEndTheSweep(t *testing.T) {
	r := newRig(t)
	for _, n := range []string{"r-1", "r-2"} {
		r.killed(refund.Key("acme", n))
	}
	r.lapse()
	s := r.asking(func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
		if q.ID == refund.Key("acme", "r-1").ID() {
			return reconcile.Answer{}, new(textless)
		}
		return reconcile.CompletedWith(7), nil
	})
	report := r.report(s)
	require.Equal(t, 1, report.Failed)
	require.Equal(t, 1, report.Resolved)
	require.Len(t, report.Problems, 1)
	require.Regexp(t, `a function of the sweep panicked at probe_test\.go:\d+: a value of type string$`,
		report.Problems[0])
	require.Equal(t, idem.Unknown, r.Record(refund.Key("acme", "r-1")).State)
}

// A failure is not recorded over steps that have not been undone: operators get it.
func TestAFailureWithStepsToUndoIsEscalated(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.crash(key, func(ctx context.Context, _ int) (int, error) {
		r.done(ctx, "book", nothing)
		r.Crash()
		return 0, nil
	})
	r.lapse()
	s := r.asking(func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
		require.Equal(t, []reconcile.Step{{Name: "book", Token: protocol.Token(key.ID(), "book")}}, q.Steps)
		seat, err := q.StepResult(ctx, "book")
		require.NoError(t, err)
		require.Equal(t, `"book 7"`, string(seat))
		return reconcile.FailedWith(idem.Failure{Message: "declined"}), nil
	})
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	require.Contains(t, r.escalations[0].Reason, `"book"`)
	rec, err := r.Lookup(t.Context(), key.ID())
	require.NoError(t, err)
	seat, err := r.StepResult(t.Context(), rec, "book")
	require.NoError(t, err)
	require.Equal(t, `"book 7"`, string(seat), "people see what is to be undone")
}

// Not executed counts only once the parked attempt's lease is over.
func TestNotExecutedWaitsForTheLease(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.end(key, errPlain)
	s := r.asking(says(reconcile.NotExecuted()))
	require.Equal(t, []notice.Kind{notice.SweepPostponed}, r.sweep(s))
	rec := r.Record(key)
	require.Equal(t, rec.LeaseUntil.Add(idem.DefaultMargin+time.Millisecond), rec.Due)
	r.Clock.Advance(rec.Due.Sub(r.Clock.Now()))
	require.Equal(t, []notice.Kind{notice.Resolved}, r.sweep(s))
	require.Equal(t, idem.Released, r.Record(key).State)
}

// A probe that goes wrong leaves the question open, the sweep goes on, and after five of
// them the provider is left alone for a minute. Other providers are asked all the while.
func TestAProviderThatFailsIsLeftAlone(t *testing.T) {
	for name, probe := range map[string]probe{
		"errors": func(context.Context, reconcile.Question) (reconcile.Answer, error) {
			return reconcile.Answer{}, errPlain
		},
		"panics": func(context.Context, reconcile.Question) (reconcile.Answer, error) { panic("probe") },
		"hangs": func(ctx context.Context, _ reconcile.Question) (reconcile.Answer, error) {
			<-ctx.Done()
			return reconcile.Answer{}, ctx.Err()
		},
		"does not mind its context": func(context.Context, reconcile.Question) (reconcile.Answer, error) {
			time.Sleep(time.Minute)
			return reconcile.Answer{}, nil
		},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRig(t)
			var keys []idem.Key
			for i := range 20 {
				keys = append(keys, refund.Key("acme", fmt.Sprint(i)))
			}
			other := idem.Operation{Name: "transfer"}
			healthy := other.Key("acme", "1")
			for _, key := range append(keys, healthy) {
				r.killed(key)
			}
			r.lapse()
			asked := make(chan string, 100)
			s := r.sweeper(reconcile.SweepOptions{Concurrency: 2, Operations: []reconcile.Operation{
				{Operation: refund, Provider: "bank",
					Probe: func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
						asked <- q.ID
						return probe(ctx, q)
					}},
				{Operation: other, Probe: says(reconcile.CompletedWith(1))},
			}})
			start := time.Now()
			report := r.report(s)
			require.Less(t, time.Since(start), 40*time.Second)
			require.GreaterOrEqual(t, len(asked), 5)
			require.LessOrEqual(t, len(asked), 6, "one was under way")
			require.Equal(t, len(asked), report.Probed)
			require.Equal(t, 20-len(asked), report.Postponed)
			require.Equal(t, 1, report.Resolved)
			require.Equal(t, 21, report.Parked)
			probes := 0
			for _, key := range keys {
				rec := r.Record(key)
				require.Equal(t, idem.Unknown, rec.State)
				require.True(t, rec.Due.After(r.Clock.Now()))
				probes += rec.Probes
			}
			require.Equal(t, len(asked), probes, "what was not asked is not counted")
			time.Sleep(2 * time.Minute)
			before := len(asked)
			r.report(s)
			require.Equal(t, before+1, len(asked), "one question shows whether it is back")
			time.Sleep(2 * time.Minute) // the last one ends
		})
	}
}

// A probe has its own time, and never more than the sweep: what comes too late to be
// written is not begun.
func TestAProbeEndsBeforeTheSweep(t *testing.T) {
	for name, tc := range map[string]struct{ sweep, asking time.Duration }{
		"much time":   {time.Minute, reconcile.DefaultProbeTimeout},
		"little time": {8 * time.Second, 4 * time.Second},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRig(t)
			for i := range 30 {
				r.killed(refund.Key("acme", fmt.Sprint(i)))
			}
			r.lapse()
			s := r.sweeper(reconcile.SweepOptions{Concurrency: 1, Operations: []reconcile.Operation{{Operation: refund,
				Probe: func(ctx context.Context, _ reconcile.Question) (reconcile.Answer, error) {
					deadline, _ := ctx.Deadline()
					require.Equal(t, tc.asking, time.Until(deadline))
					time.Sleep(tc.asking / 2)
					return reconcile.StillUnknown(0), nil
				}}}})
			report := r.within(tc.sweep, s)
			require.Positive(t, report.Probed)
			require.Positive(t, report.Left)
			require.Equal(t, report.Listed, report.Probed+report.Left)
			require.Zero(t, report.Failed)
		})
	}
}

// An answer that comes after somebody has resolved the question changes nothing.
func TestALateAnswerChangesNothing(t *testing.T) {
	for name, answer := range map[string]reconcile.Answer{
		"completed": reconcile.CompletedWith(1), "not executed": reconcile.NotExecuted(),
		"still unknown":   reconcile.StillUnknown(0),
		"cannot be known": reconcile.CannotBeKnown("gone"),
	} {
		t.Run(name, func(t *testing.T) {
			r, key := lapsed(t, refund)
			s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				require.NoError(t, reconcile.Resolve(t.Context(), r.Reconciler, key, 7,
					reconcile.Change{Actor: "alice", Reason: "the console"}))
				return answer, nil
			})
			require.Equal(t, []notice.Kind{notice.SweepParked}, r.sweep(s))
			r.gets(key, mustNotRun, 7)
			require.Empty(t, r.escalations)
			require.Equal(t, []protocol.Change{protocol.ChangeParked, protocol.ChangeResolved}, r.changes(key))
		})
	}
}

func mustNotRun(context.Context, int) (int, error) { panic("it must not run again") }

// An answer is about the attempt that was asked about: a later one may have another outcome.
func TestAnAnswerDoesNotSettleALaterAttempt(t *testing.T) {
	r, key := lapsed(t, refund)
	var asked []int
	s := r.asking(func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
		if asked = append(asked, q.Attempt); len(asked) > 1 {
			return reconcile.StillUnknown(0), nil
		}
		r.resolve(key, reconcile.Resolution{To: idem.Released})
		r.end(key, errPlain)
		r.lapse()
		return reconcile.NotExecuted(), nil // the first attempt was not
	})
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Probed}, r.sweep(s))
	require.Equal(t, []int{1, 2}, asked, "it looks once more")
	require.Equal(t, idem.Unknown, r.Record(key).State)
}

// EscalateAfter is the age at which operators get it, however long the provider asks to wait.
func TestAProvidersWaitDoesNotOutlastTheAge(t *testing.T) {
	r, key := lapsed(t, refund)
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{
		Operation: refund, EscalateAfter: time.Hour, Probe: says(reconcile.StillUnknown(55 * time.Minute)),
	}}})
	r.sweep(s)
	since := r.Record(key).OpenSince
	for range 2 {
		require.Empty(t, r.escalations)
		r.Clock.Advance(r.Record(key).Due.Sub(r.Clock.Now()))
		r.sweep(s)
	}
	require.Len(t, r.escalations, 1)
	require.WithinDuration(t, since.Add(time.Hour), r.Record(key).EscalatedAt, time.Minute) // the clock runs
}

// While a circuit is open no provider is asked. What reaches its age then is asked first, and
// escalated unasked only at twice that age.
func TestAnOpenCircuitEscalatesNothingUnasked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		asked := map[string]int{}
		s := r.sweeper(reconcile.SweepOptions{Concurrency: 1, Operations: []reconcile.Operation{{
			Operation: refund, EscalateAfter: 10 * time.Minute,
			Probe: func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
				asked[q.ID]++
				return reconcile.Answer{}, errPlain
			},
		}}})
		const questions = 8
		for i := range questions {
			r.killed(refund.Key("acme", fmt.Sprint(i)))
		}
		r.lapse()
		r.sweep(s)
		require.Less(t, len(asked), questions, "the circuit is open")
		r.Clock.Advance(11 * time.Minute) // on the records' clock, not on the circuit's
		r.sweep(s)
		require.Empty(t, r.escalations)
		r.Clock.Advance(11 * time.Minute)
		r.sweep(s)
		require.Len(t, r.escalations, questions)
	})
}
