package idem_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// The instant of all cells, around which the records' times lie.
var instant = time.Date(2030, 5, 6, 7, 8, 9, 123e6, time.UTC)

const (
	thisInput  = idem.Fingerprint("1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k")
	otherInput = idem.Fingerprint("1:ASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4mrze8")
	newerInput = idem.Fingerprint("2:anything")
	noInput    = idem.Fingerprint("damaged")

	skew = 2 * time.Second
)

// situation is a row of the tables: a record as it stands at the instant.
type situation struct {
	name string
	rec  *idem.Record
}

// situations are all rows. "R" and "NR" are the stored declaration; a record is
// live, lapsed (lease and margin over), or in the margin; "expired" is past its
// ExpiresAt and the margin.
func situations() []situation {
	const (
		live    = time.Minute
		margin  = -time.Second
		lapsed  = -time.Minute
		expired = -time.Minute
	)
	step := map[string]idem.RecordedStep{"ship": {Write: "w-ship", Body: idem.Body{Data: []byte("1"), Size: 1, Stored: 1}}}
	open := map[string]idem.RecordedStep{"ship": {Write: "w-ship"}, "charge": {Begun: true, Write: "w-charge"}}
	row := func(name string, state idem.State, lease time.Duration, change ...func(*idem.Record)) situation {
		r := &idem.Record{
			ID: "t#op#x", State: state, Repeat: idem.Repeatable, Fingerprint: thisInput, Owner: "own",
			Write: "seen", Attempt: 1, LeaseUntil: instant.Add(lease), CreatedAt: instant.Add(-time.Hour),
		}
		if strings.Contains(name, "NR") {
			r.Repeat = idem.NotRepeatable
		}
		for _, f := range change {
			f(r)
		}
		return situation{name, r}
	}
	past := func(r *idem.Record) { r.ExpiresAt = instant.Add(expired) }
	now := func(r *idem.Record) { r.ExpiresAt = instant.Add(-skew) }
	within := func(r *idem.Record) { r.ExpiresAt = instant.Add(time.Nanosecond - skew) }
	later := func(r *idem.Record) { r.ExpiresAt = instant.Add(time.Nanosecond) }
	uncertain := func(r *idem.Record) { r.Uncertain = true }
	steps := func(r *idem.Record) { r.Steps = step }
	begun := func(r *idem.Record) { r.Steps = open }
	const p, c, f, rt, u = idem.InProgress, idem.Completed, idem.Failed, idem.Retryable, idem.Unknown
	return []situation{
		{"absent", nil},
		row("pending R", idem.Pending, 0),
		row("pending NR", idem.Pending, 0),
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
		row("completed", c, lapsed, later),
		row("completed, a step", c, lapsed, later, steps),
		row("completed, no expiry", c, lapsed),
		row("completed without its result", c, lapsed, later, func(r *idem.Record) { r.Unavailable = true }),
		row("completed, in the margin", c, lapsed, within),
		row("completed, expiring now", c, lapsed, now),
		row("completed, expired", c, lapsed, past),
		row("completed, a step, expired", c, lapsed, past, steps),
		row("failed", f, lapsed, later),
		row("failed, expired", f, lapsed, past),
		row("retryable R excluded", rt, live, later),
		row("retryable NR excluded", rt, live, later),
		row("retryable R uncertain", rt, live, later, uncertain),
		row("retryable NR uncertain", rt, live, later, uncertain),
		row("retryable R excluded, a step", rt, live, steps),
		row("retryable R uncertain, a step", rt, live, uncertain, steps),
		row("retryable NR uncertain, a step", rt, live, uncertain, steps),
		row("retryable R excluded, an open step", rt, live, begun),
		row("retryable R uncertain, an open step", rt, live, uncertain, begun),
		row("retryable R excluded, expired", rt, lapsed, past),
		row("retryable R uncertain, expired", rt, lapsed, past, uncertain),
		row("retryable R excluded, a step, expired", rt, lapsed, past, steps),
		row("retryable R uncertain, a step, expired", rt, lapsed, past, uncertain, steps),
		row("unknown R before the lease's end", u, live, uncertain),
		row("unknown R in the margin", u, margin, uncertain),
		row("unknown R after the lease", u, lapsed, uncertain),
		row("unknown NR after the lease", u, lapsed, uncertain),
		row("unknown R past an expiry", u, lapsed, uncertain, past),
		row("unknown R, an open step", u, lapsed, uncertain, begun),
		row("of no known state", "paused", lapsed),
	}
}

