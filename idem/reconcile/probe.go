package reconcile

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// ask asks the provider about an unknown outcome, and does what the answer says.
func (s *sweep) ask(rec *idem.Record, op Operation) error {
	switch {
	case len(unread(rec)) > 0:
		// The provider would give the same answer again.
		return s.escalate(rec, "the handler cannot go on with what was said of "+strings.Join(unread(rec), ", "), nil)
	case op.Probe == nil:
		return s.postponeOrEscalate(rec, op, notice.SweepPostponed, op.EscalateAfter, rec.Probes,
			"no provider can be asked about it", nil)
	case s.opts.DryRun:
		s.did(notice.Probed, rec, rec.State, "the provider would be asked", nil)
		return nil
	case poison(rec, op):
		return s.escalate(rec, "the latest sweep that asked the provider recorded no answer", nil)
	case s.over(s.asking):
		s.countLeft()
		return nil
	}
	var held *idem.Record
	var unasked error
	var asked time.Time
	answer, err := s.circuits[op.Provider].Execute(func() (Answer, error) {
		if held, unasked = s.postponeForCall(rec); unasked != nil {
			return Answer{}, errUnasked
		}
		asked = s.r.now()
		a, err := bounded(s.ctx, s.asking, func(ctx context.Context) (Answer, error) {
			return op.Probe(ctx, s.r.question(held))
		})
		if err != nil && s.ctx.Err() != nil {
			unasked = &idem.StoreError{Op: "Probe", Err: s.ctx.Err()}
			return Answer{}, errUnasked // the sweep's end says nothing about the provider
		}
		return a, err
	})
	switch {
	case unasked != nil:
		return unasked
	case held == nil:
		// It is asked once more before it is escalated, unless the provider does not answer for long.
		op.EscalateAfter = twice(op.EscalateAfter)
		return s.postponeOrEscalate(rec, op, notice.SweepPostponed, backoff(max(rec.Probes, 1)), rec.Probes,
			fmt.Sprintf("%s has left %d probes in a row without an answer, and is asked one question in %v",
				op.Provider, openAfter, openFor), err)
	case err != nil:
		return s.postponeOrEscalate(held, op, notice.Probed, backoff(held.Probes), held.Probes,
			"the probe gave no answer", err)
	}
	switch answer.kind {
	case resolved:
		return s.settled(held, op, answer, asked)
	case cannotBeKnown:
		return s.escalate(held, "it cannot be known: "+answer.reason, nil)
	}
	pause := backoff(held.Probes)
	if answer.after > 0 {
		pause = min(answer.after, op.EscalateAfter)
	}
	return s.postponeOrEscalate(held, op, notice.Probed, pause, held.Probes, "the provider does not know yet", nil)
}

func twice(d time.Duration) time.Duration { return 2 * min(d, math.MaxInt64/2) }

// poison reports whether a sweep has called Probe or OnAbandoned at twice the age at which
// the record is escalated, and written nothing of what came of it, since the call has ended its
// process: but for its hold, and for the first success of OnAbandoned, no record is due so late.
func poison(rec *idem.Record, op Operation) bool {
	return rec.Probes > 1 && rec.Due.After(since(rec).Add(twice(op.EscalateAfter)))
}

// settled records the provider's answer. An answer that the record does not
// take is escalated, because the provider would give the same one forever.
func (s *sweep) settled(rec *idem.Record, op Operation, a Answer, asked time.Time) error {
	a.res.Failure = a.res.Failure.OfAttempt()
	why := "the provider says that " + described(a.res)
	err := a.err
	if err == nil {
		err = a.res.check()
	}
	if err == nil && a.res.To == idem.Released && !rec.Lapsed(asked, s.r.opts.Margin) {
		// The attempt may have taken effect while the answer was on its way.
		err = ErrTooEarly
	}
	if err == nil {
		ctx, cancel := s.share(s.ctx)
		defer cancel()
		err = s.r.resolve(ctx, rec, a.res, s.by(why))
	}
	_, mistake := errors.AsType[*idem.ConfigError](err)
	_, large := errors.AsType[*protocol.TooLargeError](err)
	_, ofStore := errors.AsType[*idem.StoreError](err) // whose fault may pass, such as of its credentials
	switch {
	case err == nil:
		s.did(notice.Resolved, rec, a.res.To, why, nil)
		return nil
	case errors.Is(err, ErrTooEarly):
		// Just after that time: on the dot it would be too early again.
		due := rec.LeaseUntil.Add(s.r.opts.Margin + time.Millisecond)
		return s.postponeOrEscalate(rec, op, notice.SweepPostponed, due.Sub(s.r.now()), rec.Probes,
			why+", and its attempt may still be running", nil)
	case errors.Is(err, ErrNotUndone), errors.Is(err, ErrStepsUnnamed):
		return s.escalate(rec, why+": "+err.Error(), err)
	case a.err != nil, mistake && !ofStore, large:
		return s.escalate(rec, why+", with an outcome that cannot be recorded", err)
	case isAnswer(err), s.ctx.Err() != nil:
		return err
	}
	// A store that never takes it must not keep it from operators.
	return s.postponeOrEscalate(rec, op, notice.Probed, backoff(rec.Probes), rec.Probes,
		why+", which could not be recorded", err)
}

func described(res Resolution) string {
	switch {
	case res.To == idem.Completed:
		return "it took effect"
	case res.To == idem.Failed:
		return "it has failed"
	case len(res.Steps) > 0:
		var texts []string
		for _, name := range slices.Sorted(maps.Keys(res.Steps)) {
			texts = append(texts, "step "+name+" "+res.Steps[name].verdict().Text())
		}
		return strings.Join(texts, "; ")
	}
	return "it had no effect"
}

// errUnasked keeps what is not the provider's fault out of its circuit.
var errUnasked = errors.New("reconcile: not asked")

// grace is for a function whose context has ended to return.
const grace = 100 * time.Millisecond

// bounded calls f, and does not wait for it much longer than d.
func bounded(ctx context.Context, d time.Duration, f func(context.Context) (Answer, error)) (Answer, error) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	type reply struct {
		Answer
		err error
	}
	done := make(chan reply, 1)
	go func() {
		var r reply
		r.err = guarded(func() (err error) { r.Answer, err = f(ctx); return err })
		done <- r
	}()
	late := make(chan struct{})
	defer context.AfterFunc(ctx, func() { time.AfterFunc(grace, func() { close(late) }) })()
	select {
	case r := <-done:
		return r.Answer, r.err
	case <-late:
		return Answer{}, fmt.Errorf("no answer: %w", ctx.Err())
	}
}
