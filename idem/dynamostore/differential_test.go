package dynamostore

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// reference is a store of the Apply methods alone.
type reference map[string]*protocol.Record

func (r reference) apply(id string, apply func(*protocol.Record, time.Time) (*protocol.Record, error), now time.Time) error {
	next, err := apply(r[id].Clone(), now)
	if err != nil {
		return err
	}
	if next == nil {
		delete(r, id)
		return nil
	}
	r[id] = next.Clone()
	return nil
}

// Every write, in random order over a few keys, does to DynamoDB what its Apply
// method does to a record, and says the same about it.
func TestWritesEqualTheirReference(t *testing.T) {
	t.Parallel()
	const seeds, writes = 12, 120
	for seed := range uint64(seeds) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			f := open(t, nil)
			q := f.adminStore(t)
			g := &generator{table: f.table, Rand: rand.New(rand.NewPCG(seed, 1)), ref: reference{}, marks: seed%2 == 0}
			landed := map[int]bool{}
			for n := range writes {
				now := base.Add(time.Duration(n) * time.Second)
				id := fmt.Sprintf("t#op#key%d", g.IntN(3))
				w := g.write(id, now)
				want := g.ref.apply(id, w.apply, now)
				got := w.send(q, now)
				at := fmt.Sprintf("write %d: %s on %s: %.2000s", n, w.name, id, fmt.Sprintf("%+v", w.what))
				if want != nil && got == nil && w.audited && landed[w.n] {
					want = nil // DynamoDB remembers for ten minutes that the transaction has landed
				}
				landed[w.n] = landed[w.n] || got == nil
				sameError(t, f.Store, want, got, at)
				sameRecord(t, f.Store, g.ref[id], f.get(t, id), at)
				indexed(t, f.raw(t, id), g.ref[id], at)
			}
		})
	}
}

func sameError(t *testing.T, s *Store, want, got error, at string) {
	t.Helper()
	if want == nil {
		require.NoError(t, got, at)
		return
	}
	var w, g *protocol.ConflictError
	require.ErrorAs(t, want, &w, at)
	require.ErrorAs(t, got, &g, at)
	sameRecord(t, s, w.Existing, g.Existing, at)
}

func sameRecord(t *testing.T, s *Store, want, got *protocol.Record, at string) {
	t.Helper()
	if want == nil {
		require.Nil(t, got, at)
		return
	}
	require.NotNil(t, got, at)
	w, g := want.Clone(), got.Clone()
	if w.Open() {
		// What must never expire carries no expiry, whatever it was given.
		w.ExpiresAt = time.Time{}
	}
	if w.State == protocol.Completed {
		b, err := s.Result(context.Background(), got)
		require.NoError(t, err, at)
		require.True(t, bytes.Equal(w.Body.Data, b), at)
		require.Equal(t, w.Body.Size, g.Body.Size, at)
		w.Body, g.Body = protocol.Body{}, protocol.Body{}
	}
	for n, step := range w.Steps {
		if !step.Begun && !step.NotExecuted && step.Failure == nil {
			b, err := s.StepResult(context.Background(), got, n)
			require.NoError(t, err, at)
			require.True(t, bytes.Equal(step.Body.Data, b), at)
		}
	}
	for _, r := range []*protocol.Record{w, g} {
		if len(r.Steps) == 0 {
			r.Steps = nil
		}
		for n, s := range r.Steps {
			s.Body = protocol.Body{Size: s.Body.Size}
			r.Steps[n] = s
		}
	}
	require.Equal(t, w, g, at)
}

// indexed shows that exactly what is due is in the index, and that open questions are,
// and never expire.
func indexed(t *testing.T, it item, rec *protocol.Record, at string) {
	t.Helper()
	_, shard := it[schema.OpenShard]
	_, due := it[schema.OpenDue]
	require.Equal(t, rec != nil && !rec.Due.IsZero(), shard, at)
	require.Equal(t, shard, due, at)
	if rec != nil && rec.Open() {
		require.True(t, due, at)
		require.NotContains(t, it, schema.ExpiresAt, at)
	}
}