// What a call gets. Columns: the call declares itself NR or R; it brings another
// input; the record's fingerprint is of a newer version or damaged; the worker
// comes, NR or R.
const claimTable = `
                                        | NR         R          other       newer       damaged    | work NR    work R
absent                                  | create     create     create      create      create     | create     create
pending R                               | accepted   accepted   reused      unreadable  unreadable | takeover   takeover
pending NR                              | accepted   accepted   reused      unreadable  unreadable | takeover   takeover
in_progress R live                      | inflight   inflight   reused      unreadable  unreadable | inflight   inflight
in_progress NR live                     | inflight   inflight   reused      unreadable  unreadable | inflight   inflight
in_progress R in the margin             | inflight   inflight   reused      unreadable  unreadable | inflight   inflight
in_progress NR in the margin            | inflight   inflight   reused      unreadable  unreadable | inflight   inflight
in_progress R lapsed                    | park       takeover   reused      unreadable  unreadable | park       takeover
in_progress NR lapsed                   | park       park       reused      unreadable  unreadable | park       park
in_progress R lapsed, past its expiry   | park       takeover   reused      unreadable  unreadable | park       takeover
in_progress R lapsed, a step            | park       takeover   reused      unreadable  unreadable | park       takeover
in_progress NR lapsed, a step           | park       park       reused      unreadable  unreadable | park       park
in_progress R live, an open step        | inflight   inflight   reused      unreadable  unreadable | inflight   inflight
in_progress R lapsed, an open step      | park       takeover   reused      unreadable  unreadable | park       takeover
completed                               | replay     replay     reused      unreadable  unreadable | replay     replay
completed, a step                       | replay     replay     reused      unreadable  unreadable | replay     replay
completed, no expiry                    | replay     replay     reused      unreadable  unreadable | replay     replay
completed without its result            | replay     replay     reused      unreadable  unreadable | replay     replay
completed, in the margin                | replay     replay     reused      unreadable  unreadable | replay     replay
completed, expiring now                 | replace    replace    replace     replace     replace    | replace    replace
completed, expired                      | replace    replace    replace     replace     replace    | replace    replace
completed, a step, expired              | replace    replace    replace     replace     replace    | replace    replace
failed                                  | replay     replay     reused      unreadable  unreadable | replay     replay
failed, expired                         | replace    replace    replace     replace     replace    | replace    replace
retryable R excluded                    | takeover   takeover   replace     unreadable  unreadable | takeover   takeover
retryable NR excluded                   | takeover   takeover   replace     unreadable  unreadable | takeover   takeover
retryable R uncertain                   | park       takeover   reused      unreadable  unreadable | park       takeover
retryable NR uncertain                  | park       park       reused      unreadable  unreadable | park       park
retryable R excluded, a step            | takeover   takeover   reused      unreadable  unreadable | takeover   takeover
retryable R uncertain, a step           | park       takeover   reused      unreadable  unreadable | park       takeover
retryable NR uncertain, a step          | park       park       reused      unreadable  unreadable | park       park
retryable R excluded, an open step      | park       takeover   reused      unreadable  unreadable | park       takeover
retryable R uncertain, an open step     | park       takeover   reused      unreadable  unreadable | park       takeover
retryable R excluded, expired           | replace    replace    replace     replace     replace    | replace    replace
retryable R uncertain, expired          | replace    replace    replace     replace     replace    | replace    replace
retryable R excluded, a step, expired   | takeover   takeover   reused      unreadable  unreadable | takeover   takeover
retryable R uncertain, a step, expired  | park       takeover   reused      unreadable  unreadable | park       takeover
unknown R before the lease's end        | unknown    unknown    reused      unreadable  unreadable | unknown    unknown
unknown R in the margin                 | unknown    unknown    reused      unreadable  unreadable | unknown    unknown
unknown R after the lease               | unknown    unknown    reused      unreadable  unreadable | unknown    unknown
unknown NR after the lease              | unknown    unknown    reused      unreadable  unreadable | unknown    unknown
unknown R past an expiry                | unknown    unknown    reused      unreadable  unreadable | unknown    unknown
unknown R, an open step                 | unknown    unknown    reused      unreadable  unreadable | unknown    unknown
of no known state                       | unreadable unreadable reused      unreadable  unreadable | unreadable unreadable
`

