package dynamostore

import (
	"context"
	"net/http"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// keptRecord is a record with a large result, and what of it expires when.
type keptRecord struct {
	*fixture
	t      *testing.T
	q      *AdminStore
	id     string
	rec    *protocol.Record
	result []byte
}

func newKeptRecord(t *testing.T, f *fixture) *keptRecord {
	t.Helper()
	k := &keptRecord{fixture: f, t: t, q: f.adminStore(t), id: "acme#charge#large", result: noise(600 << 10)}
	k.completed(t, k.id, k.result)
	k.rec = k.get(t, k.id)
	require.Greater(t, k.rec.Body.Parts, 2)
	return k
}

func (k *keptRecord) until(d time.Duration, write string) protocol.Prolongation {
	return protocol.Prolongation{
		ID: k.id, Seen: k.rec.Write, Write: write, ExpiresAt: base.Add(d).Truncate(time.Second), Audit: &protocol.Audit{
			ID: k.id, Entry: write, At: base, Who: "alice", Why: "a dispute", Change: protocol.ChangeExtended,
			From: protocol.Completed, To: protocol.Completed, Attempt: 1, ExpiresAt: base.Add(time.Hour),
		},
	}
}

func (k *keptRecord) part(n int) string {
	return partKeyPrefix(k.id, "o1", k.rec.Body.Digest) + strconv.Itoa(n)
}

// outlived requires that the record does not outlive its parts, and can be read.
func (k *keptRecord) outlived() {
	k.t.Helper()
	rec := k.get(k.t, k.id)
	var parts []string
	for n := range rec.Body.Parts {
		parts = append(parts, k.part(n))
	}
	k.fixture.outlived(k.t, rec, parts)
	require.Equal(k.t, k.result, k.resultOf(k.t, k.id))
}

const dispute = 1000 * 24 * time.Hour

func TestARecordNeverOutlivesItsParts(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, f *fixture, _ *AdminStore) {
		k := newKeptRecord(t, f)
		// It loses its process before each of its calls.
		for calls := 0; ; calls++ {
			var made atomic.Int32
			k.wire.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
				if int(made.Add(1)) > calls {
					return answer(400, noAccess), nil
				}
				return nil, nil
			})
			err := k.q.Prolong(t.Context(), base, k.until(dispute, "keep"))
			k.wire.set(nil)
			k.outlived()
			if err == nil && int(made.Load()) <= calls {
				break
			}
			require.Less(t, calls, 20)
		}
		require.Equal(t, base.Add(dispute).Truncate(time.Second), k.get(t, k.id).ExpiresAt)
		require.Len(t, changes(t, k.q, k.id), 1)
	})
}

// The one who asks for less is late: neither the record nor its parts are kept shorter.
func TestTwoKeepARecordWithParts(t *testing.T) {
	k := newKeptRecord(t, open(t, nil))
	interrupted := k.wire.before(func() {
		require.NoError(t, k.q.Prolong(t.Context(), base, k.until(2*dispute, "more")))
	}, "UpdateItem")
	isConflict(t, k.q.Prolong(t.Context(), base, k.until(dispute, "less")))
	require.True(t, interrupted.Load())
	k.wire.set(nil)
	require.Equal(t, "more", k.get(t, k.id).Write)
	k.outlived()
}

func TestPartsThatAreMissingAreNotKept(t *testing.T) {
	k := newKeptRecord(t, open(t, nil))
	k.remove(t, k.part(1))
	err := k.q.Prolong(t.Context(), base, k.until(dispute, "keep"))
	require.ErrorIs(t, err, idem.ErrRecordUnreadable)
	require.ErrorContains(t, err, "part 2 of")
	require.Equal(t, k.rec, k.get(t, k.id))

	// The record is forgotten while its parts are being kept.
	f := newKeptRecord(t, open(t, nil))
	f.wire.before(func() {
		require.NoError(t, f.q.Forget(t.Context(), base, protocol.Erasure{ID: f.id, Seen: f.rec.Write}))
	}, "UpdateItem")
	require.Nil(t, isConflict(t, f.q.Prolong(t.Context(), base, f.until(dispute, "keep"))))
	require.Nil(t, f.get(t, f.id))
	require.Len(t, f.items(t), 0, "nothing comes back")
}