// generator makes writes that often fit the record, often nearly, and repeats
// old ones.
type generator struct {
	*rand.Rand
	table string
	ref   reference
	marks bool // begin marks may put a claim into the index
	n     int
	old   []anyWrite
	seen  []string
}

type anyWrite struct {
	name, id string
	n        int  // of the write, the same where it is repeated
	audited  bool // with an audit entry
	what     any
	apply    func(*protocol.Record, time.Time) (*protocol.Record, error)
	send     func(*AdminStore, time.Time) error
}

func (g *generator) fresh(prefix string) string {
	g.n++
	return fmt.Sprintf("%s%d", prefix, g.n)
}

func (g *generator) chance(percent int) bool { return g.IntN(100) < percent }

// right returns what fits, or now and then something old.
func (g *generator) right(fits string) string {
	if fits != "" {
		g.seen = append(g.seen, fits)
	}
	if len(g.seen) > 0 && (fits == "" || g.chance(15)) {
		return g.seen[g.IntN(len(g.seen))]
	}
	if fits == "" {
		return "nobody"
	}
	return fits
}

func (g *generator) write(id string, now time.Time) anyWrite {
	if len(g.old) > 0 && g.chance(10) {
		for range 8 {
			if w := g.old[g.IntN(len(g.old))]; w.id == id {
				return w
			}
		}
	}
	w := g.newWrite(id, now)
	w.id, w.n = id, len(g.old)
	g.old = append(g.old, w)
	return w
}