// What the other writes do, by their own owner or with the write seen; "-" is
// refused, "=" already holds, "early" must wait, and P C F R U are the states that
// the record goes to. Columns: extension to a later and to an earlier lease, step, begin mark;
// complete, fail, release (excluded, uncertain), park; a twin's park; resolution
// to completed, failed, retryable; withdrawal by owner (excluded, uncertain) and by
// what was seen; end without a claim as completed, retryable uncertain, unknown; an
// outcome in atomic mode; the result that is added to an outcome without it.
const writeTable = `
                                        | later earlier step begin | comp fail rel rel? park | lapse | ->C ->F ->R   | wOwn wOwn? wSeen | oC oR? oU | kC kF kR kSeenC | add
absent                                  | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | R    R     R     | C  R   U | C  F  -  C      | -
pending R                               | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
pending NR                              | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
in_progress R live                      | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress NR live                     | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress R in the margin             | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress NR in the margin            | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress R lapsed                    | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress NR lapsed                   | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress R lapsed, past its expiry   | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress R lapsed, a step            | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress NR lapsed, a step           | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress R live, an open step        | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
in_progress R lapsed, an open step      | P     =       P    P     | C    F    R   R    U    | U     | -   -   -     | R    R     R     | C  R   U | -  -  -  C      | -
completed                               | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
completed, a step                       | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
completed, no expiry                    | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
completed without its result            | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | C
completed, in the margin                | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
completed, expiring now                 | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
completed, expired                      | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
completed, a step, expired              | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
failed                                  | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
failed, expired                         | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R excluded                    | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable NR excluded                   | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R uncertain                   | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable NR uncertain                  | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R excluded, a step            | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R uncertain, a step           | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable NR uncertain, a step          | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R excluded, an open step      | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R uncertain, an open step     | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R excluded, expired           | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R uncertain, expired          | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R excluded, a step, expired   | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
retryable R uncertain, a step, expired  | -     -       -    -     | -    -    -   -    -    | U     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
unknown R before the lease's end        | -     -       U    -     | C    F    R   -    U    | -     | C   F   early | R    -     R     | C  -   U | -  -  -  C      | -
unknown R in the margin                 | -     -       U    -     | C    F    R   -    U    | -     | C   F   early | R    -     R     | C  -   U | -  -  -  C      | -
unknown R after the lease               | -     -       U    -     | C    F    R   -    U    | -     | C   F   R     | R    -     R     | C  -   U | -  -  -  C      | -
unknown NR after the lease              | -     -       U    -     | C    F    R   -    U    | -     | C   F   R     | R    -     R     | C  -   U | -  -  -  C      | -
unknown R past an expiry                | -     -       U    -     | C    F    R   -    U    | -     | C   F   R     | R    -     R     | C  -   U | -  -  -  C      | -
unknown R, an open step                 | -     -       U    -     | C    F    R   -    U    | -     | C   F   R     | R    -     R     | C  -   U | -  -  -  C      | -
of no known state                       | -     -       -    -     | -    -    -   -    -    | -     | -   -   -     | -    -     R     | -  -   - | -  -  -  C      | -
`

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
	words := map[idem.Action]string{
		idem.DoCreate: "create", idem.DoReplace: "replace", idem.DoTakeOver: "takeover", idem.DoPark: "park",
		idem.DoReplay: "replay", idem.DoAccepted: "accepted", idem.DoInFlight: "inflight",
		idem.DoUnknown: "unknown", idem.DoReused: "reused", idem.DoUnreadable: "unreadable",
	}
	claim := func(kind idem.EventKind, repeat idem.Repeat, stored idem.Fingerprint) func(*idem.Record) idem.Event {
		return func(r *idem.Record) idem.Event {
			if r != nil {
				r.Fingerprint = stored
			}
			return idem.Event{Kind: kind, Repeat: repeat, Fingerprint: thisInput, Margin: skew}
		}
	}
	columns := []func(*idem.Record) idem.Event{
		claim(idem.EventClaim, idem.NotRepeatable, thisInput),
		claim(idem.EventClaim, idem.Repeatable, thisInput),
		claim(idem.EventClaim, idem.Repeatable, otherInput),
		claim(idem.EventClaim, idem.Repeatable, newerInput),
		claim(idem.EventClaim, idem.Repeatable, noInput),
		claim(idem.EventWork, idem.NotRepeatable, thisInput),
		claim(idem.EventWork, idem.Repeatable, thisInput),
	}
	all := situations()
	require.Len(t, table, len(all))
	for _, s := range all {
		require.Len(t, table[s.name], len(columns), s.name)
		for i, event := range columns {
			rec := s.rec.Clone()
			got := idem.Next(rec, event(rec), instant)
			require.Equal(t, table[s.name][i], words[got.Do], "%s, column %d", s.name, i)
			switch got.Do {
			case idem.DoCreate, idem.DoReplace, idem.DoTakeOver:
				require.Equal(t, idem.InProgress, got.To)
			case idem.DoPark:
				require.Equal(t, idem.Unknown, got.To)
			default:
				require.Equal(t, rec.State, got.To)
			}
		}
	}
}

