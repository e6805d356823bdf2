package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const (
	parked, resolved, wasEscalated = protocol.ChangeParked, protocol.ChangeResolved, protocol.ChangeEscalated

	escalateAfter = reconcile.DefaultEscalateAfter
)

// ages sets the age at which a question is escalated.
func ages(age time.Duration) move {
	return knows(func(o *reconcile.Operation) { o.EscalateAfter = age })
}

// whileSending has the moves made while operators are sent a question.
func whileSending(moves ...move) move {
	return func(r *rig) { r.sending = func() { r.play(moves...) } }
}

// slow takes a while for each call, as a network does.
func slow(ctx context.Context, c *idemtest.Call) error {
	time.Sleep(7 * time.Millisecond)
	err := c.Do(ctx)
	time.Sleep(7 * time.Millisecond)
	return err
}

// sameMessage checks that operators got one message so often, and nothing else.
func sameMessage(n int) move {
	return func(r *rig) {
		r.play(escalated(n))
		for _, g := range r.escalations {
			require.Equal(r.t, r.escalations[0].Message, g.Message)
		}
	}
}

// anotherMessage checks that the n-th escalation is of another question than the one before.
func anotherMessage(n int) move {
	return func(r *rig) {
		r.play(escalated(n))
		require.NotEqual(r.t, r.escalations[n-2].Message, r.escalations[n-1].Message)
	}
}

// recorded checks that the record says that it was escalated.
func recorded(r *rig) { require.False(r.t, r.record().EscalatedAt.IsZero()) }

// settledForGood checks that no sweep looks at the record again.
func settledForGood(r *rig) {
	require.Zero(r.t, r.record().Due)
	r.play(wait(24*time.Hour), sweeps())
}

