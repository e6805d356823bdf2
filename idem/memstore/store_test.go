package memstore_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/storetest"
)

var now = time.Date(2030, 5, 6, 7, 8, 9, 0, time.UTC)

func TestConformance(t *testing.T) {
	for name, o := range map[string]memstore.Options{"no limit": {}, "5.5 MB": {MaxResult: 5632 << 10}} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, func(*testing.T) storetest.Harness {
				s := o.New()
				return storetest.Harness{
					Store: s, Scanner: s, MaxResult: o.MaxResult,
					Delete: func(_ context.Context, id string) error { s.Delete(id); return nil },
				}
			})
		})
	}
}

func claim(t *testing.T, s *memstore.Store, id string) {
	t.Helper()
	require.NoError(t, s.Acquire(t.Context(), now, protocol.Claim{Record: protocol.Record{
		ID: id, State: protocol.InProgress, Owner: "owner-" + id, Write: "write-" + id, Attempt: 1,
	}}))
}

func TestRecordsAreSortedCopies(t *testing.T) {
	s := memstore.New()
	require.Empty(t, s.Records())
	claim(t, s, "b")
	claim(t, s, "a")
	all := s.Records()
	require.Len(t, all, 2)
	require.Equal(t, "a", all[0].ID)
	require.Equal(t, "b", all[1].ID)
	all[0].Owner = "changed"
	require.Equal(t, "owner-a", s.Records()[0].Owner)
}

func TestDelete(t *testing.T) {
	s := memstore.New()
	claim(t, s, "a")
	s.Delete("a")
	s.Delete("a")
	rec, err := s.Get(t.Context(), "a")
	require.NoError(t, err)
	require.Nil(t, rec)
	claim(t, s, "a")
}

func TestMaxResult(t *testing.T) {
	s := memstore.Options{MaxResult: 3}.New()
	claim(t, s, "a")
	end := protocol.Ending{State: protocol.Completed, Result: []byte("four")}
	var large *protocol.TooLargeError
	err := s.Finish(t.Context(), now, protocol.Finish{ID: "a", Owner: "owner-a", Write: "w", Ending: end})
	require.ErrorAs(t, err, &large)
	require.Equal(t, &protocol.TooLargeError{Size: 4, Limit: 3}, large)
	err = s.Settle(t.Context(), now, protocol.Settlement{ID: "a", Kind: protocol.EventResolve, Seen: "write-a", Write: "w", Ending: end})
	require.ErrorAs(t, err, &large)
	require.Equal(t, protocol.InProgress, s.Records()[0].State)
}

// foreign is a unit of work of another store's kind.
type foreign struct{}

func (foreign) Seal() bool { return true }
func (foreign) Size() int  { return 0 }

func TestForeignUnitsAreUnsupported(t *testing.T) {
	s := memstore.New()
	claim(t, s, "a")
	f := protocol.Finish{ID: "a", Owner: "owner-a", Write: "w", Ending: protocol.Ending{State: protocol.Completed}, Unit: foreign{}}
	require.ErrorIs(t, s.Finish(t.Context(), now, f), errors.ErrUnsupported)
	require.Equal(t, protocol.InProgress, s.Records()[0].State)
}

// A record that another store handed out must not pass for one with a result.
func TestResultOfAForeignRecord(t *testing.T) {
	s := memstore.New()
	for name, rec := range map[string]*protocol.Record{
		"nil":        nil,
		"in parts":   {Body: protocol.Body{Parts: 2, Size: 10, Stored: 10}},
		"compressed": {Body: protocol.Body{Data: []byte("x"), Encoding: "zlib", Size: 1, Stored: 1}},
		"cut short":  {Body: protocol.Body{Data: []byte("x"), Size: 2, Stored: 2}},
		"too long":   {Body: protocol.Body{Data: []byte("xyz"), Size: 2, Stored: 2}},
		"stored":     {Body: protocol.Body{Data: []byte("xy"), Size: 2, Stored: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := s.Result(t.Context(), rec)
			require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
		})
	}
}

func TestResultWithAnEndedContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := memstore.New().Result(ctx, &protocol.Record{})
	require.ErrorIs(t, err, protocol.ErrStoreUnavailable)
	require.ErrorIs(t, err, context.Canceled)
}
