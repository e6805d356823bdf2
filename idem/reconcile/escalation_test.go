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
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// slow takes a while for each call, as a network does.
func slow(ctx context.Context, c *idemtest.Call) error {
	time.Sleep(7 * time.Millisecond)
	err := c.Do(ctx)
	time.Sleep(7 * time.Millisecond)
	return err
}

// A sweep that dies after it has told operators, over a store that takes its time, or that
// loses the reply to what parks the claim: the message that comes again is the same one.
func TestTheMessageThatComesAgainIsTheSame(t *testing.T) {
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
		inBubble(t, name, func(t *testing.T) {
			r, key := newRig(t), refund.Key("acme", "r-1")
			r.killed(key)
			time.Sleep(time.Minute)
			r.Faults.Next(idemtest.Settle, settle)
			var sent []string
			dead := true
			s := r.sweeper(reconcile.SweepOptions{
				Operations: []reconcile.Operation{{Operation: refund, Probe: says(reconcile.CannotBeKnown("gone"))}},
				Escalate: func(_ context.Context, g reconcile.Escalation) error {
					sent = append(sent, g.Message)
					if dead {
						r.Faults.Always(idemtest.LoseRequest)
					}
					return nil
				},
			})
			r.sweep(s)
			r.Faults.Heal()
			dead = false
			time.Sleep(5 * time.Minute)
			require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
			require.Len(t, sent, 2)
			require.Equal(t, sent[0], sent[1])
		})
	}
}

// The parked attempt goes on, renews its lease and says what the provider calls the
// effect while operators are told: they are told once.
func TestAnAttemptThatGoesOnIsEscalatedOnce(t *testing.T) {
	r, key := lapsed(t, refund)
	rec := r.Record(key)
	sent := 0
	s := r.sweeper(reconcile.SweepOptions{
		Operations: []reconcile.Operation{{Operation: refund, Probe: says(reconcile.CannotBeKnown("gone"))}},
		Escalate: func(ctx context.Context, _ reconcile.Escalation) error {
			sent++
			now := r.Clock.Now()
			return errors.Join(
				r.renew(rec, time.Minute),
				r.Store.RecordReference(ctx, now, protocol.ReferenceWrite{ID: rec.ID, Owner: rec.Owner, Write: "ref", Ref: "ch_1"}))
		},
	})
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	r.swept(s)
	require.Equal(t, 1, sent)
	require.Equal(t, []protocol.Change{protocol.ChangeParked, protocol.ChangeEscalated}, r.changes(key))
	require.False(t, r.Record(key).EscalatedAt.IsZero())
}

// A write that was refused is tried again about the record as it is then, with an entry of its
// own: the store may delete that of the refused one late.
func TestASecondTryOfAChangeHasAnEntryOfItsOwn(t *testing.T) {
	r, key := lapsed(t, refund)
	rec := r.Record(key)
	store := &entries{Store: r.Faults}
	rc := r.over(store)
	s, err := reconcile.NewSweeper(rc, &reconcile.SweepOptions{
		Operations: []reconcile.Operation{{Operation: refund, Probe: says(reconcile.CannotBeKnown("gone"))}},
		Escalate: func(ctx context.Context, _ reconcile.Escalation) error {
			return r.Store.RecordReference(ctx, r.Clock.Now(),
				protocol.ReferenceWrite{ID: rec.ID, Owner: rec.Owner, Write: "ref", Ref: "ch_1"})
		},
	})
	require.NoError(t, err)
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Escalated}, r.sweep(s))
	require.Len(t, store.of, 2)
	require.NotEqual(t, store.of[0], store.of[1])
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

// OnAbandoned calls with the key, which goes on with the work at once: that is told, and
// counts as what it was.
func TestAbandonedWorkThatGoesOnAtOnceIsReported(t *testing.T) {
	r, key := lapsed(t, webhook)
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: webhook,
		OnAbandoned: func(context.Context, reconcile.Question) error {
			_, err := r.call(key, func(context.Context, int) (int, error) { return 7, nil })
			return err
		}}}})
	report := r.report(s)
	require.Equal(t, idem.Completed, r.Record(key).State)
	require.Equal(t, []int{1, 0, 0}, []int{report.Abandoned, report.Skipped, report.Failed})
	require.Len(t, r.notices, 1)
}

