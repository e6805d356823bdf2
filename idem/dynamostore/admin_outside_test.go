package dynamostore

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// change is a change from outside on its way, of the record as it was read.
type change struct {
	entry string
	send  func(context.Context, *AdminStore) error
	// made reports whether the item, nil for none, is what the change has made.
	made func(item) bool
	// forgets is the write that it removes, empty for another change.
	forgets string
}

// outside is one life of a record among those who change it from outside.
type outside struct {
	t  *testing.T
	f  *fixture
	q  *AdminStore
	r  *Remover
	id string
	n  int
	// made says of each entry whether its change was made.
	made map[string]bool
	// doubtful are entries of removals that had no reply.
	doubtful map[string]bool
	// forgotten are the writes that were removed on request.
	forgotten map[string]bool
}

func (f *fixture) outside(t *testing.T, q *AdminStore, id string) *outside {
	return &outside{t: t, f: f, q: q, r: f.remover(), id: id, made: map[string]bool{}, doubtful: map[string]bool{},
		forgotten: map[string]bool{}}
}

func (o *outside) audit(rec *protocol.Record, c protocol.Change, to protocol.State) *protocol.Audit {
	o.n++
	a := &protocol.Audit{
		ID: o.id, Entry: fmt.Sprintf("entry-%02d", o.n), At: base.Add(time.Duration(o.n) * time.Second),
		Who: "alice", Why: "her right",
		Change: c, From: rec.State, To: to, Attempt: rec.Attempt, ExpiresAt: base.Add(1000 * time.Hour),
	}
	o.made[a.Entry] = false
	return a
}

// parks, escalates, resolves and forgets make their change of the record as it is; nil if there is none to make.
func (o *outside) parks(rec *protocol.Record) *change {
	if rec == nil || rec.State != protocol.InProgress {
		return nil
	}
	a := o.audit(rec, protocol.ChangeParked, protocol.Unknown)
	return o.settles(a, protocol.Settlement{
		ID: o.id, Kind: protocol.EventLapse, Seen: rec.Write, Write: "w-" + a.Entry,
		Ending: protocol.Ending{State: protocol.Unknown}, Audit: a,
	})
}

func (o *outside) settles(a *protocol.Audit, w protocol.Settlement) *change {
	return &change{entry: a.Entry, send: func(ctx context.Context, q *AdminStore) error { return q.Settle(ctx, base, w) },
		made: func(it item) bool { return bears(it, w.Write) }}
}

func (o *outside) postpones(rec *protocol.Record) *change {
	if rec == nil || rec.Due.IsZero() {
		return nil
	}
	o.n++
	p := protocol.Postponement{ID: o.id, Seen: rec.Write, SeenSweep: rec.Sweep, Sweep: fmt.Sprint("s-", o.n),
		Due: base.Add(time.Hour)}
	return &change{send: func(ctx context.Context, q *AdminStore) error { return q.Postpone(ctx, base, p) },
		made: func(it item) bool { return text(it, schema.Sweep) == p.Sweep }}
}

func (o *outside) escalates(rec *protocol.Record) *change {
	if rec == nil || rec.State != protocol.Unknown || !rec.EscalatedAt.IsZero() {
		return nil
	}
	a := o.audit(rec, protocol.ChangeEscalated, protocol.Unknown)
	p := protocol.Postponement{
		ID: o.id, Seen: rec.Write, SeenSweep: rec.Sweep, Sweep: "s-" + a.Entry, Due: base.Add(time.Hour),
		EscalatedAt: base, Audit: a,
	}
	return &change{entry: a.Entry,
		send: func(ctx context.Context, q *AdminStore) error { return q.Postpone(ctx, base, p) },
		made: func(it item) bool { return text(it, schema.Sweep) == p.Sweep }}
}

func (o *outside) resolves(to protocol.State) func(*protocol.Record) *change {
	return func(rec *protocol.Record) *change {
		if rec == nil || rec.State != protocol.Unknown && !(rec.Resolved && rec.State != to) {
			return nil
		}
		a := o.audit(rec, protocol.ChangeResolved, to)
		w := resolution(o.id, rec.Write, "w-"+a.Entry,
			protocol.Ending{State: to, Result: []byte("{}"), ExpiresAt: base.Add(time.Hour)})
		if to != protocol.Completed {
			w.Ending.Result, w.Ending.Failure = nil, &protocol.Failure{Message: "no"}
		}
		w.Audit, w.Again = a, true
		return o.settles(a, w)
	}
}

func (o *outside) extends(rec *protocol.Record) *change {
	if rec == nil || !rec.Ended() || rec.ExpiresAt.After(base.Add(90*time.Minute)) {
		return nil
	}
	a := o.audit(rec, protocol.ChangeExtended, rec.State)
	p := protocol.Prolongation{ID: o.id, Seen: rec.Write, Write: "w-" + a.Entry,
		ExpiresAt: base.Add(100 * time.Minute), Audit: a}
	return &change{entry: a.Entry, send: func(ctx context.Context, q *AdminStore) error { return q.Prolong(ctx, base, p) },
		made: func(it item) bool { return bears(it, p.Write) }}
}

