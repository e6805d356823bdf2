package reconcile_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// story is what happens to one record of an operation, move by move, with a clock of its own.
type story struct {
	name  string
	op    idem.Operation
	moves []move
}

// move happens to the record of a story, or checks what has become of it.
type move func(r *rig)

func play(t *testing.T, stories ...story) {
	t.Helper()
	for _, s := range stories {
		inBubble(t, s.name, func(t *testing.T) {
			at := 0
			defer func() {
				if t.Failed() {
					t.Logf("it failed in move %d of %d", at, len(s.moves))
				}
			}()
			r := newRig(t, s.op)
			for _, m := range s.moves {
				at++
				m(r)
			}
		})
	}
}

func (r *rig) play(moves ...move) {
	for _, m := range moves {
		m(r)
	}
}

// Moves that leave a record, and that let time pass.

// killed leaves a claim whose process died outside its steps.
func killed(r *rig) { r.killed(r.key) }

// lapse lets leases end.
func lapse(r *rig) { r.lapse() }

// lapsed is a killed claim whose lease is over.
func lapsed(r *rig) { r.play(killed, lapse) }

// interrupted leaves an order whose process died in its at-most-once charge, after a step that has a
// compensation. Its lease is over.
func interrupted(r *rig) {
	r.crash(r.key, shopping(new(orderEffects), r.Crash))
	r.lapse()
}

