package dynamostore

import (
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Two who have read a record and forget it at once are told the same, and the one who did
// it is remembered.
func TestTwoForgetTheSameRecord(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	q := f.questions(t)
	for _, audited := range []bool{true, false} {
		id := map[bool]string{true: "audited", false: "not audited"}[audited]
		require.NoError(t, f.Acquire(ctx, base, claim(id, "o1")))
		require.NoError(t, f.Finish(ctx, base, completion(id, "o1", []byte("{}"))))
		by := func(who string) protocol.Erasure {
			e := protocol.Erasure{ID: id, Seen: "o1.end"}
			if audited {
				e.Audit = &protocol.Audit{
					ID: id, Entry: who, At: base, Who: who, Why: "her right", Change: protocol.ChangeForgotten,
					From: protocol.Completed, Attempt: 1, ExpiresAt: base.Add(time.Hour),
				}
			}
			return e
		}
		first := true
		f.wire.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
			if first && op != "GetItem" {
				first = false
				require.NoError(t, q.Forget(ctx, base, by("alice")))
			}
			return nil, nil
		})
		require.NoError(t, q.Forget(ctx, base, by("bob")))
		f.wire.set(nil)
		require.False(t, first)
		require.Nil(t, f.get(t, id))
		p, err := q.AuditOf(ctx, id, "")
		require.NoError(t, err)
		if !audited {
			require.Empty(t, p.Entries)
			continue
		}
		require.Len(t, p.Entries, 1)
		require.Equal(t, "alice", p.Entries[0].Who)
	}
}
