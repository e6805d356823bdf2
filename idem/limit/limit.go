package limit

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// MaxOpen is the largest bound on open keys.
	MaxOpen = 1000
	// MaxNew is the largest bound on new keys.
	MaxNew = 100_000

	// checkEvery is how long a look at the places of an operation that has none left is enough.
	checkEvery = time.Second
	// checked is how many places one look reads the records of.
	checked = 16
)

// PerTenant is an operation's limit for each of its tenants. The zero value of a field is no
// bound.
type PerTenant struct {
	// Open bounds the keys whose record is open: in progress, unknown or pending. At most
	// [MaxOpen].
	Open int
	// New bounds the keys that are claimed for the first time, or again after their record has
	// expired, in each second of the clock. At most [MaxNew].
	New int
}

var _ protocol.Limit = PerTenant{}

// Problem implements [protocol.Limit].
func (p PerTenant) Problem() string {
	switch {
	case p.Open < 0 || p.Open > MaxOpen:
		return fmt.Sprintf("Open is %d: use 1 to %d, since each call writes the places of all; or zero for no bound", p.Open, MaxOpen)
	case p.New < 0 || p.New > MaxNew:
		return fmt.Sprintf("New is %d: use 1 to %d, or zero for no bound", p.New, MaxNew)
	case p.Open == 0 && p.New == 0:
		return "it bounds nothing: set Open, New or both, or leave the limit out"
	}
	return ""
}

// BoundsOpen implements [protocol.Limit].
func (p PerTenant) BoundsOpen() bool { return p.Open > 0 }

// Check implements [protocol.Limit].
func (p PerTenant) Check(s protocol.Store) error {
	if _, ok := s.(protocol.Places); ok {
		return nil
	}
	return &protocol.ConfigError{What: "limit.PerTenant", Problem: fmt.Sprintf("the store, a %T, keeps no places: "+
		"use one that implements protocol.Places, such as dynamostore.Store, or leave the operation's Limit out", s)}
}

// Admit implements [protocol.Limit].
func (p PerTenant) Admit(ctx context.Context, a protocol.Admission) error {
	places, ok := a.Store.(protocol.Places)
	if !ok {
		return p.Check(a.Store)
	}
	t := protocol.PlaceTaking{ID: a.ID, Attempt: a.Attempt, MaxOpen: p.Open}
	if a.New {
		t.MaxNew = p.New
	}
	if t.MaxOpen == 0 && t.MaxNew == 0 {
		return nil
	}
	c := check{Admission: a, places: places}
	for tries := 0; ; tries++ {
		now := a.Now()
		err := places.TakePlace(ctx, now, t)
		no, refused := errors.AsType[*protocol.NoPlaceError](err)
		if !refused {
			return err
		}
		var freed bool
		switch no.Why {
		case protocol.PlacesNew:
			return &protocol.TooManyError{New: true, RetryAfter: now.Truncate(time.Second).Add(time.Second).Sub(now)}
		case protocol.PlaceLater:
			// The record is another one than the call has seen, or gone with its place left behind.
			_, place := protocol.PlaceOf(a.ID)
			if freed, err = c.free(ctx, place, no.State.Taken[place]); err != nil {
				return err
			}
			if !freed || tries > 0 {
				return &protocol.ConflictError{}
			}
		default:
			if tries > 0 || !c.due(ctx, now, no.State) {
				return &protocol.TooManyError{RetryAfter: checkEvery}
			}
		}
	}
}

// Closed implements [protocol.Limit].
func (p PerTenant) Closed(ctx context.Context, s protocol.Store, now time.Time, id string, attempt int) error {
	places, ok := s.(protocol.Places)
	if !ok || p.Open == 0 {
		return nil
	}
	err := places.ReturnPlace(ctx, now, protocol.PlaceReturn{ID: id, Attempt: attempt})
	if _, later := errors.AsType[*protocol.NoPlaceError](err); later {
		return nil
	}
	return err
}