// killedIn leaves a claim whose process died in an at-most-once step, and whose lease is over.
func killedIn(step string) move {
	return killedInStep(step, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
}

func killedInStep(step string, conf *idem.StepConfig[int]) move {
	return func(r *rig) {
		r.crash(r.key, func(ctx context.Context, _ int) (int, error) {
			return idem.Step(ctx, step, func(context.Context) (int, error) { r.Crash(); return 7, nil }, conf)
		})
		r.lapse()
	}
}

// ends is a call whose attempt ends with the error.
func ends(err error) move { return func(r *rig) { r.end(r.key, err) } }

func wait(d time.Duration) move { return func(r *rig) { r.Clock.Advance(d) } }

// renews is what the attempt does that has the claim.
func renews(lease time.Duration) move {
	return func(r *rig) {
		rec, now := r.record(), r.Clock.Now()
		require.NoError(r.t, r.Store.Extend(r.t.Context(), now, protocol.Extension{
			ID: rec.ID, Owner: rec.Owner, Write: fmt.Sprint("beat ", now), LeaseUntil: now.Add(lease),
		}))
	}
}

// refers is what the attempt does that has the claim.
func refers(ref string) move {
	return func(r *rig) {
		rec := r.record()
		require.NoError(r.t, r.Store.RecordReference(r.t.Context(), r.Clock.Now(),
			protocol.ReferenceWrite{ID: rec.ID, Owner: rec.Owner, Write: "ref", Ref: ref}))
	}
}

// times makes the moves so often.
func times(n int, moves ...move) move {
	return func(r *rig) {
		for range n {
			r.play(moves...)
		}
	}
}

// Moves of the network.

func next(m idemtest.Method, faults ...idemtest.Fault) move {
	return func(r *rig) { r.Faults.Next(m, faults...) }
}

func always(fault idemtest.Fault, ms ...idemtest.Method) move {
	return func(r *rig) { r.Faults.Always(fault, ms...) }
}

func heal(r *rig) { r.Faults.Heal() }

// before has the moves made before the next call of the method arrives.
func before(m idemtest.Method, moves ...move) move {
	return func(r *rig) {
		r.Faults.Next(m, func(ctx context.Context, c *idemtest.Call) error {
			r.play(moves...)
			return c.Do(ctx)
		})
	}
}

// diesBefore kills the process before the next call of the method arrives.
func diesBefore(m idemtest.Method) move {
	return func(r *rig) {
		r.Faults.Next(m, func(_ context.Context, c *idemtest.Call) error { r.Crash(); return c.Lost() })
	}
}

// diesAfter kills it after that.
func diesAfter(m idemtest.Method) move {
	return func(r *rig) {
		r.Faults.Next(m, func(ctx context.Context, c *idemtest.Call) error { _ = c.Do(ctx); r.Crash(); return c.Lost() })
	}
}

// Moves of clients.

// gets checks that a call returns this.
func gets(w work, want int) move {
	return func(r *rig) {
		out, err := r.call(r.key, w(r))
		require.NoError(r.t, err)
		require.Equal(r.t, want, out)
	}
}

// fails checks that a call returns this error.
func fails(w work, want any) move {
	return func(r *rig) {
		_, err := r.call(r.key, w(r))
		isError(r.t, err, want)
	}
}

// isError checks that the error is this one, has the type that want points to, is this refusal or has
// this text; nil stands for any.
func isError(t *testing.T, err error, want any) {
	t.Helper()
	require.Error(t, err)
	switch want := want.(type) {
	case nil:
	case string:
		require.ErrorContains(t, err, want)
	case reconcile.NotUndoneError:
		var refused *reconcile.NotUndoneError
		require.ErrorAs(t, err, &refused)
		require.Equal(t, want, *refused)
	case error:
		require.ErrorIs(t, err, want)
	default:
		require.ErrorAs(t, err, want)
	}
}

// Moves of operators.

// look has alice's next change be about the record as it is now.
func look(r *rig) { r.looked = r.record().Write }

// seen is alice after she has looked at the record.
func (r *rig) seen() reconcile.Change {
	look(r)
	return r.by()
}

// by is alice, who may have looked.
func (r *rig) by() reconcile.Change {
	by := alice
	by.IfWrite = r.looked
	return by
}

// resolve is a resolution by alice. One that replaces another one is about the record as it is, or as
// she has seen it.
func (r *rig) resolve(res reconcile.Resolution) error {
	if res.Replace && r.looked == "" {
		look(r)
	}
	return r.Resolve(r.t.Context(), r.key.ID(), res, r.by())
}

// resolves checks that the resolution is taken.
func resolves(res reconcile.Resolution) move {
	return func(r *rig) {
		require.NoError(r.t, r.resolve(res))
		r.looked = ""
	}
}

// refuses checks that the resolution is refused with the error, and changes nothing.
func refuses(res reconcile.Resolution, want any) move {
	return func(r *rig) {
		rec, history := r.record(), r.history(r.key)
		isError(r.t, r.resolve(res), want)
		require.Equal(r.t, rec, r.record())
		require.Equal(r.t, history, r.history(r.key))
	}
}

// extends keeps the record that has ended until the end of a dispute.
func extends(r *rig) {
	require.NoError(r.t, r.Extend(r.t.Context(), r.key.ID(), r.Clock.Now().Add(dispute), alice))
}

const dispute = 90 * 24 * time.Hour

// Moves of sweeps.

// knows has sweeps know the operation so; without it they do not know it.
func knows(change func(o *reconcile.Operation)) move {
	return func(r *rig) {
		change(&r.operation)
		r.options.Operations, r.sweeping = []reconcile.Operation{r.operation}, nil
	}
}

// asking has sweeps ask the provider, for the n-th time.
func asking(ask func(r *rig, n int) (reconcile.Answer, error)) move {
	return func(r *rig) {
		r.play(knows(func(o *reconcile.Operation) {
			o.Probe = func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
				r.questions = append(r.questions, q)
				return ask(r, len(r.questions))
			}
		}))
	}
}

// asks has sweeps ask the provider, who answers so after the moves.
func asks(answer reconcile.Answer, moves ...move) move {
	return asking(func(r *rig, _ int) (reconcile.Answer, error) { r.play(moves...); return answer, nil })
}

// resends has sweeps make the moves about abandoned work.
func resends(moves ...move) move {
	return func(r *rig) {
		r.play(knows(func(o *reconcile.Operation) {
			o.OnAbandoned = func(_ context.Context, q reconcile.Question) error {
				r.questions = append(r.questions, q)
				r.play(moves...)
				return r.refuse
			}
		}))
	}
}