func (o *outside) forgets(rec *protocol.Record) *change {
	if rec == nil || rec.Open() || rec.State == protocol.InProgress {
		return nil
	}
	a := o.audit(rec, protocol.ChangeForgotten, protocol.Absent)
	return &change{entry: a.Entry, send: func(ctx context.Context, q *AdminStore) error {
		return q.Forget(ctx, base, protocol.Erasure{ID: o.id, Seen: rec.Write, Audit: a})
	}, made: func(it item) bool { return it == nil }, forgets: rec.Write}
}

// claims, replaces and removes are no changes from outside, and may lose none.
func (o *outside) claims(rec *protocol.Record) *change {
	if rec != nil && rec.State != protocol.Released {
		return nil
	}
	o.n++
	c := claim(o.id, fmt.Sprint("o-", o.n))
	if rec != nil {
		c.Seen = rec.Write
	}
	c.Record.Due, c.Record.ExpiresAt = base, time.Time{}
	return &change{send: func(ctx context.Context, q *AdminStore) error { return q.Acquire(ctx, base, c) },
		made: func(it item) bool { return bears(it, c.Record.Write) }}
}

func (o *outside) replaces(rec *protocol.Record) *change {
	if rec == nil || !rec.Expired(base.Add(2*time.Hour)) {
		return nil
	}
	o.n++
	c := claim(o.id, fmt.Sprint("o-", o.n))
	c.Seen, c.Replace, c.Record.Due, c.Record.ExpiresAt = rec.Write, true, base, time.Time{}
	return &change{send: func(ctx context.Context, q *AdminStore) error { return q.Acquire(ctx, base, c) },
		made: func(it item) bool { return bears(it, c.Record.Write) }}
}

func (o *outside) removes(rec *protocol.Record) *change {
	if rec == nil || !rec.Expired(base.Add(2*time.Hour)) {
		return nil
	}
	return &change{send: func(ctx context.Context, _ *AdminStore) error {
		for segment := range 3 {
			_, err := o.r.RemoveExpired(ctx,
				protocol.ExpiredQuery{Segment: segment, Segments: 3, Before: base.Add(2 * time.Hour)})
			if err != nil {
				return err
			}
		}
		return nil
	}, made: func(it item) bool { return it == nil }}
}

type maker = func(*protocol.Record) *change

// lives are the changes of a record, one after another.
func (o *outside) lives() map[string][]maker {
	completed, failed, released := o.resolves(protocol.Completed), o.resolves(protocol.Failed),
		o.resolves(protocol.Released)
	return map[string][]maker{
		"escalated, resolved, resolved again and forgotten": {o.claims, o.parks, o.postpones, o.escalates, completed,
			failed, o.forgets},
		"released, claimed and parked again": {o.claims, o.parks, released, o.claims, o.parks, completed},
		"replaced when it has expired":       {o.claims, o.parks, completed, o.replaces, o.parks, o.escalates},
		"kept for longer":                    {o.claims, o.parks, completed, o.extends, o.forgets},
		"kept for longer, and removed":       {o.claims, o.parks, failed, o.extends, o.removes},
		"removed when it has expired":        {o.claims, o.parks, failed, o.removes, o.claims, o.parks},
		"forgotten twice": {o.claims, o.parks, completed, o.forgets, o.claims, o.parks,
			released, o.forgets},
	}
}

// item is the record as it is stored, nil for none.
func (o *outside) item() item {
	if it := o.f.raw(o.t, o.id); len(it) > 0 {
		return it
	}
	return nil
}

// read is the record as the next one sees it.
func (o *outside) read() *protocol.Record {
	it := o.item()
	if it == nil {
		return nil
	}
	rec, err := decode(it)
	require.NoError(o.t, err)
	return rec
}

// complete requires that each change that was made has its entry, and that no entry says of
// one that was not made that it was.
func (o *outside) complete(when string) {
	o.t.Helper()
	p, err := o.q.AuditOf(context.Background(), o.id, "")
	require.NoError(o.t, err)
	o.match(when, p.Entries)
}

func (o *outside) match(when string, entries []protocol.Audit) {
	o.t.Helper()
	found := map[string]bool{}
	for i, a := range entries {
		require.False(o.t, found[a.Entry], "%s: %s is there twice", when, a.Entry)
		found[a.Entry] = true
		require.True(o.t, i == 0 || !a.At.Before(entries[i-1].At), "%s: in order", when)
		require.True(o.t, o.made[a.Entry] || a.Unconfirmed, "%s: %s of %s says what was not done", when, a.Entry, a.Change)
		require.True(o.t, !a.Unconfirmed || o.doubtful[a.Entry], "%s: %s of %s is not confirmed", when, a.Entry, a.Change)
	}
	for entry, made := range o.made {
		require.True(o.t, found[entry] || !made, "%s: %s is missing", when, entry)
	}
}
