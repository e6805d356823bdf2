package protocol_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// What follows walks through everything that can happen to one record, by the
// engine's own rules: calls of a repeatable and of a not repeatable deployment,
// lost replies, delayed and repeated writes, crashes, clocks, TTL, resolutions.

const (
	walkLease     = 30 * time.Second
	walkRetention = time.Hour
)

// actor is one attempt whose handler may have run.
type actor struct {
	claim   protocol.Claim
	running bool
	// dirty: its handler may have taken effect, and nothing recorded says how.
	dirty bool
	// strict: it was claimed, or seen by another call, as not repeatable.
	strict bool
	// maxAttempts bounds the attempts that leave no outcome; zero for no bound.
	maxAttempts int
}

// sent is a write that is under way: it may land now, later, or several times.
type sent struct {
	what  string
	actor int // whose end it is, -1 if nobody's
	apply func(*protocol.Record, time.Time) (*protocol.Record, error)
	ids   []string
	// fenced: its caller was told that it has not landed.
	fenced bool
	// seen is the write that its sender went by, of a write from outside.
	seen string
	// settles: it resolves the record from outside.
	settles bool
}

// Writes that may do what others may not.
const (
	resolvedAgain = "resolution over an earlier one to "
	erased        = "erasure"
	prolonged     = "prolongation"
	postponed     = "postponement"
)

// state is a record, and what is running or on its way to it.
type state struct {
	rec    *protocol.Record
	now    time.Time
	actors []actor
	late   []sent
	ids    int
	trail  []string
}

func (w state) copy(move string) *state {
	w.rec = w.rec.Clone()
	w.actors, w.late = slices.Clone(w.actors), slices.Clone(w.late)
	w.trail = append(slices.Clone(w.trail), move)
	return &w
}

func (w *state) id(kind string) string {
	w.ids++
	return fmt.Sprintf("%s%d", kind, w.ids)
}

// land applies a write, and notes what it means for the attempts.
func (w *state) land(t *testing.T, s sent) bool {
	before := w.rec.Clone()
	next, err := s.apply(w.rec, w.now)
	require.Equal(t, before, w.rec, "Apply changes its argument: %v", w.trail)
	if err != nil {
		var conflict *protocol.ConflictError
		require.ErrorAs(t, err, &conflict)
		require.Equal(t, before, conflict.Existing)
		return false
	}
	changed, same := next != w.rec, next.Clone()
	again, err := s.apply(same, w.now.Add(time.Second))
	require.NoError(t, err, "a repeated write lands again: %v", w.trail)
	require.True(t, again == same, "a repeated write is not known to have landed, and would be noted twice: %v", w.trail)
	require.Equal(t, next, again, "a repeated write changes nothing: %v", w.trail)
	w.keepsOutcome(t, s.what, before, next)
	if changed {
		w.settled(t, s, before, next)
	}
	w.rec = next.Clone()
	if s.what == "result" {
		want := before.Clone()
		want.Write, want.Omitted, want.Body = next.Write, false, next.Body
		require.Equal(t, want, next, "a result changes nothing else: %v", w.trail)
		require.True(t, before.Omitted || before.Write == next.Write, "%v", w.trail)
	}
	if before == nil || before.Expired(w.now) {
		// What was repeatable is forgotten with its record, as it was declared to be.
		for i, a := range w.actors {
			w.actors[i].dirty = a.dirty && (a.strict || next != nil && a.claim.Record.Owner == next.Owner)
		}
	}
	switch stateOf(next) {
	case protocol.Released:
		if s.settles && changed {
			for i := range w.actors { // somebody has found out that nothing took effect
				w.actors[i].dirty = false
			}
		}
	case protocol.Completed, protocol.Failed:
		for i := range w.actors {
			w.actors[i].dirty = false
		}
	case protocol.Unknown:
		for i, a := range w.actors {
			if next.Repeat == protocol.NotRepeatable && a.dirty {
				w.actors[i].strict = true
			}
		}
	}
	return true
}

// settled requires what holds for the writes from outside: a release waits until nobody can
// be running, a question is due when it is opened and is never forgotten, and a
// postponement goes by what it has read.
func (w *state) settled(t *testing.T, s sent, before, next *protocol.Record) {
	require.True(t, s.seen == "" || before.Write == s.seen, "%s lands over what it has not read: %v", s.what, w.trail)
	if s.settles && next.State == protocol.Released {
		require.True(t, before.Lapsed(w.now, skew), "what may still run is released: %v", w.trail)
	}
	if next != nil && next.Open() && (before == nil || !before.Open()) {
		require.False(t, next.Due.After(w.now), "a question that was opened waits: %v: %+v", w.trail, next)
	}
	switch {
	case s.what == erased:
		require.False(t, before.Open(), "an open question is forgotten: %v", w.trail)
	case s.what == prolonged:
		require.False(t, before.Expired(w.now), "what a call may replace is kept for longer: %v", w.trail)
	case strings.HasPrefix(s.what, postponed):
		require.Equal(t, before.Probes+1, next.Probes, "a postponement lands over what it has not read: %v", w.trail)
		require.Equal(t, before.Write, next.Write)
	}
}

