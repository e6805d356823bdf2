package protocol_test

import (
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
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
	apply func(*protocol.Record, time.Time) (*protocol.Record, error)
	ids   []string
	// fenced: its caller has learned that it has not landed.
	fenced bool
	// seen is the write that its sender had read, of a write from outside.
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

// settled requires what holds for the writes from outside. A release waits until no attempt can be running. A question
// is due when it is opened and is never forgotten. A postponement follows what it has read.
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
		after.Write, after.Seen, after.ExpiresAt, after.UpdatedAt = before.Write, before.Seen,
			before.ExpiresAt, before.UpdatedAt
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
		due := w.rec.Open() || w.rec.State == protocol.InProgress &&
			(w.rec.Repeat == protocol.NotRepeatable || w.rec.Interrupted())
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

// key names a state up to the names of its ids and the absolute time, so that equal states are walked once.
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
			r.Uncertain, r.Omitted, len(r.Steps), r.Steps["charge"].Begun, r.Due.IsZero(), !r.Due.After(w.now), id(r.Sweep),
			r.Probes, r.EscalatedAt.IsZero(), r.Resolved, r.Unsettled, ";")
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

// walk goes through the states that are so many moves away, and returns how many there are.
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

// newClaim is the claim that the engine makes of a decision.
func (w *state) newClaim(do protocol.Action, c caller) protocol.Claim {
	r := protocol.Record{ID: "t#op#x", State: protocol.InProgress, Repeat: c.repeat, Fingerprint: thisInput,
		Owner: w.id("o"), Write: w.id("w"), Attempt: 1, LeaseUntil: w.now.Add(walkLease), Retention: walkRetention,
		CreatedAt: w.now, UpdatedAt: w.now}
	watch := protocol.WatchNotRepeatable
	if c.watched {
		watch = protocol.WatchAlways
	}
	return r.Over(w.rec, do, watch, skew)
}

func (w *state) withdrawal(c protocol.Claim) sent {
	wd := protocol.Withdrawal{Claim: c, Owner: w.id("o"), Write: w.id("w"), Uncertain: c.Record.Uncertain}
	if len(c.Record.Steps) == 0 {
		wd.ExpiresAt = w.now.Add(walkRetention)
	}
	return sent{what: "withdrawal", apply: wd.Apply, ids: []string{wd.Owner, wd.Write, c.Record.Owner, c.Seen}}
}

// caller is what a deployment says of its operation. One that is not repeatable is watched.
type caller struct {
	repeat      protocol.Repeat
	watched     bool
	maxAttempts int
}

// call is a call of a deployment.
func (w state) call(t *testing.T, by caller) (next []*state) {
	repeat := by.repeat
	name := "call " + repeat.String()
	d := protocol.Next(w.rec, protocol.Event{Kind: protocol.EventClaim, Fingerprint: thisInput, Repeat: repeat,
		MaxAttempts: by.maxAttempts, Margin: skew}, w.now)
	switch d.Do {
	case protocol.DoPark:
		v := w.copy(name + " parks")
		s := protocol.Settlement{
			ID: v.rec.ID, Kind: protocol.EventLapse, Seen: v.rec.Write, Write: v.id("w"), Ending: protocol.Ending{
				State: protocol.Unknown, Uncertain: true,
				Stricter: repeat == protocol.NotRepeatable || v.rec.Repeat == protocol.NotRepeatable,
			},
		}
		late := sent{what: "park by another call", apply: s.Apply, ids: []string{s.Write, s.Seen}, seen: s.Seen}
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
		seen := d.Do == protocol.DoTakeOver && repeat == protocol.NotRepeatable
		require.False(t, a.dirty && (a.strict || seen), "runs again after an uncertain attempt: %v", v.trail)
	}
	if d.Do == protocol.DoTakeOver && w.rec.Steps["charge"].Begun {
		strict := repeat == protocol.NotRepeatable || w.rec.Repeat == protocol.NotRepeatable
		require.False(t, strict, "an open step does not park: %v", v.trail)
	}
	if d.Do == protocol.DoTakeOver && by.maxAttempts > 0 {
		require.Less(t, v.uncertain(), by.maxAttempts, "runs too often: %v", v.trail)
	}
	c := v.newClaim(d.Do, by)
	claim := sent{what: "claim", apply: c.Apply, ids: []string{c.Record.Owner, c.Record.Write, c.Seen}}
	unknown := v.copy("reply lost") // neither landed nor withdrawn yet
	unknown.late = append(unknown.late, claim, unknown.withdrawal(c))
	withdrawn := v.copy("reply lost, withdrawn") // the claim is still under way
	require.True(t, withdrawn.land(t, withdrawn.withdrawal(c)))
	withdrawn.late = append(withdrawn.late, claim)
	require.True(t, v.land(t, claim))
	v.actors = append(v.actors, actor{claim: c, running: true, dirty: true,
		strict: c.Record.Repeat == protocol.NotRepeatable, maxAttempts: by.maxAttempts})
	return append(next, v, unknown, withdrawn)
}