// What operators get is sent until they have it, as one message for one question, whatever else happens.
func TestAQuestionIsEscalatedOnce(t *testing.T) {
	// A sweep dies after operators have got a question, over a store that takes its time, or that loses what
	// parks the claim: the message that comes again is the same one.
	for name, settle := range map[string]idemtest.Fault{
		"slow": slow,
		"the reply is lost": func(ctx context.Context, c *idemtest.Call) error {
			_ = slow(ctx, c)
			return c.Lost()
		},
		"the request is lost": func(ctx context.Context, c *idemtest.Call) error {
			time.Sleep(7 * time.Millisecond)
			return c.Lost()
		},
	} {
		play(t, story{"the sweep dies: " + name, refund, []move{
			lapsed, next(idemtest.Settle, settle), asks(cannotBeKnown),
			whileSending(always(idemtest.LoseRequest)), sweep, heal, whileSending(),
			wait(5 * time.Minute), sweeps(notice.Escalated), sameMessage(2),
		}})
	}
	for name, answer := range map[string]reconcile.Answer{"still unknown": stillUnknown, "not executed": notExecuted} {
		play(t, story{"a parked attempt goes on while the provider is asked: " + name, refund, []move{
			lapsed, ages(time.Hour), asks(answer, renews(idem.DefaultLease)),
			times(200, sweep, wait(20*time.Second), renews(idem.DefaultLease)), escalated(1),
		}})
	}
	play(t, []story{
		{"operators cannot be reached for a while", refund, []move{
			lapsed, asks(cannotBeKnown), refusing(errors.New("the queue is down")),
			sweeps(notice.SweepParked, notice.SweepFailed), wait(time.Minute),
			times(2, sweeps(notice.SweepFailed), wait(time.Minute)), func(r *rig) { require.Zero(r.t, r.record().EscalatedAt) },
			refusing(nil), sweeps(notice.Escalated), sameMessage(4), changed(parked, wasEscalated),
			resolves(to(7)), // operators can still answer
			func(r *rig) { require.Zero(r.t, r.record().EscalatedAt) },
		}},
		// It renews its lease and says what the provider calls the effect.
		{"a parked attempt goes on while operators are sent it", refund, []move{
			lapsed, asks(cannotBeKnown), whileSending(renews(time.Minute), refers("ch_1")),
			sweeps(notice.SweepParked, notice.Escalated), minutes, escalated(1), changed(parked, wasEscalated), recorded,
		}},
		// Operators say that it had no effect. The steps are still to be continued: that is a new
		// question, which gets its time and a message of its own.
		{"an answered question", refund, []move{
			resends(), fails(stepThen(errPlain), errPlain), is(idem.Unknown), aged, resolves(toReleased), minutes, escalated(1),
			func(r *rig) { require.NotEmpty(r.t, r.questions) }, times(8, wait(5*time.Hour), sweep), anotherMessage(2),
		}},
		// The attempt that a sweep has parked says by itself that its outcome is unknown.
		{"a late end", refund, []move{
			fails(func(r *rig) handler { return func(context.Context, int) (int, error) { aged(r); return 0, errPlain } }, nil),
			func(r *rig) { require.NotNil(r.t, r.record().Failure, "the end was recorded") }, minutes, escalated(1), recorded,
		}},
		// A call goes on with the work, but its claim is lost on the way and is taken back.
		{"a lost claim", webhook, []move{
			fails(stepThen(errPlain), errPlain), aged, always(idemtest.LoseRequest, idemtest.Acquire),
			fails(stepThen(errPlain), nil), heal, minutes, escalated(1),
		}},
	}...)

	// Operators have had an abandoned claim for a while when its process wakes up, renews its lease
	// and dies: that is a new question, and they get it once more.
	for name, tc := range map[string]struct {
		after time.Duration // it was escalated
		runs  bool          // a sweep sees it while it runs
	}{
		"at once":              {after: time.Second},
		"and is seen":          {after: time.Second, runs: true},
		"the day after":        {after: 24 * time.Hour},
		"later, and is seen":   {after: 24 * time.Hour, runs: true},
		"the third week after": {after: 17 * 24 * time.Hour},
	} {
		looks := 0
		pass := func(d time.Duration) move {
			return func(r *rig) {
				for end := r.Clock.Now().Add(d); r.Clock.Now().Before(end); {
					r.play(wait(min(time.Hour, end.Sub(r.Clock.Now()))), sweep)
					looks += len(r.swept.Actions)
				}
			}
		}
		play(t, story{"a claim goes on after it was escalated, " + name, webhook, []move{
			lapsed, wait(escalateAfter), sweeps(notice.Escalated), pass(tc.after), escalated(1),
			func(r *rig) { require.LessOrEqual(r.t, looks, 10, "it is looked at ever more rarely") }, renews(4 * time.Hour),
			func(r *rig) {
				lease := r.record().LeaseUntil
				if r.until(r.record().Due); tc.runs && !r.Clock.Now().After(lease) {
					r.play(sweeps(notice.SweepPostponed))
					require.Zero(r.t, r.record().EscalatedAt)
				}
				r.play(pass(4*time.Hour+2*tc.after+escalateAfter+2*time.Hour), anotherMessage(2))
				require.Equal(r.t, lease, r.escalations[1].Since)
			},
			changed(wasEscalated, wasEscalated), gets(returns(7, nil), 7), settledForGood,
		}})
	}
}

