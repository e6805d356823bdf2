package protocol_test

import (
	"fmt"
	"os"
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
	open    bool // without a claim, because the store was down
	running bool
	// dirty: its handler may have taken effect, and nothing recorded says how.
	dirty bool
	// strict: it was claimed, or seen by another call, as not repeatable.
	strict bool
}

// sent is a write that is under way: it may land now, later, or several times.
type sent struct {
	what  string
	actor int // whose end it is, -1 if nobody's
	apply func(*protocol.Record, time.Time) (*protocol.Record, error)
	ids   []string
	// fenced: its caller was told that it has not landed.
	fenced bool
}

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
	again, err := s.apply(next.Clone(), w.now.Add(time.Second))
	require.NoError(t, err, "a repeated write lands again: %v", w.trail)
	require.Equal(t, next, again, "a repeated write changes nothing: %v", w.trail)
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
			w.actors[i].dirty = a.dirty && (a.strict || a.claim.Record.Owner == next.Owner)
		}
	}
	switch next.State {
	case protocol.Completed, protocol.Failed:
		for i := range w.actors {
			w.actors[i].dirty = false
		}
	case protocol.Unknown:
		for i, a := range w.actors {
			if next.Repeat == protocol.NotRepeatable && a.dirty && (!a.open || next.Owner == a.claim.Record.Owner) {
				w.actors[i].strict = true
			}
		}
	}
	return true
}

// newClaim is the claim that the engine makes of a decision.
func (w *state) newClaim(do protocol.Action, repeat protocol.Repeat) protocol.Claim {
	r := protocol.Record{
		ID: "t#op#x", State: protocol.InProgress, Repeat: repeat, Fingerprint: thisInput, Owner: w.id("o"), Write: w.id("w"),
		Attempt: 1, LeaseUntil: w.now.Add(walkLease), Retention: walkRetention, CreatedAt: w.now, UpdatedAt: w.now,
	}
	c := protocol.Claim{Replace: do == protocol.DoReplace}
	if w.rec != nil {
		c.Seen, r.Attempt = w.rec.Write, w.rec.Attempt+1
	}
	if do == protocol.DoTakeOver {
		if w.rec.Repeat == protocol.NotRepeatable {
			r.Repeat = protocol.NotRepeatable
		}
		r.CreatedAt, r.Steps = w.rec.CreatedAt, w.rec.Clone().Steps
		r.Uncertain = w.rec.Uncertain || w.rec.State == protocol.InProgress
	}
	if r.Repeat == protocol.Repeatable && len(r.Steps) == 0 {
		r.ExpiresAt = r.LeaseUntil.Add(walkRetention)
	}
	c.Record = r
	return c
}

func (w *state) withdrawal(c protocol.Claim) sent {
	wd := protocol.Withdrawal{Claim: c, Owner: w.id("o"), Write: w.id("w"), Uncertain: c.Record.Uncertain}
	if len(c.Record.Steps) == 0 {
		wd.ExpiresAt = w.now.Add(walkRetention)
	}
	return sent{"withdrawal", -1, wd.Apply, []string{wd.Owner, wd.Write, c.Record.Owner, c.Seen}, false}
}

// call is a call of a deployment with this declaration.
func (w state) call(t *testing.T, repeat protocol.Repeat) (next []*state) {
	name := "call " + repeat.String()
	d := protocol.Next(w.rec, protocol.Event{Kind: protocol.EventClaim, Fingerprint: thisInput, Repeat: repeat, Margin: skew}, w.now)
	switch d.Do {
	case protocol.DoPark:
		v := w.copy(name + " parks")
		s := protocol.Settlement{
			ID: v.rec.ID, Kind: protocol.EventLapse, Seen: v.rec.Write, Write: v.id("w"), Ending: protocol.Ending{
				State: protocol.Unknown, Uncertain: true,
				Stricter: repeat == protocol.NotRepeatable || v.rec.Repeat == protocol.NotRepeatable,
			},
		}
		late := sent{"park by another call", -1, s.Apply, []string{s.Write, s.Seen}, false}
		u := v.copy("later")
		u.late = append(u.late, late)
		require.True(t, v.land(t, late))
		return []*state{v, u}
	case protocol.DoCreate, protocol.DoReplace, protocol.DoTakeOver:
	default:
		return nil
	}
	// The claim lands and the handler runs.
	v := w.copy(name + " claims")
	for _, a := range v.actors {
		// An attempt without a claim is unknown to the record until it ends.
		seen := d.Do == protocol.DoTakeOver && repeat == protocol.NotRepeatable && !a.open
		require.False(t, a.dirty && (a.strict || seen), "runs again after an uncertain attempt: %v", v.trail)
	}
	if d.Do == protocol.DoTakeOver && w.rec.Steps["charge"].Begun {
		strict := repeat == protocol.NotRepeatable || w.rec.Repeat == protocol.NotRepeatable
		require.False(t, strict, "an open step does not park: %v", v.trail)
	}
	c := v.newClaim(d.Do, repeat)
	claim := sent{"claim", -1, c.Apply, []string{c.Record.Owner, c.Record.Write, c.Seen}, false}
	unknown := v.copy("reply lost") // neither landed nor withdrawn yet
	unknown.late = append(unknown.late, claim, unknown.withdrawal(c))
	withdrawn := v.copy("reply lost, withdrawn") // the claim is still under way
	require.True(t, withdrawn.land(t, withdrawn.withdrawal(c)))
	withdrawn.late = append(withdrawn.late, claim)
	if repeat == protocol.Repeatable {
		open := v.copy("fails open")
		fresh := c
		fresh.Seen, fresh.Replace, fresh.Record.Steps = "", false, nil
		open.late = append(open.late, sent{"claim", -1, fresh.Apply, []string{c.Record.Owner, c.Record.Write}, false})
		open.actors = append(open.actors, actor{claim: fresh, open: true, running: true, dirty: true})
		next = append(next, open)
	}
	require.True(t, v.land(t, claim))
	v.actors = append(v.actors, actor{claim: c, running: true, dirty: true, strict: c.Record.Repeat == protocol.NotRepeatable})
	return append(next, v, unknown, withdrawn)
}