// A short time for providers is none for the store.
func TestAShortProbeLeavesTheStoreItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, key := newRig(t), refund.Key("acme", "r-1")
		r.killed(key)
		time.Sleep(time.Minute)
		r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			select {
			case <-time.After(200 * time.Millisecond):
			case <-ctx.Done():
				return c.Lost()
			}
			return c.Do(ctx)
		})
		s := r.sweeper(reconcile.SweepOptions{ProbeTimeout: 100 * time.Millisecond,
			Operations: []reconcile.Operation{{Operation: refund, Probe: says(reconcile.CompletedWith(7))}}})
		require.Equal(t, []notice.Kind{notice.SweepParked, notice.Resolved}, kinds(r.within(50*time.Second, s)))
	})
}

// A parked attempt that goes on renews its lease while the provider is asked. The question
// has its age all the same, whatever the provider says.
func TestAnAttemptThatGoesOnKeepsNoQuestionFromBeingEscalated(t *testing.T) {
	for name, answer := range map[string]reconcile.Answer{
		"still unknown": reconcile.StillUnknown(0), "not executed": reconcile.NotExecuted(),
	} {
		t.Run(name, func(t *testing.T) {
			r, key := lapsed(t, refund)
			rec := r.Record(key)
			beat := func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				return answer, r.renew(rec, idem.DefaultLease)
			}
			s := r.sweeper(reconcile.SweepOptions{
				Operations: []reconcile.Operation{{Operation: refund, Probe: beat, EscalateAfter: time.Hour}}})
			for range 200 {
				r.sweep(s)
				r.Clock.Advance(20 * time.Second)
				_, err := beat(t.Context(), reconcile.Question{})
				require.NoError(t, err)
			}
			require.Len(t, r.escalations, 1)
		})
	}
}

// The charge took effect, somebody has said so, and the client never calls again. What operators are
// told to do about it can be done.
func TestAnOperatorCanEndWorkThatNoCallContinues(t *testing.T) {
	r, key := interrupted(t)
	r.resolve(key, charged(reconcile.CompletedWith(7)))
	s := r.sweeper(reconcile.SweepOptions{})
	r.Clock.Advance(time.Hour)
	require.Equal(t, []notice.Kind{notice.Escalated}, r.sweep(s))
	require.Equal(t, idem.Released, r.escalations[0].State)
	require.Empty(t, r.escalations[0].Steps, "nothing is left to ask about")
	for _, way := range []string{"have the client send it again", "the service's own data", "idemctl resolve --again"} {
		require.Contains(t, r.escalations[0].Help, way)
	}
	r.replace(key, reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "returned by hand"},
		CompensatedManually: true})
	require.Equal(t, idem.Failed, r.Record(key).State)
	require.Zero(t, r.Record(key).Due)
}

// swept sweeps three times within minutes.
func (r *rig) swept(s *reconcile.Sweeper) {
	r.t.Helper()
	for range 3 {
		r.sweep(s)
		r.Clock.Advance(2 * time.Minute)
	}
}

// aged sweeps until the question is long past the age at which operators get it.
func (r *rig) aged(s *reconcile.Sweeper) {
	r.t.Helper()
	r.sweeps(s, 4, 5*time.Hour)
	require.Len(r.t, r.escalations, 1)
}

// stepThenPlain records a step and ends with an error that leaves no outcome.
func stepThenPlain(ctx context.Context, n int) (int, error) {
	if _, err := idem.Step(ctx, "ship", func(context.Context) (int, error) { return 1, nil }, nil); err != nil {
		return 0, err
	}
	return 0, errPlain
}

// Operators say that it had no effect. The steps are still to be gone on with: that is a new
// question, which gets its time and a message of its own.
func TestAnAnsweredQuestionIsNotEscalatedAgain(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	sent := 0
	s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{
		Operation: refund, OnAbandoned: func(context.Context, reconcile.Question) error { sent++; return nil },
	}}})
	r.fails(key, stepThenPlain, errPlain)
	require.Equal(t, idem.Unknown, r.Record(key).State)
	r.aged(s)
	r.resolve(key, reconcile.Resolution{To: idem.Released})
	r.swept(s)
	require.Len(t, r.escalations, 1, "they have answered minutes ago")
	require.Positive(t, sent)
	r.sweeps(s, 8, 5*time.Hour)
	require.Len(t, r.escalations, 2, "it is abandoned for good")
	require.NotEqual(t, r.escalations[0].Message, r.escalations[1].Message)
}