func (g *generator) newWrite(id string, now time.Time) anyWrite {
	rec := g.ref[id]
	var owner, write string
	var state protocol.State
	if rec != nil {
		owner, write, state = rec.Owner, rec.Write, rec.State
	}
	kind := g.IntN(11)
	if g.chance(50) {
		// What is likely next, so that records get far.
		switch state {
		case protocol.Absent:
			kind = 0
		case protocol.Completed, protocol.Failed:
			kind = []int{0, 0, 10}[g.IntN(3)]
		case protocol.InProgress:
			kind = 2 + g.IntN(3)
		case protocol.Unknown, protocol.Released:
			kind = []int{0, 5, 8}[g.IntN(3)]
		}
	}
	switch kind {
	case 0:
		c := g.claim(id, write, state, now)
		return anyWrite{name: "claim", what: c, apply: c.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.Acquire(context.Background(), now, c) }}
	case 1:
		w := protocol.Withdrawal{Claim: g.claim(id, write, state, now), Owner: g.fresh("o"), Write: g.fresh("w"),
			ExpiresAt: g.expiry(now, 70), Uncertain: g.chance(30)}
		if g.chance(50) {
			w.Write = w.Owner
		}
		if g.chance(50) && owner != "" {
			w.Claim.Record.Owner = owner
		}
		return anyWrite{name: "withdrawal", what: w, apply: w.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.Withdraw(context.Background(), now, w) }}
	case 2:
		e := protocol.Extension{ID: id, Owner: g.right(owner), Write: g.fresh("w"),
			LeaseUntil: now.Add(time.Duration(g.IntN(60)) * time.Second), ExpiresAt: g.expiry(now, 60)}
		return anyWrite{name: "extension", what: e, apply: e.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.Extend(context.Background(), now, e) }}
	case 3:
		w := protocol.StepWrite{ID: id, Owner: g.right(owner), Write: g.fresh("w"),
			Name: fmt.Sprintf("step %d.#", g.IntN(3)), Begin: g.chance(40)}
		var told protocol.RecordedStep
		if rec != nil {
			told = rec.Steps[w.Name]
		}
		switch {
		case told.FromResolution && g.chance(60):
			w.Begin, w.Read, w.Seen = false, g.chance(50), told.Write
			w.Unread = !w.Read
		case w.Begin:
		case g.chance(20):
			w.NotExecuted = true
		case g.chance(20):
			w.Failure, w.Omitted = &protocol.Failure{Message: "declined"}, g.chance(30)
		default:
			w.Result, w.Compensates, w.InParts = text2(g.IntN(3000)), g.chance(30), g.chance(30)
		}
		if w.First = g.chance(30); w.Begin && g.chance(30) {
			w.Ref = g.fresh("ref")
		}
		if (w.Begin || w.Unread) && g.marks {
			w.Due = now.Add(time.Minute)
		}
		return anyWrite{name: "step", what: w, apply: w.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.RecordStep(context.Background(), now, w) }}
	case 4, 6:
		// A claim that is not watched may end as one that is: what is not there is removed.
		watched := g.marks || rec != nil && rec.State == protocol.InProgress && !rec.Due.IsZero() || g.chance(20)
		f := protocol.Finish{ID: id, Owner: g.right(owner), Write: g.fresh("w"), Ending: g.ending(now), LargeSteps: g.chance(30), Watched: watched}
		if g.chance(45) && (f.Ending.State == protocol.Completed || f.Ending.State == protocol.Failed) {
			c := g.claim(id, write, state, now)
			f.Attempt, f.Owner = protocol.Atomic{Claim: c}, c.Record.Owner
		}
		if g.chance(20) {
			f.NewOwner = g.fresh("o")
		}
		if g.chance(30) {
			tx := new(Tx)
			tx.Put(types.Put{TableName: &g.table, Item: key(g.fresh("item"))}, nil)
			f.Unit = tx
		}
		return anyWrite{name: "finish", what: f, apply: f.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.Finish(context.Background(), now, f) }}
	}
	switch kind {
	case 7:
		r := protocol.ReferenceWrite{ID: id, Owner: g.right(owner), Write: g.fresh("w"), Ref: g.fresh("ref")}
		if rec != nil {
			r.Seen = g.right(rec.RefWrite)
		}
		return anyWrite{name: "reference", what: r, apply: r.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.RecordReference(context.Background(), now, r) }}
	case 8:
		p := protocol.Postponement{ID: id, Seen: g.right(write), Sweep: g.fresh("s"), Due: now.Add(time.Minute), Probes: g.IntN(3), Audit: g.audit(id, now)}
		if rec != nil && g.chance(80) {
			p.SeenSweep = rec.Sweep
		}
		if g.chance(30) {
			p.EscalatedAt = now
		}
		return anyWrite{name: "postponement", audited: p.Audit != nil, what: p, apply: p.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.Postpone(context.Background(), now, p) }}
	case 10:
		p := protocol.Prolongation{ID: id, Seen: g.right(write), Write: g.fresh("w"), ExpiresAt: now.Add(time.Duration(g.IntN(5)-1) * 12 * time.Hour).Truncate(time.Second), Audit: g.audit(id, now)}
		return anyWrite{name: "prolongation", audited: p.Audit != nil, what: p, apply: p.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.Prolong(context.Background(), now, p) }}
	case 9:
		e := protocol.Erasure{ID: id, Seen: g.right(write), Audit: g.audit(id, now)}
		return anyWrite{name: "erasure", audited: e.Audit != nil, what: e, apply: e.Apply,
			send: func(s *AdminStore, now time.Time) error { return s.Forget(context.Background(), now, e) }}
	}
	st := protocol.Settlement{Audit: g.audit(id, now), ID: id, Kind: protocol.EventLapse, Seen: g.right(write), Write: g.fresh("w"),
		Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true, Stricter: g.chance(30)}}
	if g.chance(30) { // another attempt has run
		st.Owner, st.Ending.Ref = g.fresh("o"), "pay"
	}
	if state == protocol.Unknown || g.chance(20) {
		st.Kind, st.Owner, st.Ending, st.Again = protocol.EventResolve, g.fresh("o"), g.ending(now), g.chance(50)
		for st.Ending.State == protocol.Unknown { // nothing is resolved to that
			st.Ending = g.ending(now)
		}
		if g.chance(50) {
			st.Write = st.Owner
		}
		if rec != nil && g.chance(40) {
			for name := range rec.Steps {
				if g.chance(70) {
					st.ClearSteps = append(st.ClearSteps, name)
				}
			}
			st.ClearSteps = append(st.ClearSteps, "no such step")
			for name := range rec.Steps {
				w := protocol.StepWrite{Name: name, Result: []byte("told"), Compensates: g.chance(50)}
				if g.chance(30) {
					w.Result, w.Omitted, w.Failure = nil, true, &protocol.Failure{Message: "not known"}
				}
				st.Steps = append(st.Steps, w)
			}
		}
	}
	return anyWrite{name: "settlement", audited: st.Audit != nil, what: st, apply: st.Apply,
		send: func(s *AdminStore, now time.Time) error { return s.Settle(context.Background(), now, st) }}
}

