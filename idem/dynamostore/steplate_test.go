package dynamostore

import (
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// The reply of a step's write is lost, and the record has moved on when the store
// asks again: an outcome is recorded, even if another attempt holds the claim now; a begin
// mark is permission to run, which the attempt has lost.
func TestStepsReplyIsLostAndTheClaimToo(t *testing.T) {
	f := open(t, nil)
	for name, begin := range map[string]bool{"result": false, "begin mark": true} {
		t.Run(name, func(t *testing.T) {
			id := t.Name()
			ctx := t.Context()
			f.claimed(t, id, "o1")
			w := protocol.StepWrite{ID: id, Owner: "o1", Write: "o1.1", Name: "charge", Begin: begin, First: true}
			if !begin {
				w.Result = []byte("1")
			}
			f.wire.set(func(n int, _ string, req *http.Request) (*http.Response, error) {
				if n > 0 {
					return nil, nil
				}
				resp, err := f.wire.loseReply(req)
				f.wire.set(nil)
				c := claim(id, "o2")
				c.Seen, c.Record.Steps = "o1.1", f.get(t, id).Steps
				require.NoError(t, f.Acquire(ctx, base, c))
				return resp, err
			})
			err := f.RecordStep(ctx, base, w)
			rec := f.get(t, id)
			require.Equal(t, "o2", rec.Owner)
			require.Equal(t, "o1.1", rec.Steps["charge"].Write)
			if !begin {
				require.NoError(t, err)
				return
			}
			require.Equal(t, "o2", isConflict(t, err).Owner)
		})
	}
}

// The reply to a resolution that records what a step did is lost, and two attempts have had
// the record when the store asks again: the resolution has landed, and what it says of the
// step is kept as long as the record is.
func TestResolutionsReplyIsLostAndTwoClaimsFollow(t *testing.T) {
	f, ctx, id, result := open(t, nil), t.Context(), "k", noise(4<<10)
	f.claimed(t, id, "o1")
	require.NoError(t, f.RecordStep(ctx, base, protocol.StepWrite{ID: id, Owner: "o1", Write: "o1.1", Name: "charge", Begin: true, First: true}))
	require.NoError(t, f.Finish(ctx, base, protocol.Finish{ID: id, Owner: "o1", Write: "o1.end", Ending: protocol.Ending{State: protocol.Unknown}}))
	w := resolution(id, "o1.end", "r", protocol.Ending{State: protocol.Released})
	w.Steps = []protocol.StepWrite{{Name: "charge", Result: result}}
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op != "UpdateItem" {
			return nil, nil
		}
		resp, err := f.wire.loseReply(req)
		f.wire.set(nil)
		for _, owner := range []string{"o2", "o3"} {
			next, rec := claim(id, owner), f.get(t, id)
			next.Seen, next.Record.Steps, next.Record.ExpiresAt = rec.Write, rec.Steps, time.Time{}
			require.NoError(t, f.Acquire(ctx, base, next))
		}
		return resp, err
	})
	require.NoError(t, f.Settle(ctx, base, w))
	rec := f.get(t, id)
	require.Equal(t, "o3", rec.Owner)
	got, err := f.StepResult(ctx, rec, "charge")
	require.NoError(t, err)
	require.Equal(t, result, got)
	body := rec.Steps["charge"].Body
	require.Positive(t, body.Parts)
	for n := range body.Parts {
		require.NotContains(t, f.raw(t, partKeyPrefix(id, w.Write, body.Digest)+strconv.Itoa(n)), schema.ExpiresAt)
	}
}

// What an earlier resolution has recorded of a step beside the record goes with it.
func TestTheResultOfAStepThatIsSaidAnewExpires(t *testing.T) {
	for name, over := range map[string]protocol.Settlement{
		"another result": {Steps: []protocol.StepWrite{{Name: "charge", Result: []byte("1")}}},
		"it runs again":  {ClearSteps: []string{"charge"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := open(t, nil)
			ctx, id := t.Context(), "k"
			f.claimed(t, id, "o1")
			require.NoError(t, f.RecordStep(ctx, base, protocol.StepWrite{ID: id, Owner: "o1", Write: "o1.1", Name: "charge", Begin: true, First: true}))
			require.NoError(t, f.Finish(ctx, base, protocol.Finish{ID: id, Owner: "o1", Write: "o1.end", Ending: protocol.Ending{State: protocol.Unknown}}))
			w := resolution(id, "o1.end", "r", protocol.Ending{State: protocol.Released})
			w.Steps = []protocol.StepWrite{{Name: "charge", Result: noise(300 << 10)}}
			require.NoError(t, f.Settle(ctx, base, w))
			body := f.get(t, id).Steps["charge"].Body
			require.Positive(t, body.Parts)
			again := resolution(id, w.Write, "s", protocol.Ending{State: protocol.Released})
			again.Steps, again.ClearSteps, again.Again = over.Steps, over.ClearSteps, true
			require.NoError(t, f.Settle(ctx, base, again))
			require.Equal(t, len(over.Steps), len(f.get(t, id).Steps))
			for n := range body.Parts {
				require.Contains(t, f.raw(t, partKeyPrefix(id, w.Write, body.Digest)+strconv.Itoa(n)), schema.ExpiresAt)
			}
		})
	}
}

// Ended for another try, an operation with steps is an open question: it is in the
// sparse index and never expires. Claimed again it leaves the index.
func TestReleasedWithStepsIsIndexed(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	f.claimed(t, "k", "o1")
	require.NoError(t, f.RecordStep(ctx, base, protocol.StepWrite{ID: "k", Owner: "o1", Write: "o1.1", Name: "charge", Result: []byte("1"), First: true}))
	require.NotContains(t, f.raw(t, "k"), schema.ExpiresAt)
	require.NoError(t, f.Finish(ctx, base, protocol.Finish{ID: "k", Owner: "o1", Write: "o1.2", Ending: protocol.Ending{State: protocol.Released, Uncertain: true}}))
	it := f.raw(t, "k")
	require.Contains(t, it, schema.OpenShard)
	require.Contains(t, it, schema.OpenDue)
	require.NotContains(t, it, schema.ExpiresAt)
	c := claim("k", "o2")
	c.Seen, c.Record.ExpiresAt = "o1.2", f.get(t, "k").ExpiresAt
	c.Record.Steps = f.get(t, "k").Steps
	require.NoError(t, f.Acquire(ctx, base, c))
	require.NotContains(t, f.raw(t, "k"), schema.OpenShard)
	require.NotContains(t, f.raw(t, "k"), schema.OpenDue)
}