// What no sweep can answer goes to operators in the end, and what they read says why, and what they can do.
func TestWhatNoSweepCanAnswerIsEscalated(t *testing.T) {
	withNoProvider := "no provider can be asked about it"
	twice := webhook
	twice.MaxAttempts = 2
	play(t, []story{
		// OnAbandoned says what becomes of work that goes on, and nothing of what is unknown.
		{"an unknown outcome without a probe", refund, []move{
			lapsed, resends(), sweeps(notice.SweepParked, notice.SweepPostponed),
			func(r *rig) { require.Equal(r.t, r.record().OpenSince.Add(escalateAfter), r.record().Due) },
			wait(escalateAfter), sweeps(notice.Escalated), asked(0), escalated(1, withNoProvider),
		}},
		// EscalateAfter is the age at which operators get it, however long the provider asks to wait.
		{"a provider that asks to wait", refund, []move{
			lapsed, ages(time.Hour), asks(reconcile.StillUnknown(55 * time.Minute)), sweep,
			times(2, escalated(0), func(r *rig) { r.until(r.record().Due) }, sweep), escalated(1),
			func(r *rig) { require.Equal(r.t, r.record().OpenSince.Add(time.Hour), r.record().EscalatedAt) },
		}},
		// The store takes all but the answer. The question waits and ages like any other.
		{"an answer that the store never takes", refund, []move{
			lapsed, asks(stillUnknown), sweeps(notice.SweepParked, notice.Probed),
			asks(withoutResult), always(idemtest.LoseRequest, idemtest.Settle),
			times(4, wait(5*time.Hour), sweep), escalated(1, "could not be recorded"),
		}},
		// A fault of the store passes, and is none of the answer, whatever is to be corrected for it.
		{"not an answer that the store refuses for a time", refund, []move{
			lapsed, asks(stillUnknown), sweep, asks(withoutResult),
			always(func(context.Context, *idemtest.Call) error {
				return &idem.StoreError{Op: "Settle", Ambiguous: true,
					Err: &idem.ConfigError{What: "dynamostore: table", Problem: "cannot be reached with these credentials"}}
			}, idemtest.Settle),
			wait(time.Hour), sweeps(notice.Probed), heal, wait(time.Hour), sweeps(notice.Resolved),
			escalated(0), is(idem.Completed),
		}},
		// The sweep was not run for long: what has become due since then is asked about all the same.
		{"not a question that waited for the sweep", refund, []move{
			lapsed, asks(stillUnknown), sweep, wait(10 * reconcile.DefaultProbeAge), asks(tookEffect), sweep,
			escalated(0), is(idem.Completed),
		}},
		{"with a reason that is too long", refund, []move{
			lapsed, asks(reconcile.CannotBeKnown(strings.Repeat("ü", 1<<20))), sweep, escalated(1),
			func(r *rig) { require.LessOrEqual(r.t, len(r.escalations[0].Reason), 4<<10) },
		}},
		{"when a repeatable operation has had its attempts", twice, []move{
			lapsed, ends(errPlain), is(idem.Unknown), knows(func(*reconcile.Operation) {}),
			times(2, wait(escalateAfter), sweep), escalated(1, withNoProvider+"; it has had its 2 attempts"),
		}},
		// The charge took effect, somebody has said so, and the client never calls again. What operators read
		// that they can do about it can be done.
		{"when no call continues the work", order, []move{
			interrupted, resolves(charged(tookEffect)), wait(time.Hour), sweeps(notice.Escalated),
			func(r *rig) {
				require.Equal(r.t, idem.Released, r.escalations[0].State)
				require.Empty(r.t, r.escalations[0].Steps, "nothing is left to ask about")
				for _, way := range []string{"have the client send it again", "the service's own data", "idemctl resolve --again"} {
					require.Contains(r.t, r.escalations[0].Help, way)
				}
			},
			resolves(again(failedByHand)), is(idem.Failed), settledForGood,
		}},
		// A claim that any call may take over goes to operators as it is. They read that its handler may run again.
		{"when a call may take the work over", webhook, []move{
			killedIn("pay"), sweep, wait(escalateAfter), sweep, escalated(1),
			func(r *rig) {
				require.Equal(r.t, idem.InProgress, r.escalations[0].State)
				require.Contains(r.t, r.escalations[0].Help, "nothing runs again, but for a record in_progress: a call takes it "+
					"over and runs its handler once more, but not the interrupted step")
			},
			fails(func(r *rig) handler {
				return func(context.Context, int) (int, error) { r.did.charged++; return 5, nil }
			}, new(*idem.StepInterruptedError)),
			did(orderEffects{charged: 1}),
		}},
	}...)

	// An escalation has the type of the last error, the types and places of a redacted one, or the line of a
	// panic, and no text of an error, which may be confidential.
	_, encoding := reconcile.Encode(unencodable{})
	for want, probe := range map[string]func() error{
		`(*net.OpError)`: func() error { return fmt.Errorf("of card 4711: %w", &net.OpError{Op: "dial", Err: errPlain}) },
		`(idem: encoding reconcile_test.unencodable: an error of type *errors.errorString)`: func() error {
			return fmt.Errorf("of card 4711: %w", errors.Join(errPlain, encoding))
		},
		`an error of type *errors.errorString)`: func() error { panic(errors.New("card 4711")) },
		`a value of type string)`:               func() error { panic("card 4711") },
	} {
		play(t, story{want, refund, []move{
			lapsed, asking(func(*rig, int) (reconcile.Answer, error) { return reconcile.Answer{}, probe() }),
			times(6, sweep, wait(time.Hour)), escalated(1),
			func(r *rig) {
				reason := r.escalations[0].Reason
				panicked := `(\(a function of the sweep panicked at escalation_test\.go:\d+: )?`
				require.Regexp(r.t, `^the probe gave no answer `+panicked+regexp.QuoteMeta(want)+`$`, reason)
				require.NotContains(r.t, reason, "4711")
			},
		}})
	}

	// The provider's answer is more than the memory of the sweep, whose process dies of it each time, or the work
	// that it sends again is. It is called ever more rarely, and operators get the question in the end.
	for _, op := range []idem.Operation{refund, webhook} {
		var dead atomic.Bool
		dies := func(*rig) { dead.Store(true) }
		play(t, story{"a call that kills its sweep, of a " + op.Name, op, []move{
			lapsed, ages(2 * time.Hour), asks(tookEffect, dies), resends(dies),
			always(func(ctx context.Context, c *idemtest.Call) error {
				if dead.Load() {
					return c.Lost()
				}
				return c.Do(ctx)
			}),
			times(6*60, func(r *rig) {
				if r.sweeping == nil {
					r.sweeping = r.sweeper(r.options)
				}
				_, _ = r.sweeping.Sweep(r.t.Context())
				dead.Store(false)
				time.Sleep(time.Minute) // the circuit's clock
			}),
			escalated(1, "recorded no"),
			func(r *rig) {
				require.Contains(r.t, r.changes(r.key), wasEscalated)
				require.Contains(r.t, []idem.State{idem.Unknown, idem.InProgress}, r.record().State)
				require.Less(r.t, len(r.questions), 15)
			},
		}})
	}
}