// endings are how an attempt can end, by the engine's rules.
func (w *state) endings(a actor) map[string]protocol.Ending {
	r := a.claim.Record
	steps := len(r.Steps) > 0
	if w.rec != nil && w.rec.Owner == r.Owner {
		steps = len(w.rec.Steps) > 0
	}
	expires := w.now.Add(walkRetention)
	release := protocol.Ending{State: protocol.Released, Uncertain: r.Uncertain, ExpiresAt: expires}
	uncertain := protocol.Ending{State: protocol.Unknown, Uncertain: true}
	if r.Repeat == protocol.Repeatable {
		uncertain = protocol.Ending{State: protocol.Released, Uncertain: true, ExpiresAt: expires}
	}
	if steps {
		release.ExpiresAt, uncertain.ExpiresAt = time.Time{}, time.Time{}
	}
	return map[string]protocol.Ending{
		"completes": {State: protocol.Completed, ExpiresAt: expires}, "not executed": release, "uncertain": uncertain,
		"parks": {State: protocol.Unknown, Uncertain: true},
	}
}

// act is all that a running handler can do.
func (w state) act(t *testing.T, i int) (next []*state) {
	a := w.actors[i]
	r := a.claim.Record
	died := w.copy(r.Owner + " dies")
	died.actors[i].running = false
	next = append(next, died)
	for name, en := range w.endings(a) {
		v := w.copy(r.Owner + " " + name)
		v.actors[i].running = name == "parks" // the guard parks from the side
		if name == "not executed" {
			v.actors[i].dirty = false
		}
		f := protocol.Finish{ID: r.ID, Owner: r.Owner, Write: v.id("w"), Ending: en}
		if a.open {
			f.Attempt = protocol.Unclaimed{Record: r}
		}
		if name == "completes" {
			next = append(next, v.completesWithoutResult(t, i, f)...)
		}
		end := sent{what: name, actor: i, apply: f.Apply, ids: []string{f.Owner, f.Write}}
		queued := v.copy("later")
		queued.late = append(queued.late, end)
		v.land(t, end)
		next = append(next, v, queued)
	}
	if a.open {
		return next
	}
	if v := w.commitInDoubt(t, i); v != nil {
		next = append(next, v)
	}
	for name, s := range map[string]protocol.StepWrite{"records": {Name: "ship"}, "begins": {Name: "charge", Begin: true}} {
		v := w.copy(r.Owner + " " + name)
		s.ID, s.Owner, s.Write = r.ID, r.Owner, v.id("w")
		open := w.rec != nil && w.rec.Steps["charge"].Begun
		if v.land(t, sent{name, i, s.Apply, nil, false}) {
			require.False(t, s.Begin && open, "an open step runs again: %v", v.trail)
			next = append(next, v)
		}
	}
	v := w.copy(r.Owner + " extends")
	e := protocol.Extension{ID: r.ID, Owner: r.Owner, Write: v.id("w"), LeaseUntil: v.now.Add(walkLease)}
	if !r.ExpiresAt.IsZero() {
		e.ExpiresAt = e.LeaseUntil.Add(walkRetention)
	}
	v.late = append(v.late, sent{"extension", i, e.Apply, []string{e.Owner, e.Write}, false})
	return append(next, v)
}