// uncertain counts the attempts that may have taken effect.
func (w *state) uncertain() (n int) {
	for _, a := range w.actors {
		if a.dirty {
			n++
		}
	}
	return n
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
	if r.Repeat == protocol.Repeatable && (a.maxAttempts == 0 || r.Unsettled+1 < a.maxAttempts) {
		uncertain = protocol.Ending{State: protocol.Released, Uncertain: true, Unsettled: r.Unsettled + 1, ExpiresAt: expires}
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
		if name == "completes" {
			next = append(next, v.completesWithoutResult(t, i, f)...)
		}
		end := sent{what: name, apply: f.Apply, ids: []string{f.Owner, f.Write}}
		queued := v.copy("later")
		queued.late = append(queued.late, end)
		v.land(t, end)
		next = append(next, v, queued)
	}
	if v := w.commitInDoubt(t, i); v != nil {
		next = append(next, v)
	}
	steps := map[string]protocol.StepWrite{"records": {Name: "ship"},
		"begins": {Name: "charge", Begin: true, Due: r.LeaseUntil.Add(skew)}}
	if w.rec != nil && w.rec.Steps["charge"].FromResolution {
		said := w.rec.Steps["charge"].Write
		steps["reads"] = protocol.StepWrite{Name: "charge", Read: true, Seen: said}
		steps["cannot read"] = protocol.StepWrite{Name: "charge", Unread: true, Seen: said, Due: r.LeaseUntil.Add(skew)}
	}
	for name, s := range steps {
		v := w.copy(r.Owner + " " + name)
		s.ID, s.Owner, s.Write = r.ID, r.Owner, v.id("w")
		open := w.rec != nil && w.rec.Steps["charge"].Begun
		if v.land(t, sent{what: name, apply: s.Apply}) {
			require.False(t, s.Begin && open, "an open step runs again: %v", v.trail)
			next = append(next, v)
		}
	}
	v := w.copy(r.Owner + " extends")
	e := protocol.Extension{ID: r.ID, Owner: r.Owner, Write: v.id("w"), LeaseUntil: v.now.Add(walkLease)}
	if !r.ExpiresAt.IsZero() {
		e.ExpiresAt = e.LeaseUntil.Add(walkRetention)
	}
	v.late = append(v.late, sent{what: "extension", apply: e.Apply, ids: []string{e.Owner, e.Write}})
	return append(next, v)
}

// completesWithoutResult is a completion that is written, now or later, before its result, which is under way.
func (w state) completesWithoutResult(t *testing.T, i int, whole protocol.Finish) (next []*state) {
	v := w.copy("first without its result")
	fact, result := whole, whole
	fact.Write, fact.Ending.Omitted = v.id("w"), true
	result.Attempt = protocol.WithoutResult{Write: fact.Write}
	v.late = append(v.late, sent{what: "result", apply: result.Apply,
		ids: []string{whole.Owner, whole.Write, fact.Write}})
	end := sent{what: "fact", apply: fact.Apply, ids: []string{fact.Owner, fact.Write}}
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
	fence := protocol.Finish{ID: r.ID, Owner: r.Owner, NewOwner: v.id("o"), Write: v.id("w"),
		Ending: v.endings(v.actors[i])["uncertain"]}
	if v.rec != nil && v.rec.State == protocol.Unknown {
		fence.Ending = protocol.Ending{State: protocol.Unknown, Uncertain: true}
	}
	v.actors[i].running = false
	if !v.land(t, sent{what: "fence", apply: fence.Apply}) {
		return nil
	}
	v.late = append(v.late, sent{what: "commit", apply: f.Apply, ids: []string{f.Owner, f.Write}, fenced: true})
	return v
}

