package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// Work that is repeatable and watched is sent again, until a call takes it over.
func TestAbandonedWorkIsSentAgain(t *testing.T) {
	r, key := lapsed(t, webhook)
	var probes []int
	var refuse error
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: webhook,
		OnAbandoned: func(_ context.Context, q reconcile.Question) error {
			require.Equal(t, []any{key.ID(), idem.InProgress, 1}, []any{q.ID, q.State, q.Attempt})
			probes = append(probes, q.Probes)
			return refuse
		}}}})
	require.Equal(t, []notice.Kind{notice.Abandoned}, r.sweep(s))
	require.Empty(t, r.sweep(s), "the work has time to arrive")
	refuse = errors.New("the queue is down")
	r.Clock.Advance(time.Minute)
	require.Equal(t, []notice.Kind{notice.Abandoned}, r.sweep(s))
	require.Equal(t, []int{1, 2}, probes)
	require.Equal(t, idem.InProgress, r.Record(key).State)
	require.Empty(t, r.changes(key), "it is as it was")

	r.gets(key, func(context.Context, int) (int, error) { return 7, nil }, 7)
	require.Zero(t, r.Record(key).Due)
	r.Clock.Advance(time.Hour)
	require.Empty(t, r.sweep(s))
}

// Without OnAbandoned it is reported, and goes to operators in the end. A call goes on with
// it even then.
func TestAbandonedWorkThatIsNotSentAgainIsEscalated(t *testing.T) {
	for _, released := range []bool{false, true} {
		r, key := newRig(t), webhook.Key("acme", "event-1")
		handler := func(ctx context.Context, end func() error) (int, error) {
			n, err := idem.Step(ctx, "one", func(context.Context) (int, error) { return 1, nil }, nil)
			return n, errors.Join(err, end())
		}
		_ = r.deliver(key, func(ctx context.Context, _ int) (int, error) {
			return handler(ctx, func() error {
				if !released {
					r.Crash()
				}
				return errPlain
			})
		})
		r.lapse()
		state := map[bool]idem.State{false: idem.InProgress, true: idem.Released}[released]
		require.Equal(t, state, r.Record(key).State)
		s := r.sweeper(reconcile.SweepOptions{})
		require.Equal(t, []notice.Kind{notice.Abandoned}, r.sweep(s))
		r.Clock.Advance(reconcile.DefaultEscalateAfter)
		require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
		require.Equal(t, state, r.escalations[0].State)
		require.Zero(t, r.escalations[0].Probes)
		require.Equal(t, []protocol.Change{protocol.ChangeEscalated}, r.changes(key))
		r.ends(key, func(ctx context.Context, _ int) (int, error) { return handler(ctx, func() error { return nil }) })
		require.Equal(t, idem.Completed, r.Record(key).State)
	}
}

// What was taken over too often is not handed over once more.
func TestPoisonedWorkIsParked(t *testing.T) {
	r := newRig(t)
	op := webhook
	op.MaxAttempts = 2
	key := op.Key("acme", "event-1")
	sent := 0
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: op,
		OnAbandoned: func(context.Context, reconcile.Question) error { sent++; return nil }}}})
	for range 2 {
		r.killed(key)
		r.lapse()
		r.sweep(s)
	}
	require.Equal(t, 1, sent)
	require.Equal(t, idem.Unknown, r.Record(key).State)
	require.Equal(t, "parked by a sweep: the last of 2 attempts left no outcome", r.Record(key).Failure.Message)
}

// An interrupted step of repeatable work is closed by the next attempt, for which the sweep may ask.
func TestAbandonedWorkWithAnInterruptedStep(t *testing.T) {
	for _, sends := range []bool{false, true} {
		r, key := newRig(t), webhook.Key("acme", "event-1")
		r.killedIn(key, "pay")
		op := reconcile.Operation{Operation: webhook}
		if sends {
			op.OnAbandoned = func(_ context.Context, q reconcile.Question) error {
				require.True(t, q.Steps[0].Begun)
				return nil
			}
		}
		require.Equal(t, []notice.Kind{notice.Abandoned},
			r.sweep(r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{op}})))
	}
}

// The next call knows how to close the step, and a sweep leaves it the claim: the ready one, which
// knows no operation, and one whose provider does not answer.
func TestNoSweepTakesTheQuestionFromInterrupted(t *testing.T) {
	for name, op := range map[string]reconcile.Operation{
		"it does not know the operation": {Operation: webhook}, "nobody can be asked": {Operation: order},
		"the provider does not know yet": {Operation: order, Probe: says(reconcile.StillUnknown(0))},
		"it cannot be known":             {Operation: order, Probe: says(reconcile.CannotBeKnown("the books are lost"))},
	} {
		for _, after := range []time.Duration{0, 24 * time.Hour} { // it is escalated then
			t.Run(fmt.Sprint(name, " ", after), func(t *testing.T) {
				r, key := interrupted(t)
				s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{op}})
				require.Len(t, r.sweep(s), 1)
				for end := r.Clock.Now().Add(after); r.Clock.Now().Before(end); r.Clock.Advance(10 * time.Minute) {
					r.sweep(s)
				}
				require.Equal(t, idem.InProgress, r.Record(key).State)
				if after > 0 {
					require.Len(t, r.escalations, 1)
					require.Equal(t, "charge", r.escalations[0].Steps[0].Name)
				}
				got := new(orderEffects)
				r.gets(key, shopping(got, func() {}), 7)
				require.Equal(t, &orderEffects{asked: 1, shipped: 1}, got)
				require.Equal(t, idem.Completed, r.Record(key).State)
				r.Clock.Advance(24 * time.Hour)
				require.Empty(t, r.sweep(s))
			})
		}
	}
}

