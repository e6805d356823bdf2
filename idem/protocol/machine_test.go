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

// What a call gets. Columns: the call declares itself NR or R; it brings another
// input; the record's fingerprint is of a newer version or damaged; the worker
// comes, NR or R; the call is R, and bounds the attempts that may have taken effect to
// one, and to two.
//
//go:embed testdata/claims.txt
var claimTable string

// What the other writes do, by their own owner or with the write seen; "-" is refused, "="
// already holds, "early" must wait, and P C F R U are the states that the record goes to.
// Columns: extension to a later and to an earlier lease, step, begin mark; complete, fail,
// release (excluded, uncertain), park; the completion of an owner from before a takeover;
// another call's park; resolution to completed, failed, released; withdrawal by owner
// (excluded, uncertain) and by what was seen; an outcome in atomic mode, and acceptance for
// later; the result that is added to an outcome without it.
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
			return protocol.Event{
				Kind: protocol.EventClaim, Repeat: protocol.Repeatable, Fingerprint: thisInput, Margin: skew, MaxAttempts: attempts,
			}
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
			got := map[protocol.Action]string{
				protocol.DoRefuse: "-", protocol.DoNothing: "=", protocol.DoTooEarly: "early", protocol.DoApply: letters[d.To],
			}[d.Do]
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
				ev := protocol.Event{
					Kind: kind, Owner: "other", Seen: "stale", Fingerprint: thisInput, LeaseUntil: instant,
					Uncertain: bit(2), To: states[n>>3&3], Margin: skew,
				}
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
		require.False(t, over && changes, "what was seen and is gone comes back: %s", where)
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