// A try that its sender has given up for lost arrives when the record has been extended.
func TestAPartThatArrivesLateLeavesTheExtension(t *testing.T) {
	k := newKeptRecord(t, open(t, nil))
	require.NoError(t, k.q.Prolong(t.Context(), base, k.until(dispute, "keep")))
	body := k.codec.pack(k.result)
	require.Equal(t, k.rec.Body.Parts, body.Parts)
	call := k.retry.begin(t.Context(), "Finish")
	defer call.end()
	require.NoError(t, k.putParts(call, k.id, "o1", body, k.rec.ExpiresAt, nil), "they are there")
	k.outlived()
}

// A reply is lost, and the same is sent again: it is kept, with one entry.
func TestAProlongationWithLostReplies(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, f *fixture, _ *AdminStore) {
		k := newKeptRecord(t, f)
		k.wire.loseFirst(3, "UpdateItem", "PutItem", "TransactWriteItems")
		require.NoError(t, k.q.Prolong(t.Context(), base, k.until(dispute, "keep")))
		k.wire.set(nil)
		require.Equal(t, "keep", k.get(t, k.id).Write)
		k.outlived()
		require.Len(t, changes(t, k.q, k.id), 1)
	})
}

// Two who have read a record and forget it at once get the same answer, and the one who did it is remembered.
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
				e.Audit = audit(id, who, protocol.ChangeForgotten)
			}
			return e
		}
		first := f.wire.before(func() { require.NoError(t, q.Forget(ctx, base, by("alice"))) },
			"DeleteItem", "TransactWriteItems")
		require.NoError(t, q.Forget(ctx, base, by("bob")))
		f.wire.set(nil)
		require.True(t, first.Load())
		require.Nil(t, f.get(t, id))
		entries := changes(t, q, id)
		if !audited {
			require.Empty(t, entries)
			continue
		}
		require.Len(t, entries, 1)
		require.Equal(t, "alice", entries[0].Entry)
	}
}

// Whatever ends it half-way: a record that is there has its result, and a deleted one stays deleted.
func TestForgetHalfWay(t *testing.T) {
	for _, audited := range []bool{true, false} {
		f := newKeptRecord(t, open(t, nil))
		ctx, q, id := t.Context(), f.q, f.id
		e := protocol.Erasure{ID: id, Seen: f.rec.Write}
		if audited {
			e.Audit = audit(id, "alice", protocol.ChangeForgotten)
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
		require.Equal(t, f.result, f.resultOf(t, id))

		allowed = 2
		f.wire.set(refuse)
		require.ErrorContains(t, q.Forget(ctx, base, e), "the record is removed, and parts of its result are left")
		f.wire.set(nil)
		require.Nil(t, f.get(t, id))
		require.Empty(t, f.raw(t, f.part(0)))
		require.NotEmpty(t, f.raw(t, f.part(1))[schema.ExpiresAt])
		require.NoError(t, q.Forget(ctx, base, e), "it is deleted")
	}
}

// A deletion that was given up for lost lands while the same is sent again: its entry stays.
func TestADeletionLandsLateWithoutTransactions(t *testing.T) {
	f := open(t, &noTransactions)
	q, id := f.adminStore(t), "late"
	f.completed(t, id, []byte("{}"))
	e := protocol.Erasure{ID: id, Seen: "o1.end", Audit: audit(id, "alice", protocol.ChangeForgotten)}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	late := f.wire.hold(t, "DeleteItem", func() (*http.Response, error) {
		cancel()
		return nil, errReset
	})
	isStoreError(t, q.Forget(ctx, base, e), true)
	landed := f.wire.before(late, "DeleteItem")
	require.NoError(t, q.Forget(t.Context(), base, e))
	f.wire.set(nil)
	require.True(t, landed.Load())
	require.Nil(t, f.get(t, id))
	entries := changes(t, q, id)
	require.Len(t, entries, 1)
	require.True(t, entries[0].Unconfirmed)
}