// outside is what happens without any call: time, TTL, operators, late deliveries.
func (w state) outside(t *testing.T) (next []*state) {
	for name, d := range map[string]time.Duration{"lease over": walkLease + skew + 1,
		"retention over": 3 * walkRetention} {
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
			require.False(t, s.fenced, "a commit lands, and its caller had learned that it had not: %v", v.trail)
			next = append(next, v)
		}
	}
	if w.rec == nil {
		return next
	}
	ev := protocol.Event{Kind: protocol.EventResolve, Seen: w.rec.Write, To: protocol.Released, Margin: skew}
	if protocol.Next(w.rec, ev, w.now).Do == protocol.DoApply {
		v := w.copy("resolved")
		s := v.resolve(protocol.Released, false)
		require.True(t, v.land(t, s))
		next = append(next, v)
	}
	return next
}

// What follows walks through all that may happen to a record whose question is open, or
// soon will be: two sweeps that read now and write later, a webhook, an operator, the late
// attempt, a client's retry, lost replies, and operators who forget a record.

// settle is what can be done from outside about the record as it is: one write, which lands now, or is under way. Who
// sends it makes no difference, nor how many have: each lands if the record is still what its sender has read.
func (w *state) settle(t *testing.T) (next []*state) {
	for _, make := range w.writes() {
		v := w.copy("")
		s := make(v)
		v.trail[len(v.trail)-1] = s.what
		late := v.copy("later")
		late.late = append(late.late, s)
		require.True(t, v.land(t, s), "what was read is refused: %v", v.trail)
		next = append(next, v, late)
	}
	return next
}

// writes are the writes from outside to the record as it is, by the rules of package reconcile.
func (w *state) writes() (all []func(*state) sent) {
	can := func(ev protocol.Event) bool {
		ev.Seen, ev.Margin = w.rec.Write, skew
		return protocol.Next(w.rec, ev, w.now).Do == protocol.DoApply
	}
	if w.rec == nil {
		return nil
	}
	if w.rec.State == protocol.InProgress && w.rec.Lapsed(w.now, skew) &&
		(w.rec.Repeat == protocol.NotRepeatable || w.rec.Interrupted()) {
		all = append(all, (*state).lapse)
	} else if w.rec.State == protocol.InProgress {
		return nil
	}
	if !w.rec.Due.After(w.now) && can(protocol.Event{Kind: protocol.EventPostpone, Sweep: w.rec.Sweep}) {
		all = append(all, func(v *state) sent { return v.postpone(false) })
		if w.rec.Open() && w.rec.EscalatedAt.IsZero() {
			all = append(all, func(v *state) sent { return v.postpone(true) })
		}
	}
	if can(protocol.Event{Kind: protocol.EventForget}) {
		all = append(all, (*state).forget)
	}
	if can(protocol.Event{Kind: protocol.EventProlong, ExpiresAt: w.now.Add(2 * walkRetention)}) {
		all = append(all, (*state).prolong)
	}
	for _, to := range []protocol.State{protocol.Completed, protocol.Failed, protocol.Released} {
		again := w.rec.Resolved
		if can(protocol.Event{Kind: protocol.EventResolve, To: to, Again: again}) {
			all = append(all, func(v *state) sent { return v.resolve(to, again) })
			if to == protocol.Released && w.rec.Interrupted() {
				all = append(all, func(v *state) sent { return v.goesOn(again) })
			}
		}
	}
	return all
}

// lapse parks the claim of a process that died.
func (w *state) lapse() sent {
	s := protocol.Settlement{
		ID: w.rec.ID, Kind: protocol.EventLapse, Seen: w.rec.Write, Write: w.id("w"),
		Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true},
	}
	return sent{what: "park from outside", apply: s.Apply, ids: []string{s.Write, s.Seen}, seen: s.Seen}
}