// unencodable has no JSON, and says why in words that are confidential.
type unencodable struct{}

func (unencodable) MarshalJSON() ([]byte, error) { return nil, errors.New("card 4711") }

// Work that the next call would continue is sent again, or goes to operators, and stays claimable.
func TestAbandonedWork(t *testing.T) {
	twice := webhook
	twice.MaxAttempts = 2
	strict := webhook
	strict.Repeat = idem.NotRepeatable
	play(t, []story{
		{"is sent again, until a call takes it over", webhook, []move{
			lapsed, resends(), sweeps(notice.Abandoned), sweeps(), // the work has time to arrive
			refusing(errors.New("the queue is down")), wait(time.Minute), sweeps(notice.Abandoned),
			asked(2), is(idem.InProgress), changed(),
			func(r *rig) {
				for n, q := range r.questions {
					require.Equal(r.t, []any{r.key.ID(), idem.InProgress, 1, n + 1}, []any{q.ID, q.State, q.Attempt, q.Probes})
				}
			},
			gets(returns(7, nil), 7), settledForGood,
		}},
		{"goes on at once, and counts as what it was", webhook, []move{
			lapsed, resends(gets(returns(7, nil), 7)), sweeps(notice.Abandoned), is(idem.Completed),
			func(r *rig) { require.Equal(r.t, []int{0, 0}, []int{r.swept.Skipped, r.swept.Failed}) },
		}},
		{"is not sent again once it was taken over too often", twice, []move{
			resends(), lapsed, sweep, lapsed, sweep, asked(1), is(idem.Unknown),
			func(r *rig) {
				require.Equal(r.t, "parked by a sweep: the last of 2 attempts left no outcome", r.record().Failure.Message)
			},
		}},
		// The stricter declaration holds: a claim of a repeatable operation is parked once the
		// operation is repeatable no more.
		{"is parked once the operation is repeatable no more", webhook, []move{
			lapsed, knows(func(o *reconcile.Operation) { o.Operation = strict }), asks(reconcile.CompletedWith(3)),
			sweeps(notice.SweepParked, notice.Resolved), func(r *rig) { r.key = strict.Key("acme", "r-1") }, gets(mustNotRun, 3),
		}},
		// An interrupted step is closed by the next attempt, for which the sweep may ask.
		{"has an interrupted step", webhook, []move{killedIn("pay"), sweeps(notice.Abandoned)}},
		{"has an interrupted step, and is sent again", webhook, []move{
			killedIn("pay"), resends(), sweeps(notice.Abandoned),
			func(r *rig) { require.True(r.t, r.questions[0].Steps[0].Begun) },
		}},
	}...)

	// A call goes on with it even once it is escalated.
	for name, tc := range map[string]struct {
		leave move
		state idem.State
	}{
		"a claim": {func(r *rig) {
			_ = r.deliver(r.key, func(ctx context.Context, _ int) (int, error) {
				r.done(ctx, "book", nothing)
				r.Crash()
				return 0, nil
			})
		}, idem.InProgress},
		"released": {fails(stepThen(errPlain), errPlain), idem.Released},
	} {
		play(t, story{name + ", is escalated", webhook, []move{
			tc.leave, lapse, is(tc.state), sweeps(notice.Abandoned), wait(escalateAfter), sweeps(notice.Escalated),
			func(r *rig) {
				require.Equal(r.t, tc.state, r.escalations[0].State)
				require.Zero(r.t, r.escalations[0].Probes)
			},
			changed(wasEscalated), gets(stepThen(nil), 0), is(idem.Completed),
		}})
	}

	// The next call knows how to close the step, and a sweep leaves it the claim: the ready one, which
	// knows no operation, and one whose provider does not answer.
	for name, known := range map[string]move{
		"it does not know the operation": times(0), "there is no probe": knows(func(*reconcile.Operation) {}),
		"the provider does not know yet": asks(stillUnknown), "it cannot be known": asks(cannotBeKnown),
	} {
		goesOn := []move{is(idem.InProgress), gets(shop, 7), did(orderEffects{asked: 1, shipped: 1}), is(idem.Completed),
			settledForGood}
		first := []move{interrupted, known, sweep, func(r *rig) { require.Len(r.t, r.swept.Actions, 1) }}
		play(t, story{"no sweep takes the question from Interrupted: " + name, order, append(first, goesOn...)},
			story{"nor a day later: " + name, order, append(append(first, times(144, sweep, wait(10*time.Minute)), escalated(1),
				func(r *rig) { require.Equal(r.t, "charge", r.escalations[0].Steps[0].Name) }), goesOn...)})
	}

	// The provider is asked while a call may take the claim over. The first one counts: the call has
	// closed the step, and an answer about the attempt before it changes nothing.
	for name, answer := range map[string]reconcile.Answer{
		"it took effect": continues(reconcile.CompletedWith(8)), "it had no effect": continues(notExecuted),
		"it has failed": hasFailed,
	} {
		play(t, story{"a call takes the claim over while the provider is asked: " + name, order, []move{
			interrupted, asks(answer, gets(shop, 7)), sweeps(), did(orderEffects{asked: 1, shipped: 1}),
			is(idem.Completed), changed(),
		}})
	}
}

// A write that was refused is tried again about the record as it is then, with an entry of its
// own: the store may delete that of the refused one late.
func TestASecondTryOfAChangeHasAnEntryOfItsOwn(t *testing.T) {
	r := newRig(t, refund)
	store := &entries{Store: r.Faults}
	r.Reconciler = r.over(store)
	r.play(lapsed, asks(cannotBeKnown), whileSending(refers("ch_1")), sweeps(notice.SweepParked, notice.Escalated))
	require.Len(r.t, store.of, 2)
	require.NotEqual(r.t, store.of[0], store.of[1])
}

// entries are those of postponements, refused ones too.
type entries struct {
	reconcile.Store
	of []string
}

func (e *entries) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	if p.Audit != nil {
		e.of = append(e.of, p.Audit.Entry)
	}
	return e.Store.Postpone(ctx, now, p)
}