// sweep makes one sweep.
func sweep(r *rig) {
	if r.sweeping == nil {
		r.sweeping = r.sweeper(r.options)
	}
	r.swept = r.report(r.sweeping)
}

// sweeps makes one sweep, which does this.
func sweeps(want ...notice.Kind) move {
	return func(r *rig) {
		sweep(r)
		require.Equal(r.t, want, kinds(r.swept))
	}
}

// aged sweeps until a question is long past the age at which operators get it.
func aged(r *rig) { r.play(times(4, wait(5*time.Hour), sweep), escalated(1)) }

// minutes sweeps three times within minutes.
func minutes(r *rig) { r.play(times(3, sweep, wait(2*time.Minute))) }

// refusing has operators, or the queue for abandoned work, refuse what they are sent.
func refusing(err error) move { return func(r *rig) { r.refuse = err } }

// Checks.

func is(want idem.State) move { return func(r *rig) { require.Equal(r.t, want, r.record().State) } }

// did checks what the handlers did.
func did(want orderEffects) move { return func(r *rig) { require.Equal(r.t, want, r.did) } }

// changed checks which changes the history has.
func changed(want ...protocol.Change) move {
	return func(r *rig) { require.Equal(r.t, want, r.changes(r.key)) }
}

// last checks the steps of the latest change.
func last(want map[string]protocol.StepVerdict) move {
	return func(r *rig) { require.Equal(r.t, want, r.last().Steps) }
}

func (r *rig) last() protocol.Audit {
	all := r.history(r.key)
	require.NotEmpty(r.t, all)
	return all[len(all)-1]
}

// escalated checks how many questions operators got, and the last one's reason.
func escalated(n int, reasons ...string) move {
	return func(r *rig) {
		require.Len(r.t, r.escalations, n)
		for _, reason := range reasons {
			require.Contains(r.t, r.escalations[n-1].Reason, reason)
		}
	}
}

// asked checks how often the provider was asked, or abandoned work was sent again.
func asked(n int) move { return func(r *rig) { require.Len(r.t, r.questions, n) } }

// explains checks that the explanation says this.
func explains(text string) move {
	return func(r *rig) { require.Contains(r.t, r.explain(r.key).Summary, text) }
}

// Answers and resolutions.

var (
	declined = idem.Failure{Message: "declined"}

	tookEffect    = reconcile.CompletedWith(7)
	withoutResult = reconcile.CompletedWithoutResult()
	notExecuted   = reconcile.NotExecuted()
	hasFailed     = reconcile.FailedWith(declined)
	stillUnknown  = reconcile.StillUnknown(0)
	cannotBeKnown = reconcile.CannotBeKnown("the books are lost")

	toReleased  = reconcile.Resolution{To: idem.Released}
	toCompleted = reconcile.Resolution{To: idem.Completed} // its result is not known
	toFailed    = reconcile.Resolution{To: idem.Failed, Failure: &declined}
	// failedByHand says that what the steps did was undone by hand.
	failedByHand = reconcile.Resolution{To: idem.Failed, Failure: &declined, CompensatedManually: true}
)

// to is a resolution to completed with the result.
func to(out int) reconcile.Resolution {
	result, err := reconcile.Encode(out)
	if err != nil {
		panic(err)
	}
	return reconcile.Resolution{To: idem.Completed, Result: &result}
}

// refusal is a resolution to completed with the response of a refusal.
func refusal() reconcile.Resolution {
	res := to(402)
	res.Result.Failed = true
	return res
}

// settled releases a record, with a word about one of its steps.
func settled(step string, a reconcile.Answer) reconcile.Resolution {
	return reconcile.Resolution{To: idem.Released, Steps: map[string]reconcile.Answer{step: a}}
}

// charged releases an order, with a word about its charge.
func charged(a reconcile.Answer) reconcile.Resolution { return settled("charge", a) }

