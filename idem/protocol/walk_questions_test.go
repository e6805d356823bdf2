package protocol_test

import (
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// What follows walks through all that may happen to a record whose question is open, or
// soon will be: two sweeps that read now and write later, a webhook, an operator, the late
// attempt, a client's retry, lost replies, and people who forget a record.

// settle is what can be done from outside about the record as it is: one write, which
// lands now, or is under way. Who sends it makes no difference, nor how many have: each
// lands if the record is still what its sender has read.
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

// writes are the writes from outside to the record as it is, by the rules of package
// reconcile.
func (w *state) writes() (all []func(*state) sent) {
	can := func(ev protocol.Event) bool {
		ev.Seen, ev.Margin = w.rec.Write, skew
		return protocol.Next(w.rec, ev, w.now).Do == protocol.DoApply
	}
	if w.rec == nil {
		return nil
	}
	if w.rec.State == protocol.InProgress && w.rec.Lapsed(w.now, skew) && (w.rec.Repeat == protocol.NotRepeatable || w.rec.Interrupted()) {
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
	return sent{what: "park from outside", actor: -1, apply: s.Apply, ids: []string{s.Write, s.Seen}, seen: s.Seen}
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
	return sent{what: what, actor: -1, apply: s.Apply, ids: []string{s.Owner, s.Write, s.Seen}, seen: s.Seen, settles: true}
}

// goesOn is a resolution to released that says what the open step did.
func (w *state) goesOn(again bool) sent {
	sure := w.resolve(protocol.Released, again)
	s := protocol.Settlement{
		ID: w.rec.ID, Kind: protocol.EventResolve, Seen: w.rec.Write, Owner: sure.ids[0], Write: sure.ids[1], Again: again,
		Ending: protocol.Ending{State: protocol.Released}, Steps: []protocol.StepWrite{{Name: "charge", Result: []byte("ch_1")}},
	}
	sure.what, sure.apply = "resolution that goes on", s.Apply
	return sure
}

func (w *state) postpone(escalate bool) sent {
	p := protocol.Postponement{
		ID: w.rec.ID, Seen: w.rec.Write, SeenSweep: w.rec.Sweep, Sweep: w.id("s"),
		Due: w.now.Add(time.Minute), Probes: w.rec.Probes + 1, EscalatedAt: w.rec.EscalatedAt,
	}
	if escalate {
		p.EscalatedAt = w.now
	}
	return sent{what: postponed + fmt.Sprint(", escalated: ", escalate), actor: -1, apply: p.Apply, ids: []string{p.Seen, p.SeenSweep, p.Sweep}, seen: p.Seen}
}

func (w *state) forget() sent {
	e := protocol.Erasure{ID: w.rec.ID, Seen: w.rec.Write}
	return sent{what: erased, actor: -1, apply: e.Apply, ids: []string{e.Seen}, seen: e.Seen}
}

func (w *state) prolong() sent {
	p := protocol.Prolongation{ID: w.rec.ID, Seen: w.rec.Write, Write: w.id("w"), ExpiresAt: w.now.Add(2 * walkRetention)}
	return sent{what: prolonged, actor: -1, apply: p.Apply, ids: []string{p.Seen, p.Write}, seen: p.Seen}
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

func TestOneOutcomeWhoeverSettlesIt(t *testing.T) {
	for name, c := range map[string]struct {
		by caller
	}{
		"not repeatable":               {caller{repeat: protocol.NotRepeatable}},
		"repeatable, watched, bounded": {caller{repeat: protocol.Repeatable, watched: true, maxAttempts: 2}},
	} {
		t.Run(name, func(t *testing.T) {
			depth := 3 // 76,000 and 61,000 states; 4 has eight times as many
			if os.Getenv("IDEM_LONG") == "1" {
				depth = 4
			}
			found := walk(t, questions(t, c.by), depth, func(w *state) []*state {
				return append(append(w.call(t, c.by), w.run(t)...), append(w.settle(t), w.outside(t)...)...)
			})
			require.Greater(t, found, 10_000)
		})
	}
}
