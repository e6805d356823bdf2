package idem

import (
	"cmp"
	"maps"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// acceptance is what a call for later makes of the claims that it would write.
type acceptance struct {
	protocol.Later
	ticket string
}

func newAcceptance(l *protocol.Later) *acceptance { return &acceptance{*l, protocol.NewID()} }

func (l *acceptance) claim(c protocol.Claim) protocol.Claim {
	rec := &c.Record
	rec.Ticket = l.ticket
	rec.Attempt-- // no attempt has been made
	rec.LeaseUntil, rec.ExpiresAt, rec.Due = time.Time{}, time.Time{}, time.Time{}
	rec.Steps = maps.Clone(rec.Steps)
	if rec.Steps == nil {
		rec.Steps = map[string]protocol.RecordedStep{}
	}
	rec.Steps[protocol.AcceptedStep] = protocol.RecordedStep{
		// Its parts are of this try alone: those of one that was refused expire.
		Write: protocol.NewID(), Body: protocol.Body{Data: l.Input, Size: len(l.Input), Stored: len(l.Input)},
	}
	return c
}

// due is when the work has waited for too long.
func (l *acceptance) due(now time.Time) time.Time {
	return now.Add(cmp.Or(l.StartWithin, protocol.DefaultStartWithin))
}