// keepsOutcome requires that an outcome changes only as it may: a resolution gives way to
// another one that says so, and the attempt adds its result.
func (w *state) keepsOutcome(t *testing.T, what string, before, next *protocol.Record) {
	if before == nil || before.Expired(w.now) || before.State != protocol.Completed && before.State != protocol.Failed {
		return
	}
	switch {
	case strings.HasPrefix(what, resolvedAgain):
		require.True(t, before.Resolved, "an attempt's outcome is replaced: %v", w.trail)
	case what == erased:
		require.Nil(t, next)
	case what == prolonged && next.Write != before.Write:
		require.True(t, before.ExpiresAt.Before(next.ExpiresAt), "a prolongation shortens: %v", w.trail)
		after := next.Clone()
		after.Write, after.Seen, after.ExpiresAt, after.UpdatedAt = before.Write, before.Seen, before.ExpiresAt, before.UpdatedAt
		require.Equal(t, before, after, "a prolongation changes something else: %v", w.trail)
	default:
		after := next.Clone()
		after.Write, after.Omitted, after.Body = before.Write, before.Omitted, before.Body
		require.Equal(t, before, after, "an outcome changes: %v", w.trail)
		require.True(t, before.Omitted || reflect.DeepEqual(before.Body, next.Body), "a result changes: %v", w.trail)
	}
}

// check is what holds in every state.
func (w *state) check(t *testing.T) {
	if w.rec != nil {
		ended := w.rec.State == protocol.Completed || w.rec.State == protocol.Failed
		carriesNone := w.rec.Open() || w.rec.State == protocol.InProgress &&
			(w.rec.Repeat == protocol.NotRepeatable || len(w.rec.Steps) > 0)
		require.False(t, carriesNone && !w.rec.ExpiresAt.IsZero(), "an open question expires: %v: %+v", w.trail, w.rec)
		require.False(t, ended && w.rec.ExpiresAt.IsZero(), "an outcome never expires: %v", w.trail)
		due := w.rec.Open() || w.rec.State == protocol.InProgress && (w.rec.Repeat == protocol.NotRepeatable || w.rec.Interrupted())
		claimed := w.rec.State == protocol.InProgress && !due // by choice
		require.True(t, claimed || due == !w.rec.Due.IsZero(), "lost, or in the index for nothing: %v: %+v", w.trail, w.rec)
		require.True(t, w.rec.Due.IsZero() || w.rec.ExpiresAt.IsZero(), "what is due expires: %v: %+v", w.trail, w.rec)
		require.Equal(t, w.rec.Open(), !w.rec.OpenSince.IsZero(), "%v: %+v", w.trail, w.rec)
	}
	for _, a := range w.actors {
		if a.dirty && a.strict {
			require.NotNil(t, w.rec, "an open question is forgotten: %v", w.trail)
			require.Contains(t, []protocol.State{protocol.InProgress, protocol.Unknown}, w.rec.State,
				"an uncertain attempt is taken for ended: %v", w.trail)
		}
	}
}

// key names a state up to the names of its ids and the absolute time, so that
// equal states are walked once.
func (w *state) key() string {
	names := map[string]int{"": 0}
	id := func(s string) int {
		if _, ok := names[s]; !ok {
			names[s] = len(names)
		}
		return names[s]
	}
	at := func(at time.Time) time.Duration {
		if at.IsZero() {
			return -1
		}
		return max(at.Sub(w.now), 0)
	}
	var b strings.Builder
	record := func(r *protocol.Record) {
		fmt.Fprint(&b, r.State, r.Repeat, id(r.Owner), id(r.Write), r.Lapsed(w.now, skew), at(r.LeaseUntil), at(r.ExpiresAt),
			r.Uncertain, r.Omitted, len(r.Steps), r.Steps["charge"].Begun, r.Due.IsZero(), !r.Due.After(w.now), id(r.Sweep), r.Probes, r.EscalatedAt.IsZero(),
			r.Resolved, r.Unsettled, ";")
	}
	if w.rec != nil {
		record(w.rec)
	}
	for _, a := range w.actors {
		fmt.Fprint(&b, "|", a.running, a.dirty, a.strict, ":")
		record(&a.claim.Record)
	}
	for _, s := range w.late {
		fmt.Fprint(&b, "|", s.what)
		for _, x := range s.ids {
			fmt.Fprint(&b, " ", id(x))
		}
	}
	return b.String()
}

func TestNoPathRunsAgainAfterAnUncertainAttempt(t *testing.T) {
	depth := 5 // 54,000 states; 6 has ten times as many, and takes as much longer
	if os.Getenv("IDEM_LONG") == "1" {
		depth = 6
	}
	found := walk(t, []*state{{now: instant}}, depth, func(w *state) []*state {
		moves := append(w.call(t, caller{repeat: protocol.NotRepeatable}), w.call(t, caller{repeat: protocol.Repeatable})...)
		return append(moves, append(w.run(t), w.outside(t)...)...)
	})
	require.Greater(t, found, 10_000)
}

// walk goes through the states that are so many moves away, and returns how many there
// are.
func walk(t *testing.T, states []*state, depth int, moves func(*state) []*state) int {
	seen := map[string]bool{}
	for d := range depth {
		var next []*state
		known := len(seen)
		for _, w := range states {
			for _, v := range moves(w) {
				if k := v.key(); !seen[k] {
					seen[k] = true
					v.check(t)
					if d+1 < depth {
						next = append(next, v)
					}
				}
			}
		}
		states = next
		t.Logf("%d moves: %d states", d+1, len(seen)-known)
	}
	return len(seen)
}

// run is what the running handlers can do.
func (w *state) run(t *testing.T) (next []*state) {
	for i, a := range w.actors {
		if a.running {
			next = append(next, w.act(t, i)...)
		}
	}
	return next
}
