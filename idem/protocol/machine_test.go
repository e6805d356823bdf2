package protocol_test

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// What a call gets. Columns: the call declares itself NR or R; it brings another input; the record's fingerprint is
// of a newer version or damaged; the worker comes, NR or R; the call is R, and bounds the attempts that may have
// taken effect to one, and to two.
//
//go:embed testdata/claims.txt
var claimTable string

// What the other writes do, by their own owner or with the write seen; "-" is refused, "=" already holds, "early"
// must wait, and P C F R U are the states that the record goes to. Columns: extension to a later and to an earlier
// lease, step, begin mark; complete, fail, release (excluded, uncertain), park; the completion of an owner from
// before a takeover; another call's park; resolution to completed, failed, released; withdrawal by owner (excluded,
// uncertain) and by what was seen; an outcome in atomic mode, and acceptance for later; the result that is added to
// an outcome without it.
//
//go:embed testdata/writes.txt
var writeTable string

// rows reads a table into cells by row name, in the order of its columns.
func rows(t *testing.T, table string) map[string][]string {
	t.Helper()
	lines := strings.Split(strings.Trim(table, "\n"), "\n")
	cells := map[string][]string{}
	for _, line := range lines[1:] {
		name, rest, ok := strings.Cut(line, "|")
		require.True(t, ok, line)
		name = strings.TrimSpace(name)
		require.NotContains(t, cells, name)
		cells[name] = strings.Fields(strings.ReplaceAll(rest, "|", " "))
	}
	return cells
}

func TestClaimTable(t *testing.T) {
	table := rows(t, claimTable)
	words := map[protocol.Action]string{
		protocol.DoCreate: "create", protocol.DoReplace: "replace", protocol.DoTakeOver: "takeover", protocol.DoPark: "park",
		protocol.DoReplay: "replay", protocol.DoAccepted: "accepted", protocol.DoInFlight: "inflight",
		protocol.DoUnknown: "unknown", protocol.DoReused: "reused", protocol.DoUnreadable: "unreadable",
		protocol.DoRefuse: "refuse",
	}
	claim := func(kind protocol.EventKind, repeat protocol.Repeat,
		stored protocol.Fingerprint) func(*protocol.Record) protocol.Event {
		return func(r *protocol.Record) protocol.Event {
			if r != nil {
				r.Fingerprint = stored
			}
			return protocol.Event{Kind: kind, Repeat: repeat, Fingerprint: thisInput, Margin: skew}
		}
	}
	bounded := func(attempts int) func(*protocol.Record) protocol.Event {
		return func(*protocol.Record) protocol.Event {
			return protocol.Event{Kind: protocol.EventClaim, Repeat: protocol.Repeatable, Fingerprint: thisInput, Margin: skew,
				MaxAttempts: attempts}
		}
	}
	columns := []func(*protocol.Record) protocol.Event{
		claim(protocol.EventClaim, protocol.NotRepeatable, thisInput),
		claim(protocol.EventClaim, protocol.Repeatable, thisInput),
		claim(protocol.EventClaim, protocol.Repeatable, otherInput),
		claim(protocol.EventClaim, protocol.Repeatable, newerInput),
		claim(protocol.EventClaim, protocol.Repeatable, noInput),
		claim(protocol.EventWork, protocol.NotRepeatable, thisInput),
		claim(protocol.EventWork, protocol.Repeatable, thisInput),
		bounded(1),
		bounded(2),
	}
	all := situations()
	require.Len(t, table, len(all))
	for _, s := range all {
		require.Len(t, table[s.name], len(columns), s.name)
		for i, event := range columns {
			rec := s.rec.Clone()
			got := protocol.Next(rec, event(rec), instant)
			require.Equal(t, table[s.name][i], words[got.Do], "%s, column %d", s.name, i)
			switch got.Do {
			case protocol.DoCreate, protocol.DoReplace, protocol.DoTakeOver:
				require.Equal(t, protocol.InProgress, got.To)
			case protocol.DoPark:
				require.Equal(t, protocol.Unknown, got.To)
			default:
				require.Equal(t, stateOf(rec), got.To)
			}
		}
	}
}

