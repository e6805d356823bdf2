package protocol

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A place belongs to the latest attempt that has taken it: neither an earlier one nor what is late
// changes it.
func TestAPlaceBelongsToTheLatestAttempt(t *testing.T) {
	now := time.Unix(1_000_000, 500)
	take := func(p *PlaceState, id string, attempt int) (*PlaceState, string) {
		next, err := PlaceTaking{ID: "a#b#" + id, Attempt: attempt, MaxOpen: 2}.Apply(p, now)
		return whether(t, p, next, err)
	}
	giveBack := func(p *PlaceState, id string, attempt int, since time.Time) (*PlaceState, string) {
		next, err := PlaceReturn{ID: "a#b#" + id, Attempt: attempt, Since: since}.Apply(p, now)
		return whether(t, p, next, err)
	}
	p, why := take(nil, "x", 2)
	require.Empty(t, why)
	_, why = take(p, "x", 1)
	require.Equal(t, PlaceLater, why)
	_, why = take(p, "x", 2)
	require.Empty(t, why, "a duplicate shares it")
	p, why = take(p, "y", 1)
	require.Empty(t, why)
	_, why = take(p, "z", 1)
	require.Equal(t, PlacesFull, why)
	_, why = take(p, "x", 3)
	require.Empty(t, why, "one that has a place takes no other")

	_, why = giveBack(p, "x", 1, time.Time{})
	require.Equal(t, PlaceLater, why)
	_, why = giveBack(p, "x", 2, now.Add(-time.Second))
	require.Equal(t, PlaceLater, why, "it was taken again since")
	q, why := giveBack(p, "x", 2, time.Unix(now.Unix(), 0))
	require.Empty(t, why)
	require.Len(t, q.Taken, 1)
	q, why = giveBack(p, "x", 3, time.Time{})
	require.Empty(t, why)
	require.Len(t, q.Taken, 1)
	_, why = giveBack(q, "x", 1, time.Time{})
	require.Empty(t, why, "no place counts as given back")
	require.Len(t, p.Taken, 2, "what was given is not changed")
}

func whether(t *testing.T, old, next *PlaceState, err error) (*PlaceState, string) {
	t.Helper()
	no, refused := errors.AsType[*NoPlaceError](err)
	if refused {
		require.Nil(t, next)
		return old, no.Why
	}
	require.NoError(t, err)
	return next, ""
}

func TestNewKeysAreCountedByTheSecond(t *testing.T) {
	now := time.Unix(1_000_000, 999_000_000)
	var p *PlaceState
	take := func() string {
		next, err := PlaceTaking{ID: "a#b#c", Attempt: 1, MaxNew: 2}.Apply(p, now)
		var why string
		p, why = whether(t, p, next, err)
		return why
	}
	for range 3 * MaxSeconds {
		require.Empty(t, take())
		require.Empty(t, take())
		require.Equal(t, PlacesNew, take())
		require.LessOrEqual(t, len(p.New), MaxSeconds)
		now = now.Add(time.Second)
	}
}
