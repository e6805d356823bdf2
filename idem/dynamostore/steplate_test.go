package dynamostore

import (
	"net/http"
	"testing"

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
			require.NoError(t, f.Acquire(ctx, base, claim(id, "o1")))
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

// Ended for another try, an operation with steps is an open question: it is in the
// sparse index and never expires. Claimed again it leaves the index.
func TestReleasedWithStepsIsIndexed(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	require.NoError(t, f.Acquire(ctx, base, claim("k", "o1")))
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