func TestWriteTable(t *testing.T) {
	table := rows(t, writeTable)
	letters := map[idem.State]string{
		idem.InProgress: "P", idem.Completed: "C", idem.Failed: "F", idem.Retryable: "R", idem.Unknown: "U",
	}
	later, earlier := instant.Add(time.Hour), instant.Add(-time.Hour)
	columns := []idem.Event{
		{Kind: idem.EventExtend, Owner: "own", LeaseUntil: later},
		{Kind: idem.EventExtend, Owner: "own", LeaseUntil: earlier},
		{Kind: idem.EventStep, Owner: "own"},
		{Kind: idem.EventBegin, Owner: "own"},
		{Kind: idem.EventComplete, Owner: "own"},
		{Kind: idem.EventFail, Owner: "own"},
		{Kind: idem.EventRelease, Owner: "own"},
		{Kind: idem.EventRelease, Owner: "own", Uncertain: true},
		{Kind: idem.EventPark, Owner: "own"},
		{Kind: idem.EventLapse, Seen: "seen"},
		{Kind: idem.EventResolve, Seen: "seen", To: idem.Completed, Margin: skew},
		{Kind: idem.EventResolve, Seen: "seen", To: idem.Failed, Margin: skew},
		{Kind: idem.EventResolve, Seen: "seen", To: idem.Retryable, Margin: skew},
		{Kind: idem.EventWithdraw, Owner: "own"},
		{Kind: idem.EventWithdraw, Owner: "own", Uncertain: true},
		{Kind: idem.EventWithdraw, Owner: "other", Seen: "seen"},
		{Kind: idem.EventFinishOpen, Owner: "own", To: idem.Completed},
		{Kind: idem.EventFinishOpen, Owner: "own", To: idem.Retryable, Uncertain: true},
		{Kind: idem.EventFinishOpen, Owner: "own", To: idem.Unknown},
		{Kind: idem.EventCommit, To: idem.Completed},
		{Kind: idem.EventCommit, To: idem.Failed},
		{Kind: idem.EventCommit, Owner: "own", Seen: "seen", To: idem.Retryable},
		{Kind: idem.EventCommit, Seen: "seen", To: idem.Completed},
		{Kind: idem.EventUpgrade, Owner: "own", Seen: "seen"},
	}
	all := situations()
	require.Len(t, table, len(all))
	for _, s := range all {
		require.Len(t, table[s.name], len(columns), s.name)
		for i, ev := range columns {
			d := idem.Next(s.rec, ev, instant)
			got := map[idem.Action]string{
				idem.DoRefuse: "-", idem.DoNothing: "=", idem.DoTooEarly: "early", idem.DoApply: letters[d.To],
			}[d.Do]
			require.Equal(t, table[s.name][i], got, "%s, column %d", s.name, i)
			if d.Do != idem.DoApply {
				require.Equal(t, stateOf(s.rec), d.To, "%s, column %d", s.name, i)
			}
		}
	}
}

func stateOf(r *idem.Record) idem.State {
	if r == nil {
		return idem.Absent
	}
	return r.State
}