// The attempt that a sweep has parked says by itself that its outcome is unknown, long after operators
// got the question.
func TestALateEndDoesNotEscalateTheQuestionAgain(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	s := r.sweeper(reconcile.SweepOptions{})
	r.fails(key, func(context.Context, int) (int, error) {
		r.aged(s)
		return 0, errPlain
	}, nil)
	require.NotNil(t, r.Record(key).Failure, "the end was recorded")
	r.swept(s)
	require.Len(t, r.escalations, 1)
	require.False(t, r.Record(key).EscalatedAt.IsZero())
}

// A call goes on with the work, but its claim is lost on the way and is taken back.
func TestALostClaimDoesNotEscalateTheQuestionAgain(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "r-1")
	s := r.sweeper(reconcile.SweepOptions{})
	r.fails(key, stepThenPlain, errPlain)
	r.aged(s)
	r.Faults.Always(idemtest.LoseRequest, idemtest.Acquire)
	r.fails(key, stepThenPlain, nil)
	r.Faults.Heal()
	r.swept(s)
	require.Len(t, r.escalations, 1)
}

// The store takes all but the answer. The question waits and ages like any other.
func TestAnAnswerThatTheStoreNeverTakesIsEscalated(t *testing.T) {
	r, _ := lapsed(t, refund)
	s := r.asking(says(reconcile.CompletedWithoutResult()))
	require.Equal(t, []notice.Kind{notice.SweepParked, notice.Probed}, r.sweep(r.asking(says(reconcile.StillUnknown(0)))))
	r.Faults.Always(idemtest.LoseRequest, idemtest.Settle)
	r.sweeps(s, 4, 5*time.Hour)
	require.Len(t, r.escalations, 1)
	require.Contains(t, r.escalations[0].Reason, "could not be recorded")
}

// A fault of the store passes, and is none of the answer, whatever is to be corrected for it.
func TestAnAnswerThatTheStoreRefusesForATimeIsRecorded(t *testing.T) {
	r, key := lapsed(t, refund)
	r.sweep(r.asking(says(reconcile.StillUnknown(0))))
	s := r.asking(says(reconcile.CompletedWithoutResult()))
	r.Faults.Always(func(context.Context, *idemtest.Call) error {
		return &idem.StoreError{Op: "Settle", Ambiguous: true,
			Err: &idem.ConfigError{What: "dynamostore: table", Problem: "cannot be reached with these credentials"}}
	}, idemtest.Settle)
	r.Clock.Advance(time.Hour)
	require.Equal(t, []notice.Kind{notice.Probed}, r.sweep(s))
	r.Faults.Heal()
	r.Clock.Advance(time.Hour)
	require.Equal(t, []notice.Kind{notice.Resolved}, r.sweep(s))
	require.Empty(t, r.escalations)
	require.Equal(t, idem.Completed, r.Record(key).State)
}

// What operators are told is bounded, whatever a probe says.
func TestALongReasonIsShortened(t *testing.T) {
	r, _ := lapsed(t, refund)
	r.sweep(r.asking(says(reconcile.CannotBeKnown(strings.Repeat("ü", 1<<20)))))
	require.Len(t, r.escalations, 1)
	require.LessOrEqual(t, len(r.escalations[0].Reason), 4<<10)
}

