package dynamostore

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// The calls per path are what the package's documentation publishes, counted at
// the wire.
func TestCallsPerPath(t *testing.T) {
	f := open(t, nil)
	ctx := context.Background()
	const put, upd, get, batch = "PutItem", "UpdateItem", "GetItem", "BatchGetItem"
	count := func(name string, want []string, do func() error) {
		t.Helper()
		f.wire.set(nil)
		err := do()
		require.NoError(t, err, name)
		require.Equal(t, want, f.wire.calls(), name)
	}
	refused := func(name string, want []string, do func() error) *protocol.Record {
		t.Helper()
		f.wire.set(nil)
		rec := isConflict(t, do())
		require.Equal(t, want, f.wire.calls(), name)
		return rec
	}
	acquire := func(c protocol.Claim) func() error { return func() error { return f.Acquire(ctx, base, c) } }
	finish := func(w protocol.Finish) func() error { return func() error { return f.Finish(ctx, base, w) } }
	again := func(seen string, replace bool, id, owner string) protocol.Claim {
		c := claim(id, owner)
		c.Seen, c.Replace = seen, replace
		return c
	}

	count("first execution: claim", []string{put}, acquire(claim("a", "o1")))
	refused("in flight", []string{put}, acquire(claim("a", "o2")))
	count("heartbeat", []string{upd}, func() error {
		return f.Extend(ctx, base, protocol.Extension{ID: "a", Owner: "o1", Write: "x", LeaseUntil: base.Add(time.Minute), ExpiresAt: base.Add(99 * time.Hour)})
	})
	count("first execution: completion", []string{upd}, finish(completion("a", "o1", []byte("{}"))))
	rec := refused("replay", []string{put}, acquire(claim("a", "o3")))
	count("replay: result", nil, func() error { _, err := f.Result(ctx, rec); return err })
	count("expired: claim", []string{put}, acquire(again("o1.end", true, "a", "o4")))
	count("takeover", []string{upd}, acquire(again("o4.0", false, "a", "o5")))
	count("park", []string{upd}, finish(protocol.Finish{ID: "a", Owner: "o5", Write: "p", Ending: protocol.Ending{State: protocol.Unknown}}))
	count("resolve", []string{upd}, func() error {
		return f.Settle(ctx, base, resolution("a", "p", "r", protocol.Ending{State: protocol.Released, ExpiresAt: base.Add(time.Hour)}))
	})
	count("released: claim", []string{upd}, acquire(again("r.0", false, "a", "o6")))
	count("release", []string{upd}, finish(protocol.Finish{ID: "a", Owner: "o6", Write: "q",
		Ending: protocol.Ending{State: protocol.Released, ExpiresAt: base.Add(time.Hour)}}))

	count("lapsed: claim", []string{put}, acquire(claim("b", "o1")))
	count("lapsed: park", []string{upd}, func() error {
		return f.Settle(ctx, base, protocol.Settlement{ID: "b", Kind: protocol.EventLapse, Seen: "o1.0", Write: "p", Ending: protocol.Ending{State: protocol.Unknown}})
	})
	refused("unknown", []string{put}, acquire(claim("b", "o2")))
	count("withdrawal of nothing", []string{upd}, func() error {
		return f.Withdraw(ctx, base, protocol.Withdrawal{Claim: claim("c", "o1"), Owner: "n", Write: "n.0", ExpiresAt: base.Add(time.Hour)})
	})
	count("parked: claim", []string{put}, acquire(claim("h", "o1")))
	count("parked: park", []string{upd}, finish(protocol.Finish{ID: "h", Owner: "o1", Write: "p", Ending: protocol.Ending{State: protocol.Unknown}}))
	count("parked: its own late outcome", []string{upd, upd}, finish(completion("h", "o1", []byte("{}"))))

	count("large: claim", []string{put}, acquire(claim("e", "o1")))
	count("large: completion", []string{put, put, upd}, finish(completion("e", "o1", noise(450<<10))))
	rec = refused("large: replay", []string{put}, acquire(claim("e", "o2")))
	count("large: result", []string{batch}, func() error { _, err := f.Result(ctx, rec); return err })

	count("steps: claim", []string{put}, acquire(claim("f", "o1")))
	step := func(name, write string, begin bool) func() error {
		return func() error {
			return f.RecordStep(ctx, base, protocol.StepWrite{ID: "f", Owner: "o1", Write: write, Name: name, Begin: begin})
		}
	}
	count("first step", []string{upd, upd}, step("one", "s1", false))
	count("next step", []string{upd}, step("two", "s2", true))
	count("a step that is said to be the first one", []string{put, upd}, func() error {
		if err := f.Acquire(ctx, base, claim("g", "o1")); err != nil {
			return err
		}
		return f.RecordStep(ctx, base, protocol.StepWrite{ID: "g", Owner: "o1", Write: "s1", Name: "one", Begin: true, First: true})
	})
	count("next step: result", []string{upd}, step("two", "s3", false))
	count("steps: heartbeat", []string{upd}, func() error {
		return f.Extend(ctx, base, protocol.Extension{ID: "f", Owner: "o1", Write: "x", LeaseUntil: base.Add(time.Minute)})
	})
	count("steps: heartbeat that does not know of them", []string{upd, upd}, func() error {
		return f.Extend(ctx, base, protocol.Extension{ID: "f", Owner: "o1", Write: "y", LeaseUntil: base.Add(2 * time.Minute), ExpiresAt: base.Add(99 * time.Hour)})
	})
	count("steps: release", []string{upd}, finish(protocol.Finish{ID: "f", Owner: "o1", Write: "q", Ending: protocol.Ending{State: protocol.Released}}))
	count("get", []string{get}, func() error { _, err := f.Get(ctx, "f"); return err })
}

// A change from outside is three writes instead of a transaction: its entry, the change, and its
// entry confirmed.
func TestCallsWithoutTransactions(t *testing.T) {
	f := open(t, &noTransactions)
	q := f.adminStore(t)
	o := f.outside(t, q, "a")
	const put, upd, get, del, query = "PutItem", "UpdateItem", "GetItem", "DeleteItem", "Query"
	for _, c := range []struct {
		name string
		make maker
		want []string
	}{
		{"claimed", o.claims, []string{put}},
		{"parked", o.parks, []string{put, upd, put}},
		{"postponed", o.postpones, []string{upd}},
		{"escalated", o.escalates, []string{put, upd, put}},
		{"resolved", o.resolves(protocol.Completed), []string{put, get, upd, put}},
		{"expired, claimed anew", o.replaces, []string{put}},
		{"parked again", o.parks, []string{put, upd, put}},
		{"resolved again", o.resolves(protocol.Failed), []string{put, get, upd, put}},
		{"kept for longer", o.extends, []string{get, put, upd, put}},
		{"forgotten", o.forgets, []string{get, put, del, put}},
	} {
		w := c.make(o.read())
		f.wire.set(nil)
		require.NoError(t, w.send(t.Context(), q), c.name)
		require.Equal(t, c.want, f.wire.calls(), c.name)
	}
	_, err := q.AuditOf(t.Context(), "a", "")
	require.NoError(t, err)
	require.Equal(t, []string{query}, f.wire.calls())
}