// Every event of every kind in every situation, with all that its cell may look
// at: what must hold whatever the tables say.
func TestEveryCell(t *testing.T) {
	states := []idem.State{idem.Completed, idem.Failed, idem.Retryable, idem.Unknown}
	cells := 0
	for _, s := range situations() {
		for kind := idem.EventClaim; kind <= idem.EventUpgrade; kind++ {
			for n := range 1 << 7 {
				bit := func(i int) bool { return n>>i&1 == 1 }
				ev := idem.Event{
					Kind: kind, Owner: "stranger", Seen: "stale", Fingerprint: thisInput, LeaseUntil: instant,
					Uncertain: bit(2), To: states[n>>3&3], Margin: skew,
				}
				if bit(0) {
					ev.Owner = "own"
				}
				if bit(1) {
					ev.Seen = "seen"
				}
				if bit(5) {
					ev.Repeat = idem.Repeatable
				}
				if bit(6) {
					ev.LeaseUntil = instant.Add(time.Hour)
				}
				before := s.rec.Clone()
				d := idem.Next(s.rec, ev, instant)
				cells++
				where := fmt.Sprintf("%s, %+v: %+v", s.name, ev, d)
				require.Equal(t, before, s.rec, "pure: %s", where)
				require.Equal(t, d, idem.Next(s.rec.Clone(), ev, instant), "pure: %s", where)
				checkCell(t, where, s.rec, ev, d)
			}
		}
	}
	require.Equal(t, len(situations())*15*128, cells)
}

func checkCell(t *testing.T, where string, rec *idem.Record, ev idem.Event, d idem.Decision) {
	t.Helper()
	if rec == nil {
		return
	}
	changes := d.Do == idem.DoApply || d.Do == idem.DoTakeOver || d.Do == idem.DoReplace
	if !changes && d.Do != idem.DoPark {
		require.Equal(t, rec.State, d.To, "nothing changes: %s", where)
	}
	mine, seen := ev.Owner == rec.Owner, ev.Seen == rec.Write
	switch ev.Kind {
	case idem.EventClaim, idem.EventWork:
		expired := rec.Expired(instant.Add(-skew))
		require.Equal(t, expired, d.Do == idem.DoReplace, where)
		strict := rec.Repeat == idem.NotRepeatable || ev.Repeat == idem.NotRepeatable
		interrupted := rec.Steps["charge"].Begun
		if d.Do == idem.DoTakeOver && strict && rec.State != idem.Pending {
			require.Equal(t, idem.Retryable, rec.State, where)
			require.False(t, rec.Uncertain || interrupted, where)
		}
		if rec.State == idem.InProgress && !rec.Lapsed(instant, skew) {
			require.Equal(t, idem.DoInFlight, d.Do, where)
		}
	case idem.EventLapse, idem.EventResolve:
		require.True(t, seen || d.Do == idem.DoRefuse, where)
	case idem.EventCommit:
		outcome := ev.To == idem.Completed || ev.To == idem.Failed
		require.Equal(t, outcome && seen, changes, where)
	case idem.EventUpgrade:
		require.Equal(t, mine && seen && rec.State == idem.Completed && rec.Unavailable, changes, where)
	case idem.EventWithdraw:
		require.True(t, seen || mine || d.Do == idem.DoRefuse, where)
		require.False(t, rec.State == idem.Unknown && changes && ev.Uncertain && !seen, where)
	default:
		require.True(t, mine || d.Do == idem.DoRefuse, where)
		if changes {
			require.Contains(t, []idem.State{idem.InProgress, idem.Unknown}, rec.State, where)
		}
		if rec.State == idem.Unknown && changes {
			require.False(t, d.To == idem.Retryable && ev.Uncertain, where)
		}
	}
}

// An attempt without a claim whose first write had landed after all, and which a
// not repeatable twin has parked, must not make itself repeatable again: the
// record would expire, and the next call would run.
func TestFinishOpenDoesNotReopenWhatAStricterTwinParked(t *testing.T) {
	parked := &idem.Record{
		ID: "t#op#x", State: idem.Unknown, Repeat: idem.NotRepeatable, Owner: "open", Write: "w-lapse",
		Attempt: 1, LeaseUntil: instant.Add(-time.Minute),
	}
	end := idem.Finish{
		ID: "t#op#x", Owner: "open", Write: "w-end", Absent: &idem.Record{ID: "t#op#x"},
		Ending: idem.Ending{State: idem.Retryable, Uncertain: true, ExpiresAt: instant.Add(time.Hour)},
	}
	_, err := end.Apply(parked, instant)
	var conflict *idem.ConflictError
	require.ErrorAs(t, err, &conflict)
	require.Equal(t, parked, conflict.Existing)

	end.Ending.Uncertain = false
	got, err := end.Apply(parked, instant)
	require.NoError(t, err)
	require.Equal(t, idem.Retryable, got.State)
}
