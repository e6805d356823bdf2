package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// record looks at what the index named as due, which may be so no longer.
func (s *sweep) record(id string) {
	var err error
	for range 2 {
		if s.over(0) {
			s.countLeft()
			return
		}
		var rec *idem.Record
		ctx, cancel := s.share(s.ctx)
		rec, err = s.r.store.Get(ctx, id)
		cancel()
		switch {
		case errors.Is(err, protocol.ErrRecordUnreadable):
			s.did(notice.Unreadable, &idem.Record{ID: id}, "", "the record cannot be read", err)
			return
		case err != nil:
			s.did(notice.SweepFailed, &idem.Record{ID: id}, "", err.Error(), err)
			return
		case rec == nil || rec.Due.IsZero() || rec.Due.After(s.r.now()):
			s.count(func(r *Report) { r.Skipped++ })
			return
		}
		// One record must not end the sweep of all.
		err = guarded(func() error { return s.handle(rec) })
		if err == nil {
			return
		}
		if !isAnswer(err) {
			s.did(notice.SweepFailed, rec, rec.State, err.Error(), err)
			return
		}
		// Another write was faster: look once more.
	}
	s.count(func(r *Report) { r.Skipped++ })
}

func (s *sweep) countLeft() { s.count(func(r *Report) { r.Left++ }) }

// sameInput stands for the record's fingerprint, which may be of a newer version: a sweep
// has no input that could be another one.
var sameInput = protocol.FingerprintOf(protocol.FingerprintVersion, [32]byte{})

// handle does about the record what the next call would do, without running the handler. The
// error is the store's.
func (s *sweep) handle(rec *idem.Record) error {
	op := s.operation(rec)
	ev := s.event(rec, op)
	rec = renewed(rec)
	compared := *rec
	compared.Fingerprint = sameInput
	switch protocol.Next(&compared, ev, s.r.now()).Do {
	case protocol.DoInFlight:
		_, err := s.postpone(rec, protocol.Postponement{Due: rec.LeaseUntil.Add(s.r.opts.Margin), Runs: true,
			Probes: rec.Probes, EscalatedAt: rec.EscalatedAt})
		if err == nil {
			s.did(notice.SweepPostponed, rec, rec.State, "its lease was renewed", nil)
		}
		return err
	case protocol.DoUnknown:
		return s.ask(rec, op)
	case protocol.DoPark:
		return s.park(rec, op)
	case protocol.DoTakeOver:
		if rec.State == idem.Pending && !rec.Uncertain {
			return s.handlePending(rec)
		}
		return s.handleAbandoned(rec, op)
	case protocol.DoUnreadable:
		s.did(notice.Unreadable, rec, rec.State, "its state is of a newer version",
			fmt.Errorf("%w: record %q: it is %q, a state of a newer version", protocol.ErrRecordUnreadable, rec.ID, rec.State))
		return nil
	}
	s.count(func(r *Report) { r.Skipped++ })
	return nil
}

// event is the call that would be made with the record's input: a worker's for what was
// accepted for later.
func (s *sweep) event(rec *idem.Record, op Operation) protocol.Event {
	kind := protocol.EventClaim
	if rec.Accepted() {
		kind = protocol.EventWork
	}
	return protocol.Event{
		Kind: kind, Fingerprint: sameInput, Repeat: op.Operation.Repeat,
		MaxAttempts: op.Operation.MaxAttempts, Margin: s.r.opts.Margin,
	}
}

// park makes an open question of what an attempt has left behind, and asks it at once.
func (s *sweep) park(rec *idem.Record, op Operation) error {
	why := "its lease is over and it left no outcome"
	if rec.State == idem.Released {
		why = "it was released and may have taken effect, and the operation is not repeatable"
	}
	why += s.attemptsOver(rec, op)
	// The owner stays: its late outcome still counts.
	now, lapse := s.r.now(), protocol.Lapse(rec, s.event(rec, op), newID(), "a sweep")
	lapse.Audit = s.r.audit(rec, s.by(why), protocol.ChangeParked, idem.Unknown, "")
	if !s.opts.DryRun {
		ctx, cancel := s.share(s.ctx)
		defer cancel()
		// Whichever try lands, the question is open since now, by which its message is known.
		if err := again(ctx, func() error { return s.r.store.Settle(ctx, now, lapse) }); err != nil {
			return err
		}
	}
	parked, err := lapse.Apply(rec, now)
	if err != nil {
		return err
	}
	s.did(notice.SweepParked, rec, parked.State, why, nil)
	return s.ask(parked, s.operation(parked))
}

// attemptsOver says of a repeatable operation that is parked that it has had its attempts.
func (s *sweep) attemptsOver(rec *idem.Record, op Operation) string {
	if !rec.Exhausted(s.event(rec, op)) {
		return ""
	}
	return fmt.Sprintf("; it has had its %d attempts", op.Operation.MaxAttempts)
}