// audit is an entry for some of the changes from outside.
func (g *generator) audit(id string, now time.Time) *protocol.Audit {
	if g.chance(50) {
		return nil
	}
	return &protocol.Audit{
		ID: id, Entry: g.fresh("e"), At: now, Who: "alice", Why: "why", Change: protocol.ChangeResolved, From: protocol.Unknown,
		Steps: map[string]protocol.StepVerdict{"charge": protocol.StepFailed},
	}
}

func (g *generator) claim(id, write string, state protocol.State, now time.Time) protocol.Claim {
	c := claim(id, g.fresh("o"))
	if c.Record.Write = c.Record.Owner; g.chance(40) {
		c.Record.Write = g.fresh("w")
	}
	c.Record.CreatedAt, c.Record.UpdatedAt = now, now
	c.Record.LeaseUntil = now.Add(30 * time.Second)
	c.Record.ExpiresAt = g.expiry(now, 50)
	c.Record.Attempt = 1 + g.IntN(5)
	c.Record.Repeat = protocol.Repeat(g.IntN(2))
	c.Record.Uncertain = g.chance(30)
	if g.chance(20) {
		c.Record.Ref = g.fresh("ref")
	}
	if c.Record.Unsettled = g.IntN(3); g.chance(40) {
		c.Record.Due, c.Record.ExpiresAt = c.Record.LeaseUntil, time.Time{}
	}
	if state != protocol.Absent && g.chance(85) {
		c.Seen = g.right(write)
		c.Replace = state == protocol.Completed || state == protocol.Failed || g.chance(15)
		c.Record.Fingerprint = "1:other"
	}
	return c
}

func (g *generator) expiry(now time.Time, percent int) time.Time {
	if g.chance(percent / 3) {
		return now.Add(time.Duration(1+g.IntN(60)) * time.Second) // soon over
	}
	if g.chance(percent) {
		return now.Add(time.Duration(1+g.IntN(48)) * time.Hour)
	}
	return time.Time{}
}

func (g *generator) ending(now time.Time) protocol.Ending {
	states := []protocol.State{protocol.Completed, protocol.Failed, protocol.Released, protocol.Released, protocol.Unknown}
	e := protocol.Ending{State: states[g.IntN(len(states))], ExpiresAt: g.expiry(now, 60),
		Uncertain: g.chance(40), Stricter: g.chance(20)}
	if g.chance(30) {
		e.Ref = g.fresh("ref")
	}
	if e.State == protocol.Released {
		e.Unsettled = g.IntN(3)
	}
	if e.State == protocol.Completed {
		e.Result = [][]byte{nil, text2(100), noise(3000), text2(30000), noise(5000)}[g.IntN(5)]
		e.Omitted = g.chance(10)
		e.ResponseVersion = g.IntN(3)
	}
	if e.State == protocol.Failed || g.chance(20) {
		e.Failure = &protocol.Failure{Message: "it broke", Type: []string{"", "Error"}[g.IntN(2)], Code: []string{"", "E1"}[g.IntN(2)]}
	}
	return e
}