func TestWriteTable(t *testing.T) {
	later, earlier := instant.Add(time.Hour), instant.Add(-time.Hour)
	columns := []protocol.Event{
		{Kind: protocol.EventExtend, Owner: "own", LeaseUntil: later},
		{Kind: protocol.EventExtend, Owner: "own", LeaseUntil: earlier},
		{Kind: protocol.EventStep, Owner: "own"},
		{Kind: protocol.EventBegin, Owner: "own"},
		{Kind: protocol.EventComplete, Owner: "own"},
		{Kind: protocol.EventFail, Owner: "own"},
		{Kind: protocol.EventRelease, Owner: "own"},
		{Kind: protocol.EventRelease, Owner: "own", Uncertain: true},
		{Kind: protocol.EventPark, Owner: "own"},
		{Kind: protocol.EventComplete, Owner: "former"},
		{Kind: protocol.EventLapse, Seen: "seen"},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Completed, Margin: skew},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Failed, Margin: skew},
		{Kind: protocol.EventResolve, Seen: "seen", To: protocol.Released, Margin: skew},
		{Kind: protocol.EventWithdraw, Owner: "own"},
		{Kind: protocol.EventWithdraw, Owner: "own", Uncertain: true},
		{Kind: protocol.EventWithdraw, Owner: "other", Seen: "seen"},
		{Kind: protocol.EventCommit, To: protocol.Completed},
		{Kind: protocol.EventCommit, To: protocol.Failed},
		{Kind: protocol.EventCommit, Owner: "own", Seen: "seen", To: protocol.Released},
		{Kind: protocol.EventCommit, Seen: "seen", To: protocol.Completed},
		{Kind: protocol.EventCommit, To: protocol.Pending},
		{Kind: protocol.EventCommit, Seen: "seen", To: protocol.Pending},
		{Kind: protocol.EventAddResult, Owner: "own", Seen: "seen"},
	}
	holds(t, writeTable, columns)
}

// holds requires that the machine does with the events, one a column, what the table says.
func holds(t *testing.T, written string, columns []protocol.Event) {
	t.Helper()
	table := rows(t, written)
	letters := map[protocol.State]string{
		protocol.Absent: "X", protocol.Pending: "Q", protocol.InProgress: "P", protocol.Completed: "C", protocol.Failed: "F",
		protocol.Released: "R", protocol.Unknown: "U",
	}
	all := situations()
	require.Len(t, table, len(all))
	for _, s := range all {
		require.Len(t, table[s.name], len(columns), s.name)
		for i, ev := range columns {
			d := protocol.Next(s.rec, ev, instant)
			got := map[protocol.Action]string{protocol.DoRefuse: "-", protocol.DoNothing: "=", protocol.DoTooEarly: "early",
				protocol.DoApply: letters[d.To]}[d.Do]
			require.Equal(t, table[s.name][i], got, "%s, column %d", s.name, i)
			if d.Do != protocol.DoApply {
				require.Equal(t, stateOf(s.rec), d.To, "%s, column %d", s.name, i)
			}
		}
	}
}

func stateOf(r *protocol.Record) protocol.State {
	if r == nil {
		return protocol.Absent
	}
	return r.State
}

// Every event of every kind in every situation, with all that its cell may look
// at: what must hold whatever the tables say.
func TestEveryCell(t *testing.T) {
	states := []protocol.State{protocol.Completed, protocol.Failed, protocol.Released, protocol.Unknown}
	cells := 0
	for _, s := range situations() {
		for kind := protocol.EventClaim; kind <= protocol.EventProlong; kind++ {
			for n := range 1 << 8 { // no kind looks at two that share a bit
				bit := func(i int) bool { return n>>i&1 == 1 }
				ev := protocol.Event{Kind: kind, Owner: "other", Seen: "stale", Fingerprint: thisInput, LeaseUntil: instant,
					Uncertain: bit(2), To: states[n>>3&3], Margin: skew}
				if bit(0) {
					ev.Owner = "own"
				}
				if bit(1) {
					ev.Seen = "seen"
				}
				if bit(3) {
					ev.MaxAttempts = 2
				}
				if ev.Again = bit(5); bit(5) {
					ev.Repeat = protocol.Repeatable
				}
				if bit(6) {
					ev.LeaseUntil, ev.ExpiresAt, ev.Sweep = instant.Add(time.Hour), instant.Add(time.Hour), "sweep"
				}
				if bit(7) {
					ev.To = protocol.Pending
				}
				before := s.rec.Clone()
				d := protocol.Next(s.rec, ev, instant)
				cells++
				where := fmt.Sprintf("%s, %+v: %+v", s.name, ev, d)
				require.Equal(t, before, s.rec, "pure: %s", where)
				require.Equal(t, d, protocol.Next(s.rec.Clone(), ev, instant), "pure: %s", where)
				checkCell(t, where, s.rec, ev, d)
			}
		}
	}
	require.Equal(t, len(situations())*int(protocol.EventProlong+1)*256, cells)
}