// continues is the answer of a probe that says so of the charge.
func continues(a reconcile.Answer) reconcile.Answer { return reconcile.ContinueWith(charged(a).Steps) }

// again is the resolution over another one.
func again(res reconcile.Resolution) reconcile.Resolution {
	res.Replace = true
	return res
}

// unpaid is the refusal of a failure over steps that have not been undone.
func unpaid(steps ...string) reconcile.NotUndoneError {
	return reconcile.NotUndoneError{To: idem.Failed, Steps: steps}
}

// Handlers.

type handler = func(context.Context, int) (int, error)

// work is a handler of a story.
type work = func(r *rig) handler

// mustNotRun is work that is done already.
func mustNotRun(*rig) handler {
	return func(context.Context, int) (int, error) { panic("it must not run again") }
}

// returns ends so.
func returns(out int, err error) work {
	return func(*rig) handler { return func(context.Context, int) (int, error) { return out, err } }
}

// orderEffects counts what an order did.
type orderEffects struct{ reserved, charged, shipped, returned, asked int }

// shopping reserves, charges at most once, and ships; charging ends in died.
func shopping(s *orderEffects, died func()) handler {
	return func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { s.reserved++; return 1, nil },
			&idem.StepConfig[int]{Compensate: func(context.Context, int) error { s.returned++; return nil }})
		if err != nil {
			return 0, err
		}
		id, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { s.charged++; died(); return 7, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately,
				Interrupted: func(context.Context, time.Time) (int, error) { s.asked++; return 7, nil }})
		if err != nil {
			return 0, idem.PermanentStep(err)
		}
		return id, s.ship(ctx)
	}
}

func (s *orderEffects) ship(ctx context.Context) error {
	return idem.StepEffect(ctx, "ship", func(context.Context) error { s.shipped++; return nil }, nil)
}

// shop is such an order.
func shop(r *rig) handler { return shopping(&r.did, func() {}) }

// pay is an order without a reservation.
func pay(r *rig) handler { return paying(&idem.StepConfig[int]{Semantics: idem.AtMostOnce})(r) }

func paying(conf *idem.StepConfig[int]) work {
	return func(r *rig) handler {
		return func(ctx context.Context, _ int) (int, error) {
			out, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { r.did.charged++; return 7, nil }, conf)
			if err != nil {
				return 0, idem.PermanentStep(err)
			}
			return out, r.did.ship(ctx)
		}
	}
}

// charge is a handler with the charge as its only step, whose result has the type T.
func charge[T any](result T) work { return chargeWith(result, false, nil) }

// refundable is a charge with a compensation.
func refundable[T any](result T) work { return chargeWith(result, true, nil) }

// chargeWith is a charge whose handler ends with the error.
func chargeWith[T any](result T, compensates bool, end error) work {
	return func(r *rig) handler {
		conf := &idem.StepConfig[T]{Semantics: idem.AtMostOnce}
		if compensates {
			conf.Compensate = func(context.Context, T) error { r.did.returned++; return nil }
		}
		return func(ctx context.Context, _ int) (int, error) {
			_, err := idem.Step(ctx, "charge", func(context.Context) (T, error) { r.did.charged++; return result, nil }, conf)
			switch {
			case err != nil:
				return 0, err
			case end != nil:
				return 0, end
			}
			r.did.shipped++ // nothing of it is recorded
			return r.did.shipped, nil
		}
	}
}

// done is a step that is done, and how it is undone.
func (r *rig) done(ctx context.Context, name string, undo func() error) {
	r.t.Helper()
	_, err := idem.Step(ctx, name, func(context.Context) (string, error) { return name + " 7", nil },
		&idem.StepConfig[string]{Compensate: func(context.Context, string) error { return undo() }})
	require.NoError(r.t, err)
}

func nothing() error { return nil }

// stepThen does a step, and ends with the error.
func stepThen(end error) work {
	return func(r *rig) handler {
		return func(ctx context.Context, _ int) (int, error) {
			r.done(ctx, "book", nothing)
			return 0, end
		}
	}
}