// completesWithoutResult is a completion that is written, now or later, before its
// result, which is under way.
func (w state) completesWithoutResult(t *testing.T, i int, whole protocol.Finish) (next []*state) {
	v := w.copy("first without its result")
	fact, result := whole, whole
	fact.Write, fact.Ending.Omitted = v.id("w"), true
	result.Attempt = protocol.WithoutResult{Write: fact.Write}
	v.late = append(v.late, sent{what: "result", actor: i, apply: result.Apply, ids: []string{whole.Owner, whole.Write, fact.Write}})
	end := sent{what: "fact", actor: i, apply: fact.Apply, ids: []string{fact.Owner, fact.Write}}
	queued := v.copy("later")
	queued.late = append(queued.late, end)
	v.land(t, end)
	return []*state{v, queued}
}

// commitInDoubt is an end with business writes whose request is under way, and
// which is fenced. It returns nil if the fence does not land.
func (w state) commitInDoubt(t *testing.T, i int) *state {
	v := w.copy(w.actors[i].claim.Record.Owner + " commits, in doubt")
	r := v.actors[i].claim.Record
	f := protocol.Finish{ID: r.ID, Owner: r.Owner, Write: v.id("w"), Ending: v.endings(v.actors[i])["completes"]}
	fence := protocol.Finish{ID: r.ID, Owner: r.Owner, NewOwner: v.id("o"), Write: v.id("w"), Ending: v.endings(v.actors[i])["uncertain"]}
	if v.rec != nil && v.rec.State == protocol.Unknown {
		fence.Ending = protocol.Ending{State: protocol.Unknown, Uncertain: true}
	}
	v.actors[i].running = false
	if !v.land(t, sent{"fence", i, fence.Apply, nil, false}) {
		return nil
	}
	v.late = append(v.late, sent{"commit", i, f.Apply, []string{f.Owner, f.Write}, true})
	return v
}

// outside is what happens without any call: time, TTL, people, late deliveries.
func (w state) outside(t *testing.T) (next []*state) {
	for name, d := range map[string]time.Duration{"lease over": walkLease + skew + 1, "retention over": 3 * walkRetention} {
		v := w.copy(name)
		v.now = v.now.Add(d)
		next = append(next, v)
	}
	if w.rec != nil && !w.rec.ExpiresAt.IsZero() && !w.now.Before(w.rec.ExpiresAt) {
		v := w.copy("TTL deletes")
		v.rec = nil
		next = append(next, v)
	}
	for _, s := range w.late {
		v := w.copy("delivers " + s.what)
		if v.land(t, s) {
			require.False(t, s.fenced, "a commit lands that its caller was told had not: %v", v.trail)
			next = append(next, v)
		}
	}
	if w.rec == nil {
		return next
	}
	ev := protocol.Event{Kind: protocol.EventResolve, Seen: w.rec.Write, To: protocol.Released, Margin: skew}
	if protocol.Next(w.rec, ev, w.now).Do == protocol.DoApply {
		v := w.copy("resolved")
		s := protocol.Settlement{
			ID: v.rec.ID, Kind: protocol.EventResolve, Seen: v.rec.Write, Owner: v.id("o"), Write: v.id("w"),
			Ending: protocol.Ending{State: protocol.Released}, ClearSteps: []string{"charge"},
		}
		if _, kept := v.rec.Steps["ship"]; !kept {
			s.Ending.ExpiresAt = v.now.Add(walkRetention)
		}
		require.True(t, v.land(t, sent{"resolution", -1, s.Apply, nil, false}))
		for i := range v.actors {
			v.actors[i].dirty = false
		}
		next = append(next, v)
	}
	return next
}

// check is what holds in every state.
func (w *state) check(t *testing.T) {
	if w.rec != nil {
		ended := w.rec.State == protocol.Completed || w.rec.State == protocol.Failed
		carriesNone := w.rec.Open() || w.rec.State == protocol.InProgress &&
			(w.rec.Repeat == protocol.NotRepeatable || len(w.rec.Steps) > 0)
		require.False(t, carriesNone && !w.rec.ExpiresAt.IsZero(), "an open question expires: %v: %+v", w.trail, w.rec)
		require.False(t, ended && w.rec.ExpiresAt.IsZero(), "an outcome never expires: %v", w.trail)
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
			r.Uncertain, r.Omitted, len(r.Steps), r.Steps["charge"].Begun, ";")
	}
	if w.rec != nil {
		record(w.rec)
	}
	for _, a := range w.actors {
		fmt.Fprint(&b, "|", a.open, a.running, a.dirty, a.strict, ":")
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
	states := []*state{{now: instant}}
	seen := map[string]bool{}
	for d := range depth {
		var next []*state
		for _, w := range states {
			moves := append(w.call(t, protocol.NotRepeatable), w.call(t, protocol.Repeatable)...)
			for i, a := range w.actors {
				if a.running {
					moves = append(moves, w.act(t, i)...)
				}
			}
			for _, v := range append(moves, w.outside(t)...) {
				if k := v.key(); !seen[k] {
					seen[k] = true
					v.check(t)
					next = append(next, v)
				}
			}
		}
		states = next
		t.Logf("%d moves: %d states", d+1, len(states))
	}
	require.Greater(t, len(seen), 10_000)
}