func checkCell(t *testing.T, where string, rec *protocol.Record, ev protocol.Event, d protocol.Decision) {
	t.Helper()
	changes := d.Do == protocol.DoApply || d.Do == protocol.DoTakeOver || d.Do == protocol.DoReplace
	if rec == nil {
		over := ev.Kind == protocol.EventWithdraw || ev.Kind == protocol.EventCommit
		require.False(t, over && changes, "what was seen and was deleted is there again: %s", where)
		return
	}
	if !changes && d.Do != protocol.DoPark {
		require.Equal(t, rec.State, d.To, "nothing changes: %s", where)
	}
	mine, seen := ev.Owner == rec.Owner, ev.Seen == rec.Write
	switch ev.Kind {
	case protocol.EventClaim, protocol.EventWork:
		expired, work, accepted := rec.Expired(instant.Add(-skew)), ev.Kind == protocol.EventWork, rec.Accepted()
		require.Equal(t, expired && !work, d.Do == protocol.DoReplace, where)
		ended := rec.State == protocol.Completed || rec.State == protocol.Failed || rec.State == protocol.Unknown ||
			rec.State == "paused"
		require.Equal(t, work && (expired || !ended && !accepted), d.Do == protocol.DoRefuse, where)
		require.Equal(t, !work && !ended && accepted, d.Do == protocol.DoAccepted, where)
		strict := rec.Repeat == protocol.NotRepeatable || ev.Repeat == protocol.NotRepeatable ||
			ev.MaxAttempts == 2 && (rec.Unsettled == 2 || rec.Unsettled == 1 && rec.State == protocol.InProgress)
		interrupted := rec.Steps["charge"].Begun
		if d.Do == protocol.DoTakeOver && strict {
			require.Contains(t, []protocol.State{protocol.Released, protocol.Pending}, rec.State, where)
			require.False(t, rec.Uncertain || interrupted, where)
		}
		if rec.State == protocol.InProgress && !rec.Lapsed(instant, skew) && work == accepted {
			require.Equal(t, protocol.DoInFlight, d.Do, where)
		}
	case protocol.EventLapse:
		left := rec.State == protocol.InProgress || rec.State == protocol.Released || rec.State == protocol.Pending
		require.Equal(t, seen && left, changes, where)
	case protocol.EventResolve:
		waits := (rec.State == protocol.Pending || rec.State == protocol.Released && rec.Accepted()) &&
			ev.To != protocol.Released
		open := rec.State == protocol.Unknown || rec.State == protocol.InProgress || waits || ev.Again && rec.Resolved
		early := (ev.To == protocol.Released || rec.State == protocol.InProgress) && !rec.Lapsed(instant, skew)
		require.Equal(t, seen && open && !early, changes, where)
		require.Equal(t, seen && open && early, d.Do == protocol.DoTooEarly, where)
	case protocol.EventPostpone:
		require.Equal(t, seen && !rec.Due.IsZero() && ev.Sweep == rec.Sweep, changes, where)
		require.Equal(t, rec.State, d.To, where)
	case protocol.EventForget:
		ended := rec.State == protocol.Completed || rec.State == protocol.Failed || rec.State == protocol.Released &&
			len(rec.Steps) == 0
		require.Equal(t, seen && ended, changes, where)
	case protocol.EventProlong:
		kept := rec.Ended() && !rec.Expired(instant)
		earlier := !rec.ExpiresAt.IsZero() && rec.ExpiresAt.Before(ev.ExpiresAt)
		require.Equal(t, seen && kept && earlier, changes, where)
		require.Equal(t, seen && kept && !earlier, d.Do == protocol.DoNothing, where)
		require.Equal(t, rec.State, d.To, where)
	case protocol.EventCommit:
		outcome := ev.To == protocol.Completed || ev.To == protocol.Failed || ev.To == protocol.Pending
		require.Equal(t, outcome && seen, changes, where)
	case protocol.EventAddResult:
		require.Equal(t, mine && seen && rec.State == protocol.Completed && rec.Omitted, changes, where)
	case protocol.EventWithdraw:
		require.True(t, seen || mine || d.Do == protocol.DoRefuse, where)
		require.False(t, rec.State == protocol.Unknown && changes && ev.Uncertain && !seen, where)
	default:
		require.True(t, mine || d.Do == protocol.DoRefuse, where)
		if changes {
			require.Contains(t, []protocol.State{protocol.InProgress, protocol.Unknown}, rec.State, where)
		}
		if rec.State == protocol.Unknown && changes {
			require.False(t, d.To == protocol.Released && ev.Uncertain, where)
		}
	}
}

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

// situations are all rows. "R" and "NR" are the stored declaration; a record is live, lapsed (lease and margin over),
// or in the margin; "expired" is past its ExpiresAt and the margin. Open questions, and claims of operations that are
// not repeatable, are due.
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
		r := &protocol.Record{ID: "t#op#x", State: state, Repeat: protocol.Repeatable, Fingerprint: thisInput, Owner: "own",
			Write: "seen", Attempt: 1, LeaseUntil: instant.Add(lease), CreatedAt: instant.Add(-time.Hour)}
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