// overBy reports whether the outcome had expired by the clock of the call that took the place. Nobody
// takes a place to replace one that has not.
func overBy(rec *protocol.Record, p protocol.TakenPlace) bool {
	return rec.Expired(p.Since.Add(time.Second)) // to the second
}

// check looks whether places are still needed.
type check struct {
	protocol.Admission
	places protocol.Places
}

// due looks at the places if nobody has for a second, and reports whether it has freed one.
func (c *check) due(ctx context.Context, now time.Time, s *protocol.PlaceState) bool {
	if since := now.Sub(s.CheckedAt); since >= 0 && since < checkEvery {
		return false
	}
	group, _ := protocol.PlaceOf(c.ID)
	look := c.next(now, s)
	if len(look) == 0 {
		return false
	}
	begin := protocol.PlaceCheck{ID: c.ID, Seen: s.CheckedAt, To: look[len(look)-1]}
	if err := c.places.CheckPlaces(ctx, now, begin); err != nil {
		return false
	}
	if end, ok := ctx.Deadline(); ok {
		// What is left is for the place that was freed, and the claim.
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, time.Until(end)/2)
		defer cancel()
	}
	freed := false
	for _, place := range look {
		one, err := c.freeOf(ctx, group+"#"+place, s.Taken[place])
		if err != nil && ctx.Err() != nil {
			return freed
		}
		freed = freed || one
	}
	return freed
}

// next lists the places to look at: those that come after the ones that were looked at last, in
// the order of their names. One that is about to be claimed is left alone.
func (c *check) next(now time.Time, s *protocol.PlaceState) (look []string) {
	for place, p := range s.Taken {
		// Of a clock that is far ahead too.
		if now.Sub(p.Since).Abs() > c.Claiming {
			look = append(look, place)
		}
	}
	slices.SortFunc(look, func(a, b string) int {
		return cmp.Or(before(a > s.CheckedTo, b > s.CheckedTo), strings.Compare(a, b))
	})
	return look[:min(len(look), checked)]
}

// before orders what is true before what is not.
func before(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func (c *check) free(ctx context.Context, place string, p protocol.TakenPlace) (bool, error) {
	group, _ := protocol.PlaceOf(c.ID)
	return c.freeOf(ctx, group+"#"+place, p)
}

// freeOf gives the place back if its record is closed and no claim that relies on the place can
// open it any more. Such a claim would be the place's attempt, made over what the attempt before
// it has left.
func (c *check) freeOf(ctx context.Context, id string, p protocol.TakenPlace) (bool, error) {
	rec, err := c.Store.Get(ctx, id)
	if err != nil {
		if errors.Is(err, protocol.ErrRecordUnreadable) {
			return false, nil
		}
		return false, err
	}
	now, attempt := c.Now(), 0
	mayBeClaimed := true
	if rec != nil {
		attempt = rec.Attempt
		switch rec.State {
		case protocol.Completed, protocol.Failed:
			if mayBeClaimed = rec.Expired(now); !mayBeClaimed && attempt == p.Attempt-1 && overBy(rec, p) {
				return false, nil // until it has expired here too, and can be fenced
			}
		case protocol.Released:
		case protocol.InProgress:
			if !rec.Due.IsZero() {
				return false, nil // a sweep tells people of it
			}
			attempt = p.Attempt - 1 // it is open until it is fenced
		default:
			return false, nil
		}
	}
	if mayBeClaimed && attempt == p.Attempt-1 {
		if fenced, err := c.Fence(ctx, id, rec); err != nil || !fenced {
			return false, err
		}
	}
	err = c.places.ReturnPlace(ctx, now, protocol.PlaceReturn{ID: id, Attempt: p.Attempt, Since: p.Since})
	if _, later := errors.AsType[*protocol.NoPlaceError](err); later {
		return false, nil
	}
	return err == nil, err
}
