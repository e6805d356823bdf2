package protocol_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// newClaim is the claim that the engine makes of a decision.
func (w *state) newClaim(do protocol.Action, c caller) protocol.Claim {
	repeat := c.repeat
	r := protocol.Record{
		ID: "t#op#x", State: protocol.InProgress, Repeat: repeat, Fingerprint: thisInput, Owner: w.id("o"), Write: w.id("w"),
		Attempt: 1, LeaseUntil: w.now.Add(walkLease), Retention: walkRetention, CreatedAt: w.now, UpdatedAt: w.now,
	}
	claim := protocol.Claim{Replace: do == protocol.DoReplace}
	if w.rec != nil {
		claim.Seen, r.Attempt = w.rec.Write, w.rec.Attempt+1
	}
	if do == protocol.DoTakeOver {
		if w.rec.Repeat == protocol.NotRepeatable {
			r.Repeat = protocol.NotRepeatable
		}
		r.CreatedAt, r.Steps = w.rec.CreatedAt, w.rec.Clone().Steps
		r.Uncertain = w.rec.Uncertain || w.rec.State == protocol.InProgress
		if r.Uncertain {
			r.Unsettled = w.rec.Unsettled
		}
		if w.rec.State == protocol.InProgress {
			r.Unsettled++
		}
	}
	if c.watched || r.Repeat == protocol.NotRepeatable {
		r.Due = r.LeaseUntil.Add(skew)
	} else if len(r.Steps) > 0 && !w.rec.Due.IsZero() {
		r.Due = r.LeaseUntil.Add(skew)
		if w.rec.Due.Before(r.Due) {
			r.Due = w.rec.Due
		}
	} else if len(r.Steps) == 0 {
		r.ExpiresAt = r.LeaseUntil.Add(walkRetention)
	}
	claim.Record = r
	return claim
}

func (w *state) withdrawal(c protocol.Claim) sent {
	wd := protocol.Withdrawal{Claim: c, Owner: w.id("o"), Write: w.id("w"), Uncertain: c.Record.Uncertain}
	if len(c.Record.Steps) == 0 {
		wd.ExpiresAt = w.now.Add(walkRetention)
	}
	return sent{what: "withdrawal", actor: -1, apply: wd.Apply, ids: []string{wd.Owner, wd.Write, c.Record.Owner, c.Seen}}
}

// caller is what a deployment says of its operation. One that is not repeatable is
// watched.
type caller struct {
	repeat      protocol.Repeat
	watched     bool
	maxAttempts int
}

// call is a call of a deployment.
func (w state) call(t *testing.T, by caller) (next []*state) {
	repeat := by.repeat
	name := "call " + repeat.String()
	d := protocol.Next(w.rec, protocol.Event{
		Kind: protocol.EventClaim, Fingerprint: thisInput, Repeat: repeat, MaxAttempts: by.maxAttempts, Margin: skew,
	}, w.now)
	switch d.Do {
	case protocol.DoPark:
		v := w.copy(name + " parks")
		s := protocol.Settlement{
			ID: v.rec.ID, Kind: protocol.EventLapse, Seen: v.rec.Write, Write: v.id("w"), Ending: protocol.Ending{
				State: protocol.Unknown, Uncertain: true,
				Stricter: repeat == protocol.NotRepeatable || v.rec.Repeat == protocol.NotRepeatable,
			},
		}
		late := sent{what: "park by another call", actor: -1, apply: s.Apply, ids: []string{s.Write, s.Seen}, seen: s.Seen}
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
	claim := sent{what: "claim", actor: -1, apply: c.Apply, ids: []string{c.Record.Owner, c.Record.Write, c.Seen}}
	unknown := v.copy("reply lost") // neither landed nor withdrawn yet
	unknown.late = append(unknown.late, claim, unknown.withdrawal(c))
	withdrawn := v.copy("reply lost, withdrawn") // the claim is still under way
	require.True(t, withdrawn.land(t, withdrawn.withdrawal(c)))
	withdrawn.late = append(withdrawn.late, claim)
	require.True(t, v.land(t, claim))
	v.actors = append(v.actors, actor{
		claim: c, running: true, dirty: true, strict: c.Record.Repeat == protocol.NotRepeatable, maxAttempts: by.maxAttempts,
	})
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
		end := sent{what: name, actor: i, apply: f.Apply, ids: []string{f.Owner, f.Write}}
		queued := v.copy("later")
		queued.late = append(queued.late, end)
		v.land(t, end)
		next = append(next, v, queued)
	}
	if v := w.commitInDoubt(t, i); v != nil {
		next = append(next, v)
	}
	steps := map[string]protocol.StepWrite{"records": {Name: "ship"}, "begins": {Name: "charge", Begin: true, Due: r.LeaseUntil.Add(skew)}}
	if w.rec != nil && w.rec.Steps["charge"].FromResolution {
		said := w.rec.Steps["charge"].Write
		steps["reads"] = protocol.StepWrite{Name: "charge", Read: true, Seen: said}
		steps["cannot read"] = protocol.StepWrite{Name: "charge", Unread: true, Seen: said, Due: r.LeaseUntil.Add(skew)}
	}
	for name, s := range steps {
		v := w.copy(r.Owner + " " + name)
		s.ID, s.Owner, s.Write = r.ID, r.Owner, v.id("w")
		open := w.rec != nil && w.rec.Steps["charge"].Begun
		if v.land(t, sent{what: name, actor: i, apply: s.Apply}) {
			require.False(t, s.Begin && open, "an open step runs again: %v", v.trail)
			next = append(next, v)
		}
	}
	v := w.copy(r.Owner + " extends")
	e := protocol.Extension{ID: r.ID, Owner: r.Owner, Write: v.id("w"), LeaseUntil: v.now.Add(walkLease)}
	if !r.ExpiresAt.IsZero() {
		e.ExpiresAt = e.LeaseUntil.Add(walkRetention)
	}
	v.late = append(v.late, sent{what: "extension", actor: i, apply: e.Apply, ids: []string{e.Owner, e.Write}})
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
	if !v.land(t, sent{what: "fence", actor: i, apply: fence.Apply}) {
		return nil
	}
	v.late = append(v.late, sent{what: "commit", actor: i, apply: f.Apply, ids: []string{f.Owner, f.Write}, fenced: true})
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
		s := v.resolve(protocol.Released, false)
		require.True(t, v.land(t, s))
		next = append(next, v)
	}
	return next
}