// handleAbandoned is about work that the next call would go on with. In a pause no call does. The time of a pause
// does not count, nor the time that callers need afterwards to come again.
func (s *sweep) handleAbandoned(rec *idem.Record, op Operation) error {
	if rec.State == idem.InProgress && !rec.EscalatedAt.IsZero() {
		now := s.r.now()
		return s.postponeAndReport(rec, notice.SweepPostponed, now.Add(untilLook(now.Sub(rec.EscalatedAt))), rec.Probes,
			"it is escalated", nil)
	}
	next, recovered, err := s.paused(rec)
	if err != nil {
		return err
	}
	op.EscalateAfter = max(op.EscalateAfter, latest(next, recovered).Sub(since(rec)))
	switch {
	case op.OnAbandoned == nil && op.Probe != nil && rec.State == idem.InProgress && rec.Interrupted():
		// What a call may take over is not parked: its handler may know how to close the step. The
		// provider may be faster, also in a pause.
		return s.ask(rec, op)
	case !next.IsZero():
		return s.postponeAndReport(rec, notice.SweepPostponed, next, rec.Probes, "its operation is paused", nil)
	}
	why := "a call with its key would go on with it"
	if op.OnAbandoned == nil || s.opts.DryRun {
		return s.postponeOrEscalate(rec, op, notice.Abandoned, op.EscalateAfter, rec.Probes, why, nil)
	}
	if poison(rec, op) {
		return s.escalate(rec, "the latest sweep that called OnAbandoned recorded nothing of it", nil)
	}
	if s.over(s.asking) {
		s.countLeft()
		return nil
	}
	held, err := s.postponeForCall(rec)
	if err != nil {
		return err
	}
	if next, _, err = s.paused(held); err != nil { // the write may have taken long
		_, _ = s.postponeUntil(held, s.r.now().Add(backoff(1)), rec.Probes) // it was not called
		return err
	}
	if !next.IsZero() {
		return s.postponeAndReport(held, notice.SweepPostponed, next, rec.Probes, "its operation is paused", nil)
	}
	_, err = bounded(s.ctx, s.asking, func(ctx context.Context) (Answer, error) {
		return Answer{}, op.OnAbandoned(ctx, s.r.question(held))
	})
	why = "OnAbandoned was called"
	if err != nil {
		why = "OnAbandoned failed"
	}
	var moved error
	if err == nil && held.Probes == 1 { // however old it is: this may help
		moved = s.postponeAndReport(held, notice.Abandoned, s.r.now().Add(backoff(1)), 1, why, nil)
	} else {
		moved = s.postponeOrEscalate(held, op, notice.Abandoned, backoff(held.Probes), held.Probes, why, err)
	}
	if isAnswer(moved) { // the work goes on already
		s.did(notice.Abandoned, held, held.State, why, err)
		return nil
	}
	return moved
}

func (s *sweep) by(why string) Change { return Change{Actor: s.opts.Who, Reason: shortened(why)} }

// shortened is the text at a length that a record of a change and a message can have.
func shortened(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxText)], "")
}

// handlePending is about accepted work whose time to begin is over. The time of a pause does not count,
// nor the time that its message needs afterwards to come again.
func (s *sweep) handlePending(rec *idem.Record) error {
	next, recovered, err := s.paused(rec)
	if err != nil {
		return err
	}
	if until := latest(next, recovered); until.After(s.r.now()) {
		return s.postponeAndReport(rec, notice.SweepPostponed, until, rec.Probes, "its operation is or was paused", nil)
	}
	return s.handleNotStarted(rec)
}

// paused says when to look again at a record whose operation is paused, zero if it is not, and when what a pause
// since the record waits has turned away has come again.
func (s *sweep) paused(rec *idem.Record) (next, recovered time.Time, err error) {
	pauses, err := s.readPauses()
	now := s.r.now()
	tenant, operation := namesOf(rec.ID)
	for _, p := range pauses {
		switch {
		case !p.Covers(cmp.Or(tenant, idem.SingleTenant), operation):
		case !p.Ended(now):
			next = latest(next, now.Add(p.RetryAfter(now)))
		case p.Until.After(since(rec)):
			recovered = latest(recovered, p.Recovers())
		}
	}
	return next, recovered, err
}

// handleNotStarted ends work that was accepted for later and that no worker has started in time.
func (s *sweep) handleNotStarted(rec *idem.Record) error {
	why := "no worker has claimed it in the time that its acceptance gave it"
	res := Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "idem: the request was accepted, and no worker " +
		"has come for it in time; nothing was executed", Code: protocol.CodeNotStarted}}
	if !s.opts.DryRun {
		ctx, cancel := s.share(s.ctx)
		defer cancel()
		if err := s.r.resolve(ctx, rec, res, s.by(why)); err != nil {
			return err
		}
	}
	s.did(notice.NotStarted, rec, idem.Failed, why, nil)
	return nil
}
