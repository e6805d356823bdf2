package dynamostore

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// pausing is a write of a pause of one operation over what was seen.
func pausing(seen, write, operation string) protocol.PausedWrite {
	p := protocol.Pause{Operation: operation, Tenant: "acme", Since: base, Until: base.Add(time.Hour),
		Who: "alice", Why: "her right"}
	a := audit(p.ID(), write, protocol.ChangePaused)
	a.From = ""
	return protocol.PausedWrite{Paused: protocol.Paused{Pauses: []protocol.Pause{p}, Write: write}, Seen: seen, Audit: a}
}

// paused is what the store reads.
func (f *fixture) paused(t *testing.T) protocol.Paused {
	t.Helper()
	got, err := PausesOf(f.Store).ReadPaused(t.Context())
	require.NoError(t, err)
	return got
}

// What is paused is one item, which no record, index or expiry has to do with. Each change of it is written with
// its entry, in the calls that the package's doc says.
func TestWhatIsPausedIsOneItem(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, f *fixture, q *AdminStore) {
		first, second := pausing("", "w1", "export"), pausing("w1", "w2", "mail")
		f.wire.set(nil)
		require.Zero(t, f.paused(t))
		require.Equal(t, []string{"GetItem"}, f.wire.calls())

		made, refused := "TransactWriteItems", "TransactWriteItems"
		if f.o.WithoutTransactions {
			made, refused = "PutItem PutItem PutItem", "PutItem PutItem DeleteItem"
		}
		for _, w := range []protocol.PausedWrite{first, second} {
			require.NoError(t, q.WritePaused(t.Context(), w))
			require.Equal(t, made, strings.Join(f.wire.calls(), " "))
			require.Equal(t, w.Paused, f.paused(t))
			f.wire.calls()
			require.Equal(t, []protocol.Audit{*w.Audit}, changes(t, q, w.Audit.ID))
			f.wire.calls()
		}
		for _, stale := range []protocol.PausedWrite{pausing("", "w3", "x"), pausing("w1", "w3", "x")} {
			require.Nil(t, isConflict(t, q.WritePaused(t.Context(), stale)))
			require.Equal(t, refused, strings.Join(f.wire.calls(), " "))
			require.Empty(t, changes(t, q, stale.Audit.ID))
			f.wire.calls()
		}
		require.NoError(t, q.WritePaused(t.Context(), second), "it has landed")
		require.Equal(t, second.Paused, f.paused(t))

		it := f.rawAt(t, itemKey("pauses", "pauses"))
		require.Len(t, it, 4)
		require.Equal(t, `[{"operation":"mail","tenant":"acme","since":"`+base.Format(time.RFC3339)+`","until":"`+
			base.Add(time.Hour).Format(time.RFC3339)+`","who":"alice","why":"her right"}]`, text(it, schema.Pauses))
		p, err := f.scanner().Scan(t.Context(), protocol.ScanQuery{Segments: 1})
		require.NoError(t, err)
		require.Empty(t, p.Records)
		require.Empty(t, p.Unreadable)
		removed, err := must(NewRemover(f.clientAs(asRemover), f.table, f.o)).RemoveExpired(t.Context(),
			protocol.ExpiredQuery{Segments: 1, Before: base.Add(24 * 365 * 100 * time.Hour)})
		require.NoError(t, err)
		require.Equal(t, 2, removed.Removed, "the entries of the audit")
	})
}

// A change whose reply is lost, or that meets a transaction on the item, is made once, with one entry.
func TestAPauseWithFaults(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, f *fixture, q *AdminStore) {
		seen := ""
		for i, fault := range []func(){
			func() { f.wire.loseFirst(1) },
			func() { f.wire.loseFirst(2) },
			func() {
				f.wire.set(func(n int, _ string, _ *http.Request) (*http.Response, error) {
					if n < 2 {
						return answer(http.StatusBadRequest, conflicting), nil
					}
					return nil, nil
				})
			},
		} {
			fault()
			w := pausing(seen, fmt.Sprint("w", i), fmt.Sprint("op", i))
			require.NoError(t, q.WritePaused(t.Context(), w))
			f.wire.set(nil)
			require.Equal(t, w.Paused, f.paused(t))
			require.Equal(t, []protocol.Audit{*w.Audit}, changes(t, q, w.Audit.ID))
			seen = w.Write
		}
	})
}

// A change may or may not have been made before another one. It is reported as that, and not made again over the
// other one.
func TestAPauseThatMayHaveBeenReplaced(t *testing.T) {
	t.Parallel()
	eachKind(t, func(t *testing.T, f *fixture, q *AdminStore) {
		other := must(NewAdminStore(f.admin, f.table, f.o))
		w := pausing("", "w1", "export")
		n := 0
		f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
			body := bodyOf(t, req)
			if op == "GetItem" || !strings.Contains(body, `"paused"`) || strings.Contains(body, "audit#") && op == "PutItem" {
				return nil, nil
			}
			if n++; n > 1 {
				return nil, nil
			}
			res, err := f.wire.loseReply(req)
			require.NoError(t, other.WritePaused(context.Background(), pausing("w1", "w2", "mail")))
			return res, err
		})
		err := q.WritePaused(t.Context(), w)
		if f.o.WithoutTransactions {
			isStoreError(t, err, true)
		} else {
			require.NoError(t, err, "DynamoDB knows the transaction by its token")
		}
		f.wire.set(nil)
		require.Equal(t, "w2", f.paused(t).Write, "nothing is made over the other one")
		require.Len(t, changes(t, q, w.Audit.ID), 1)
	})
}

// An item that cannot be read is not taken for one that pauses nothing.
func TestDamagedPausesFailClosed(t *testing.T) {
	t.Parallel()
	f := open(t, &patient)
	require.NoError(t, f.adminStore(t).WritePaused(t.Context(), pausing("", "w1", "export")))
	whole := f.rawAt(t, itemKey("pauses", "pauses"))
	for name, damage := range map[string]func(item){
		"no list":      func(it item) { delete(it, schema.Pauses) },
		"another type": func(it item) { it[schema.Pauses] = num("1") },
		"cut off":      func(it item) { it[schema.Pauses] = str(text(it, schema.Pauses)[:20]) },
		"no write":     func(it item) { delete(it, schema.Write) },
	} {
		t.Run(name, func(t *testing.T) {
			it := maps.Clone(whole)
			damage(it)
			f.put(t, it)
			_, err := PausesOf(f.Store).ReadPaused(t.Context())
			require.False(t, isStoreError(t, err, false).Down)
			require.ErrorContains(t, err, "delete it, which resumes all calls")
		})
	}
}
