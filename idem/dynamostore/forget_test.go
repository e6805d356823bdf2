package dynamostore

import (
	"context"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Two who have read a record and forget it at once are told the same, and the one who did
// it is remembered.
func TestTwoForgetTheSameRecord(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	q := f.adminStore(t)
	for _, audited := range []bool{true, false} {
		id := map[bool]string{true: "audited", false: "not audited"}[audited]
		f.completed(t, id, []byte("{}"))
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
		entries := changes(t, q, id)
		if !audited {
			require.Empty(t, entries)
			continue
		}
		require.Len(t, entries, 1)
		require.Equal(t, "alice", entries[0].Who)
	}
}

// Whatever ends it half-way: a record that is there has its result, and one that is gone
// stays gone.
func TestForgetHalfWay(t *testing.T) {
	for _, audited := range []bool{true, false} {
		f := open(t, nil)
		ctx, q, id := t.Context(), f.adminStore(t), "acme#charge#large"
		f.claimed(t, id, "o1")
		result := noise(1 << 20)
		require.NoError(t, f.Finish(ctx, base, completion(id, "o1", result)))
		rec := f.get(t, id)
		require.Greater(t, rec.Body.Parts, 2)
		part := func(n int) string { return partKeyPrefix(id, "o1", rec.Body.Digest) + strconv.Itoa(n) }
		e := protocol.Erasure{ID: id, Seen: rec.Write}
		if audited {
			e.Audit = &protocol.Audit{
				ID: id, Entry: "alice", At: base, Who: "alice", Why: "her right", Change: protocol.ChangeForgotten,
				From: protocol.Completed, Attempt: 1, ExpiresAt: base.Add(time.Hour),
			}
		}
		refused, allowed := 0, 0
		refuse := func(_ int, op string, _ *http.Request) (*http.Response, error) {
			if op == "GetItem" {
				return nil, nil
			}
			if allowed == 0 {
				refused++
				return answer(400, noAccess), nil
			}
			allowed--
			return nil, nil
		}
		f.wire.set(refuse)
		require.Error(t, q.Forget(ctx, base, e))
		f.wire.set(nil)
		require.Equal(t, 1, refused)
		got, err := f.Result(ctx, f.get(t, id))
		require.NoError(t, err)
		require.Equal(t, result, got)

		allowed = 2
		f.wire.set(refuse)
		require.ErrorContains(t, q.Forget(ctx, base, e), "the record is removed, and parts of its result are left")
		f.wire.set(nil)
		require.Nil(t, f.get(t, id))
		require.Empty(t, f.raw(t, part(0)))
		require.NotEmpty(t, f.raw(t, part(1))[schema.ExpiresAt])
		require.NoError(t, q.Forget(ctx, base, e), "it is gone")
	}
}

// A deletion that was given up for lost lands while the same is sent again: its entry stays.
func TestADeletionLandsLateWithoutTransactions(t *testing.T) {
	f := open(t, &noTransactions)
	q, id := f.adminStore(t), "late"
	f.completed(t, id, []byte("{}"))
	e := protocol.Erasure{ID: id, Seen: "o1.end", Audit: &protocol.Audit{
		ID: id, Entry: "alice", At: base, Who: "alice", Why: "her right", Change: protocol.ChangeForgotten,
		From: protocol.Completed, Attempt: 1, ExpiresAt: base.Add(time.Hour),
	}}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var late *http.Request
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op != "DeleteItem" {
			return nil, nil
		}
		body := bodyOf(t, req)
		late = req.Clone(context.Background())
		late.Body = newBody(body)
		cancel()
		return nil, errReset
	})
	isStoreError(t, q.Forget(ctx, base, e), true)
	landed := false
	f.wire.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
		if op == "DeleteItem" && !landed {
			landed = true
			_, err := f.wire.loseReply(late)
			require.ErrorIs(t, err, errReset)
		}
		return nil, nil
	})
	require.NoError(t, q.Forget(t.Context(), base, e))
	f.wire.set(nil)
	require.True(t, landed)
	require.Nil(t, f.get(t, id))
	entries := changes(t, q, id)
	require.Len(t, entries, 1)
	require.True(t, entries[0].Unconfirmed)
}
