package idem_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

func TestLookup(t *testing.T) {
	r := newRig(t, nil)
	key := unsafe.Key("t", "k")
	look := func() *idem.Record {
		t.Helper()
		s, err := r.engine.Lookup(t.Context(), key)
		require.NoError(t, err)
		return s
	}
	require.Nil(t, look())
	parked(t, r, key)
	s := look()
	require.Equal(t, idem.Unknown, s.State)
	require.Equal(t, 1, s.Attempt)
	require.Equal(t, errPlain.Error(), s.Failure.Message)
	require.True(t, s.ExpiresAt.IsZero())
	require.Equal(t, []idemtest.Method{"Get"}, r.faults.Calls(), "one call")

	done := unsafe.Key("t", "done")
	_, err := idem.Do(t.Context(), r.engine, done, 1, new(counter).run)
	require.NoError(t, err)
	s, err = r.engine.Lookup(t.Context(), done)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, s.State)
	require.Equal(t, r.record(t, done).ExpiresAt, s.ExpiresAt)
	r.clock.Advance(idem.DefaultRetention + time.Minute)
	s, err = r.engine.Lookup(t.Context(), done)
	require.NoError(t, err)
	require.True(t, s.Expired(r.engine.Now()), "as if there were none")

	_, err = r.engine.Lookup(t.Context(), idem.Key{})
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
	r.faults.Next(idemtest.Get, idemtest.Refuse, idemtest.Unreadable, idemtest.Unreadable)
	_, err = r.engine.Lookup(t.Context(), key)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	_, err = r.engine.Lookup(t.Context(), key)
	require.ErrorIs(t, err, idem.ErrRecordUnreadable)
}
