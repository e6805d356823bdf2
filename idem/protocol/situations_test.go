package protocol_test

import (
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// The instant of all cells, around which the records' times lie.
var instant = time.Date(2030, 5, 6, 7, 8, 9, 123e6, time.UTC)

const (
	thisInput  = protocol.Fingerprint("1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k")
	otherInput = protocol.Fingerprint("1:ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8")
	newerInput = protocol.Fingerprint("2:anything")
	noInput    = protocol.Fingerprint("damaged")

	skew = 2 * time.Second
)

// situation is a row of the tables: a record as it stands at the instant.
type situation struct {
	name string
	rec  *protocol.Record
}

// situations are all rows. "R" and "NR" are the stored declaration; a record is
// live, lapsed (lease and margin over), or in the margin; "expired" is past its
// ExpiresAt and the margin. Open questions, and claims of operations that are not
// repeatable, are due.
func situations() []situation {
	const (
		live    = time.Minute
		margin  = -time.Second
		lapsed  = -time.Minute
		expired = -time.Minute
	)
	step := map[string]protocol.RecordedStep{"ship": {Write: "w-ship",
		Body: protocol.Body{Data: []byte("1"), Size: 1, Stored: 1}}}
	input := map[string]protocol.RecordedStep{protocol.AcceptedStep: {Write: "w-input",
		Body: protocol.Body{Data: []byte("1"), Size: 1, Stored: 1}}}
	open := map[string]protocol.RecordedStep{"ship": {Write: "w-ship"}, "charge": {Begun: true, Write: "w-charge"}}
	row := func(name string, state protocol.State, lease time.Duration, change ...func(*protocol.Record)) situation {
		r := &protocol.Record{
			ID: "t#op#x", State: state, Repeat: protocol.Repeatable, Fingerprint: thisInput, Owner: "own",
			Write: "seen", Attempt: 1, LeaseUntil: instant.Add(lease), CreatedAt: instant.Add(-time.Hour),
		}
		if strings.Contains(name, "NR") {
			r.Repeat = protocol.NotRepeatable
		}
		for _, f := range change {
			f(r)
		}
		if r.Open() || state == protocol.InProgress && r.Repeat == protocol.NotRepeatable {
			r.Due = instant
		}
		if strings.Contains(name, "unwatched") {
			r.Due = time.Time{}
		}
		return situation{name, r}
	}
	past := func(r *protocol.Record) { r.ExpiresAt = instant.Add(expired) }
	now := func(r *protocol.Record) { r.ExpiresAt = instant.Add(-skew) }
	within := func(r *protocol.Record) { r.ExpiresAt = instant.Add(time.Nanosecond - skew) }
	later := func(r *protocol.Record) { r.ExpiresAt = instant.Add(time.Nanosecond) }
	uncertain := func(r *protocol.Record) { r.Uncertain = true }
	steps := func(r *protocol.Record) { r.Steps = step }
	accepted := func(r *protocol.Record) { r.Steps, r.Ticket = input, "ticket" }
	begun := func(r *protocol.Record) { r.Steps = open }
	watched := func(r *protocol.Record) { r.Due = instant }
	swept := func(r *protocol.Record) { r.Sweep = "sweep" }
	again := func(r *protocol.Record) { r.Unsettled = 1 }
	twice := func(r *protocol.Record) { r.Unsettled = 2 }
	resolved := func(r *protocol.Record) { r.Resolved = true }
	const p, c, f, rt, u = protocol.InProgress, protocol.Completed, protocol.Failed, protocol.Released, protocol.Unknown
	return []situation{
		{"absent", nil},
		row("pending R", protocol.Pending, 0, accepted),
		row("pending NR", protocol.Pending, 0, accepted),
		row("pending R uncertain", protocol.Pending, 0, accepted, uncertain),
		row("pending NR uncertain", protocol.Pending, 0, accepted, uncertain),
		row("in_progress R live, accepted", p, live, accepted, watched),
		row("in_progress R lapsed, accepted", p, lapsed, accepted, watched),
		row("in_progress NR lapsed, accepted", p, lapsed, accepted),
		row("released R excluded, accepted", rt, live, accepted),
		row("released R uncertain, accepted", rt, live, accepted, uncertain),
		row("released NR uncertain, accepted", rt, lapsed, accepted, uncertain),
		row("unknown NR, accepted", u, lapsed, accepted, uncertain),
		row("in_progress R live", p, live, later),
		row("in_progress NR live", p, live),
		row("in_progress R in the margin", p, margin),
		row("in_progress NR in the margin", p, margin),
		row("in_progress R lapsed", p, lapsed, later),
		row("in_progress NR lapsed", p, lapsed),
		row("in_progress R lapsed, past its expiry", p, lapsed, past),
		row("in_progress R lapsed, a step", p, lapsed, steps),
		row("in_progress NR lapsed, a step", p, lapsed, steps),
		row("in_progress R live, an open step", p, live, begun),
		row("in_progress R lapsed, an open step", p, lapsed, begun),
		row("in_progress R live, watched", p, live, watched),
		row("in_progress R lapsed, watched", p, lapsed, watched),
		row("in_progress NR lapsed, unwatched", p, lapsed),
		row("in_progress NR lapsed, swept", p, lapsed, swept),
		row("in_progress R live, second attempt", p, live, later, again),
		row("in_progress R lapsed, second attempt", p, lapsed, later, again),
		row("completed", c, lapsed, later),
		row("completed, a step", c, lapsed, later, steps),
		row("completed, no expiry", c, lapsed),
		row("completed without its result", c, lapsed, later, func(r *protocol.Record) { r.Omitted = true }),
		row("completed, in the margin", c, lapsed, within),
		row("completed, expiring now", c, lapsed, now),
		row("completed, expired", c, lapsed, past),
		row("completed, a step, expired", c, lapsed, past, steps),
		row("completed from outside", c, lapsed, later, resolved),
		row("completed from outside, lease not over", c, live, later, resolved),
		row("completed from outside, expired", c, lapsed, past, resolved),
		row("failed", f, lapsed, later),
		row("failed, expired", f, lapsed, past),
		row("failed from outside", f, lapsed, later, resolved),
		row("released R excluded", rt, live, later),
		row("released NR excluded", rt, live, later),
		row("released R uncertain", rt, live, later, uncertain),
		row("released NR uncertain", rt, live, later, uncertain),
		row("released R excluded, a step", rt, live, steps),
		row("released R uncertain, a step", rt, live, uncertain, steps),
		row("released NR uncertain, a step", rt, live, uncertain, steps),
		row("released R excluded, an open step", rt, live, begun),
		row("released R uncertain, an open step", rt, live, uncertain, begun),
		row("released R excluded, expired", rt, lapsed, past),
		row("released R uncertain, expired", rt, lapsed, past, uncertain),
		row("released R excluded, a step, expired", rt, lapsed, past, steps),
		row("released R uncertain, a step, expired", rt, lapsed, past, uncertain, steps),
		row("released R excluded, two unsettled", rt, live, later, twice),
		row("released R uncertain, two unsettled", rt, live, later, uncertain, twice),
		row("released NR from outside", rt, lapsed, later, resolved),
		row("released NR from outside, a step", rt, lapsed, steps, resolved),
		row("unknown R before the lease's end", u, live, uncertain),
		row("unknown R in the margin", u, margin, uncertain),
		row("unknown R after the lease", u, lapsed, uncertain),
		row("unknown NR after the lease", u, lapsed, uncertain),
		row("unknown R past an expiry", u, lapsed, uncertain, past),
		row("unknown R, an open step", u, lapsed, uncertain, begun),
		row("unknown NR after the lease, swept", u, lapsed, uncertain, swept),
		row("of no known state", "paused", lapsed),
	}
}