// The provider is asked while a call may take the claim over. Whoever is first counts: the call has
// closed the step, and an answer about the attempt before it changes nothing.
func TestACallTakesTheClaimOverWhileTheProviderIsAsked(t *testing.T) {
	for name, answer := range map[string]reconcile.Answer{
		"it took effect":   reconcile.ContinueWith(map[string]reconcile.Answer{"charge": reconcile.CompletedWith(8)}),
		"it had no effect": reconcile.ContinueWith(map[string]reconcile.Answer{"charge": reconcile.NotExecuted()}),
		"it has failed":    reconcile.FailedWith(idem.Failure{Message: "declined"}),
	} {
		t.Run(name, func(t *testing.T) {
			r, key, got := newRig(t), order.Key("acme", "o-1"), new(orderEffects)
			r.crashCharging(key)
			s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: order,
				Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
					_, err := r.call(key, shopping(got, func() {}))
					return answer, err
				}}}})
			require.Empty(t, r.sweep(s))
			require.Equal(t, &orderEffects{asked: 1, shipped: 1}, got)
			require.Equal(t, idem.Completed, r.Record(key).State)
			require.Empty(t, r.changes(key))
		})
	}
}

// The stricter declaration holds: a claim of a repeatable operation is parked once the
// operation is repeatable no more.
func TestTheStricterDeclarationHolds(t *testing.T) {
	r, key := lapsed(t, webhook)
	strict := webhook
	strict.Repeat = idem.NotRepeatable
	s := r.probing(strict, says(reconcile.CompletedWith(3)))
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Resolved}, r.sweep(s))
	r.gets(key, mustNotRun, 3)
}

// Operators read why a repeatable operation is a question for them.
func TestAnEscalationSaysThatTheAttemptsAreOver(t *testing.T) {
	r := newRig(t)
	twice := webhook
	twice.MaxAttempts = 2
	key := twice.Key("acme", "w-1")
	r.killed(key)
	r.lapse()
	r.end(key, errPlain)
	require.Equal(t, idem.Unknown, r.Record(key).State)
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: twice}}})
	r.sweeps(s, 2, reconcile.DefaultEscalateAfter)
	require.Len(t, r.escalations, 1)
	require.Equal(t, "no provider can be asked about it; it has had its 2 attempts", r.escalations[0].Reason)
}

// Operators have had an abandoned claim for a while when its process wakes up, renews its lease
// and dies: that is a question anew, and they get it once more.
func TestAClaimThatGoesOnAfterItWasEscalatedIsNotForgotten(t *testing.T) {
	for name, tc := range map[string]struct {
		after time.Duration // the give-up
		runs  bool          // a sweep sees it while it runs
	}{
		"at once":              {after: time.Second},
		"and is seen":          {after: time.Second, runs: true},
		"the day after":        {after: 24 * time.Hour},
		"later, and is seen":   {after: 24 * time.Hour, runs: true},
		"the third week after": {after: 17 * 24 * time.Hour},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := lapsed(t, webhook)
			s := r.sweeper(reconcile.SweepOptions{})
			r.Clock.Advance(reconcile.DefaultEscalateAfter)
			require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
			looks := 0
			pass := func(d time.Duration) {
				for end := r.Clock.Now().Add(d); r.Clock.Now().Before(end); {
					r.Clock.Advance(min(time.Hour, end.Sub(r.Clock.Now())))
					looks += len(r.sweep(s))
				}
			}
			pass(tc.after)
			require.Len(t, r.escalations, 1)
			require.LessOrEqual(t, looks, 10, "it is looked at ever more rarely")

			require.NoError(t, r.renew(r.Record(key), 4*time.Hour))
			lease := r.Record(key).LeaseUntil
			if tc.runs {
				r.Clock.Advance(r.Record(key).Due.Sub(r.Clock.Now()))
				if !r.Clock.Now().After(lease) {
					require.Equal(t, []notice.Kind{notice.SweepPostponed}, r.sweep(s))
					require.Zero(t, r.Record(key).EscalatedAt)
				}
			}
			pass(4*time.Hour + 2*tc.after + reconcile.DefaultEscalateAfter + 2*time.Hour)
			require.Len(t, r.escalations, 2)
			require.NotEqual(t, r.escalations[0].Message, r.escalations[1].Message)
			require.Equal(t, lease, r.escalations[1].Since)
			require.Equal(t, []protocol.Change{protocol.ChangeEscalated, protocol.ChangeEscalated}, r.changes(key))

			r.gets(key, func(context.Context, int) (int, error) { return 7, nil }, 7)
			require.Zero(t, r.Record(key).Due)
		})
	}
}