// An escalation has the type of the last error, the types and places of a redacted one, or the line of a
// panic, and no text of an error, which may be confidential.
func TestAnEscalationSaysOfWhatKindTheLastErrorWas(t *testing.T) {
	fails := func(err error) func() error { return func() error { return fmt.Errorf("of card 4711: %w", err) } }
	_, encoding := reconcile.Encode(unencodable{})
	const unencoded = `(idem: encoding reconcile_test.unencodable: an error of type *errors.errorString)`
	for want, probe := range map[string]func() error{
		`(*net.OpError)`:                        fails(&net.OpError{Op: "dial", Err: errPlain}),
		unencoded:                               fails(errors.Join(errPlain, encoding)),
		`an error of type *errors.errorString)`: func() error { panic(errors.New("card 4711")) },
		`a value of type string)`:               func() error { panic("card 4711") },
	} {
		r, _ := lapsed(t, refund)
		s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
			return reconcile.Answer{}, probe()
		})
		for len(r.escalations) == 0 {
			r.sweep(s)
			r.Clock.Advance(time.Hour)
		}
		reason := r.escalations[0].Reason
		panicked := `(\(a function of the sweep panicked at escalation_test\.go:\d+: )?`
		require.Regexp(t, `^the probe gave no answer `+panicked+regexp.QuoteMeta(want)+`$`, reason)
		require.NotContains(t, reason, "4711")
	}
}

// unencodable has no JSON, and says why in words that are confidential.
type unencodable struct{}

func (unencodable) MarshalJSON() ([]byte, error) { return nil, errors.New("card 4711") }

// A claim that any call may take over goes to operators as it is. They read that its handler may run
// again.
func TestAnEscalationSaysThatACallMayTakeTheWorkOver(t *testing.T) {
	r, key := newRig(t), webhook.Key("acme", "event-1")
	r.killedIn(key, "pay")
	s := r.sweeper(reconcile.SweepOptions{})
	r.sweep(s)
	r.Clock.Advance(reconcile.DefaultEscalateAfter)
	r.sweep(s)
	require.Len(t, r.escalations, 1)
	require.Equal(t, idem.InProgress, r.escalations[0].State)
	require.Contains(t, r.escalations[0].Help, "nothing runs again, but for a record in_progress: a call takes it "+
		"over and runs its handler once more, but not the interrupted step")
	ran := 0
	r.fails(key, func(context.Context, int) (int, error) { ran++; return 5, nil }, new(*idem.StepInterruptedError))
	require.Equal(t, 1, ran)
}

// The provider's answer is more than the memory of the sweep, whose process dies of it each
// time, or the work that it sends again is. It is called ever more rarely, and operators get
// the question in the end.
func TestACallThatKillsItsSweepIsEscalated(t *testing.T) {
	for _, op := range []idem.Operation{refund, webhook} {
		synctest.Test(t, func(t *testing.T) {
			r, key := newRig(t), op.Key("acme", "r-1")
			r.killed(key)
			time.Sleep(time.Minute)
			var dead atomic.Bool
			r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
				if dead.Load() {
					return c.Lost()
				}
				return c.Do(ctx)
			})
			calls := 0
			kill := func() { calls++; dead.Store(true) }
			s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: op, EscalateAfter: 2 * time.Hour,
				Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
					kill()
					return reconcile.CompletedWith(7), nil
				},
				OnAbandoned: func(context.Context, reconcile.Question) error { kill(); return nil },
			}}})
			state := r.Record(key).State
			for range 6 * 60 {
				_, _ = s.Sweep(t.Context())
				dead.Store(false)
				time.Sleep(time.Minute)
			}
			require.Len(t, r.escalations, 1)
			require.Contains(t, r.escalations[0].Reason, "recorded no")
			require.Contains(t, r.changes(key), protocol.ChangeEscalated)
			require.Contains(t, []idem.State{idem.Unknown, state}, r.Record(key).State)
			require.Less(t, calls, 15)
		})
	}
}

// The sweep was not run for long: what has become due since then is asked about all the same.
func TestAQuestionThatWaitedForTheSweepIsAsked(t *testing.T) {
	r, key := lapsed(t, refund)
	known := false
	s := r.asking(func(context.Context, reconcile.Question) (reconcile.Answer, error) {
		if !known {
			return reconcile.StillUnknown(0), nil
		}
		return reconcile.CompletedWith(7), nil
	})
	r.sweep(s)
	known = true
	r.Clock.Advance(10 * reconcile.DefaultProbeAge)
	r.sweep(s)
	require.Equal(t, idem.Completed, r.Record(key).State)
	require.Empty(t, r.escalations)
}

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
		"it does not know the operation": {Operation: webhook}, "there is no probe": {Operation: order},
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
// and dies: that is a new question, and they get it once more.
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
