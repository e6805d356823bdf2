package reconcile

import (
	"math/rand/v2"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// postponeOrEscalate leaves the record to a later sweep, or escalates it if it has waited long enough.
func (s *sweep) postponeOrEscalate(
	rec *idem.Record, op Operation, kind notice.Kind, pause time.Duration, probes int, why string, cause error,
) error {
	now := s.r.now()
	escalateAt := since(rec).Add(op.EscalateAfter)
	if !now.Before(escalateAt) {
		if rec.State == idem.Unknown {
			why += s.attemptsOver(rec, op)
		}
		return s.escalate(rec, why, cause)
	}
	due := now.Add(pause)
	if due.After(escalateAt) {
		due = escalateAt
	}
	return s.postponeAndReport(rec, kind, due, probes, why, cause)
}

// postponeAndReport leaves the record to a sweep at the due time.
func (s *sweep) postponeAndReport(
	rec *idem.Record, kind notice.Kind, due time.Time, probes int, why string, cause error,
) error {
	if _, err := s.postponeUntil(rec, due, probes); err != nil {
		return err
	}
	s.did(kind, rec, rec.State, why, cause)
	return nil
}

// postponeForCall postpones the record for the time of a call, so that another sweep does not
// make the same one. If the call ends the process, the next sweep leaves the record alone as long
// as it would without an answer.
func (s *sweep) postponeForCall(rec *idem.Record) (*idem.Record, error) {
	probes := rec.Probes + 1
	return s.postponeUntil(rec, s.r.now().Add(max(s.asking+s.r.opts.Margin, backoff(probes))), probes)
}

// postponeUntil writes when the record is due next, and returns it as it is then.
func (s *sweep) postponeUntil(rec *idem.Record, due time.Time, probes int) (*idem.Record, error) {
	return s.postpone(rec, protocol.Postponement{Due: due, Probes: probes, EscalatedAt: rec.EscalatedAt})
}

// postpone writes a postponement of the record as it was read, and the same again if its reply
// was lost. An attempt that was parked may go on and write in between: as long as no other sweep
// has postponed the record, that is the same question.
func (s *sweep) postpone(rec *idem.Record, p protocol.Postponement) (*idem.Record, error) {
	var err error
	for l := protocol.Follow(s.r.store, rec.ID, rec); l.Next(); {
		if err = s.postponeOnce(l.Seen, &p); err == nil {
			return p.Apply(l.Seen, s.r.now())
		}
		if !isAnswer(err) || rec.State != idem.Unknown || rec.Sweep == "" {
			break
		}
		ctx, cancel := s.share(s.ctx)
		unread := l.Again(ctx, err)
		cancel()
		if unread != nil || l.Seen == nil || l.Seen.State != idem.Unknown || l.Seen.Sweep != rec.Sweep {
			break
		}
	}
	return nil, err
}

func (s *sweep) postponeOnce(rec *idem.Record, p *protocol.Postponement) error {
	p.ID, p.Seen, p.SeenSweep, p.Sweep = rec.ID, rec.Write, rec.Sweep, newID()
	if p.Audit != nil { // the store may delete the entry of a write that was refused
		entry := *p.Audit
		entry.Entry = newID()
		p.Audit = &entry
	}
	if s.opts.DryRun {
		return nil
	}
	ctx, cancel := s.share(s.ctx)
	defer cancel()
	return again(ctx, func() error { return s.r.store.Postpone(ctx, s.r.now(), *p) })
}

// backoff is the pause after the n-th probe: between half and all of what has doubled
// ("equal jitter", https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/).
func backoff(n int) time.Duration {
	d := min(firstBackoff<<min(max(n-1, 0), 6), maxBackoff) // the sixth time passes the bound
	return d/2 + rand.N(d/2+1)
}