func (w *state) resolve(to protocol.State, again bool) sent {
	s := protocol.Settlement{
		ID: w.rec.ID, Kind: protocol.EventResolve, Seen: w.rec.Write, Owner: w.id("o"), Write: w.id("w"), Again: again,
		Ending: protocol.Ending{State: to, ExpiresAt: w.now.Add(walkRetention)}, ClearSteps: []string{"charge"},
	}
	if to == protocol.Completed {
		s.Ending.Result = []byte(s.Write)
	}
	if _, kept := w.rec.Steps["ship"]; kept && to == protocol.Released {
		s.Ending.ExpiresAt = time.Time{}
	}
	what := "resolution to " + string(to)
	if again {
		what = resolvedAgain + string(to)
	}
	return sent{what: what, apply: s.Apply, ids: []string{s.Owner, s.Write, s.Seen},
		seen: s.Seen, settles: true}
}

// goesOn is a resolution to released that says what the open step did.
func (w *state) goesOn(again bool) sent {
	sure := w.resolve(protocol.Released, again)
	s := protocol.Settlement{
		ID: w.rec.ID, Kind: protocol.EventResolve, Seen: w.rec.Write, Owner: sure.ids[0], Write: sure.ids[1], Again: again,
		Ending: protocol.Ending{State: protocol.Released},
		Steps:  []protocol.StepWrite{{Name: "charge", Result: []byte("ch_1")}},
	}
	sure.what, sure.apply = "resolution that goes on", s.Apply
	return sure
}

func (w *state) postpone(escalate bool) sent {
	p := protocol.Postponement{ID: w.rec.ID, Seen: w.rec.Write, SeenSweep: w.rec.Sweep, Sweep: w.id("s"),
		Due: w.now.Add(time.Minute), Probes: w.rec.Probes + 1, EscalatedAt: w.rec.EscalatedAt}
	if escalate {
		p.EscalatedAt = w.now
	}
	return sent{what: postponed + fmt.Sprint(", escalated: ", escalate), apply: p.Apply,
		ids: []string{p.Seen, p.SeenSweep, p.Sweep}, seen: p.Seen}
}

func (w *state) forget() sent {
	e := protocol.Erasure{ID: w.rec.ID, Seen: w.rec.Write}
	return sent{what: erased, apply: e.Apply, ids: []string{e.Seen}, seen: e.Seen}
}

func (w *state) prolong() sent {
	p := protocol.Prolongation{ID: w.rec.ID, Seen: w.rec.Write, Write: w.id("w"), ExpiresAt: w.now.Add(2 * walkRetention)}
	return sent{what: prolonged, apply: p.Apply, ids: []string{p.Seen, p.Write}, seen: p.Seen}
}

// questions are the states from which questions come: a claim that runs, and one that
// died, with and without an open step, as the operation's first attempt and as a later one.
func questions(t *testing.T, by caller) (all []*state) {
	empty := &state{now: instant}
	for _, w := range empty.call(t, by) {
		if len(w.actors) != 1 {
			continue
		}
		all = append(all, w)
		for _, v := range w.act(t, 0) {
			if len(v.late) > 0 || v.rec.State != protocol.InProgress {
				continue
			}
			all = append(all, v)
			lapsed := v.copy("lease over")
			lapsed.now = v.now.Add(walkLease + skew + 1)
			all = append(all, lapsed)
			all = append(all, lapsed.settle(t)...)
		}
	}
	return all
}

func TestOneOutcomeForAllWhoSettleIt(t *testing.T) {
	for name, by := range map[string]caller{
		"not repeatable":               {repeat: protocol.NotRepeatable},
		"repeatable, watched, bounded": {repeat: protocol.Repeatable, watched: true, maxAttempts: 2},
	} {
		t.Run(name, func(t *testing.T) {
			depth := 3 // 76,000 and 61,000 states; 4 has eight times as many
			if os.Getenv("IDEM_LONG") == "1" {
				depth = 4
			}
			found := walk(t, questions(t, by), depth, func(w *state) []*state {
				return append(append(w.call(t, by), w.run(t)...), append(w.settle(t), w.outside(t)...)...)
			})
			require.Greater(t, found, 10_000)
		})
	}
}
