package protocol

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"
)

// Limit of an operation bounds, for each tenant, the keys that are open and those that are new.
// Package limit has one. It is safe for concurrent use.
type Limit interface {
	// Problem says what is wrong with the limit; empty if nothing is.
	Problem() string
	// BoundsOpen reports whether it bounds the keys that are open.
	BoundsOpen() bool
	// Check reports a store that does not keep [Places], as a *[ConfigError].
	Check(s Store) error
	// Admit takes what a call needs before it claims a record that is not open. A call that the
	// limit refuses gets a [*TooManyError], and one that knows an old state of the record a
	// [*ConflictError] without a record.
	Admit(ctx context.Context, a Admission) error
	// Closed gives back what a record has. It is called once the record is known to be closed,
	// after the attempt or a later one.
	Closed(ctx context.Context, s Store, now time.Time, id string, attempt int) error
}

// Admission is a call that is about to claim a record that is not open.
type Admission struct {
	Store Store
	// Now is the clock of the store's calls.
	Now func() time.Time
	// ID of the record, and the number of the attempt that claims it. What the call has seen
	// of the record, it has read before Admit.
	ID      string
	Attempt int
	// New is set if the key has no record or an expired one, and was not counted yet.
	New bool
	// Claiming is how long a call may take between Admit and its claim.
	Claiming time.Duration
	// Fence keeps every claim over the record from landing that was made over what is seen now,
	// nil for no record. A lapsed claim that the next call would take over is released. It
	// returns false if the record is not to be changed, or has changed since.
	Fence func(ctx context.Context, id string, seen *Record) (bool, error)
}

// ErrTooMany: the operation's limit refuses the call; a [*TooManyError] says more. Nothing was
// executed, nor recorded.
var ErrTooMany = errors.New("idem: the tenant has too many of the operation's keys; nothing was executed, try again later")

// TooManyError says which bound of an operation's limit refuses a call. It matches [ErrTooMany].
type TooManyError struct {
	// New is set if too many keys are new, as opposed to open.
	New bool
	// RetryAfter is when it is of use to try again at the earliest.
	RetryAfter time.Duration
}

func (e *TooManyError) Error() string {
	if e.New {
		return ErrTooMany.Error() + " (new keys a second)"
	}
	return ErrTooMany.Error() + " (open keys)"
}

// Is makes the error match [ErrTooMany].
func (e *TooManyError) Is(target error) bool { return target == ErrTooMany }

// Places is what a store can do for operations with a limit: it keeps one item for each tenant and
// operation, with a place for each open key and counts of new keys. A [Store] may be without it.
// Each method is one atomic conditional change, and may be sent again unchanged: a repeated
// TakePlace may count a new key twice. Errors are those of [Store] and a [*NoPlaceError].
type Places interface {
	// TakePlace takes a place for the record, or takes over the one that it has, on the condition
	// that no later attempt has it, that there is room, and that the key is not one too many in
	// its second.
	TakePlace(ctx context.Context, now time.Time, t PlaceTaking) error

	// ReturnPlace gives back the place of the record, on the condition that no later attempt has
	// it, or that it is the one of Since. No place counts as given back.
	ReturnPlace(ctx context.Context, now time.Time, r PlaceReturn) error

	// CheckPlaces says that the caller looks at the places now, on the condition that the latest
	// time that somebody did is Seen.
	CheckPlaces(ctx context.Context, now time.Time, c PlaceCheck) error
}

// PlaceTaking takes a place for a record that is about to be claimed.
type PlaceTaking struct {
	// ID of the record, and the number of the attempt that is about to claim it.
	ID      string
	Attempt int
	// MaxOpen is how many places there are, zero if the record needs none. MaxNew is how many
	// keys may be new in the second of now, zero if this one is not counted.
	MaxOpen, MaxNew int
}

// PlaceReturn gives back the place of a record that no attempt up to this one can open any more.
type PlaceReturn struct {
	ID      string
	Attempt int
	// Since, if it is not zero, is the time of the place that the attempt has: one that was taken
	// since, by the same attempt, stays.
	Since time.Time
}

// PlaceCheck begins a look at the places of a tenant's operation.
type PlaceCheck struct {
	// ID of any of its records.
	ID string
	// Seen is when somebody looked last, To up to which place this look goes.
	Seen time.Time
	To   string
}

// PlaceState is what a store keeps of the places of one tenant's operation.
type PlaceState struct {
	// Taken are the places, by [PlaceOf] of the record's id.
	Taken map[string]TakenPlace
	// New counts new keys by their second, since 1970.
	New map[int64]int
	// CheckedAt is when somebody looked last whether all places are still needed, to the
	// millisecond, and CheckedTo up to which.
	CheckedAt time.Time
	CheckedTo string
}

// TakenPlace is what an open record has, and what one has that is about to be claimed.
type TakenPlace struct {
	// Attempt is the latest that has taken it.
	Attempt int
	// Since is when that was, to the second.
	Since time.Time
}

// PlaceOf splits a record's id into what is the same for all records of its tenant and operation,
// and the rest.
func PlaceOf(id string) (group, place string) {
	at := strings.LastIndexByte(id, '#')
	return id[:max(at, 0)], id[at+1:]
}

// MaxSeconds is how many seconds a store counts new keys of, before it forgets them.
const MaxSeconds = 16

// Reasons why there is no place.
const (
	// PlacesFull: all places are taken.
	PlacesFull = "full"
	// PlaceLater: a later attempt has the place.
	PlaceLater = "later"
	// PlacesNew: the key is one too many in its second.
	PlacesNew     = "new"
	placesChecked = "checked" // somebody has looked since
)

// NoPlaceError is how a store says that the condition of a change of places did not hold.
type NoPlaceError struct {
	// Why is one of the reasons.
	Why string
	// State is what the store has.
	State *PlaceState
}

func (e *NoPlaceError) Error() string { return fmt.Sprintf("idem: there is no place: %s", e.Why) }

// Apply is what the change makes of the state, nil for none.
func (t PlaceTaking) Apply(old *PlaceState, now time.Time) (*PlaceState, error) {
	next := old.Clone()
	_, place := PlaceOf(t.ID)
	if t.MaxOpen > 0 {
		has, ok := next.Taken[place]
		switch {
		case ok && has.Attempt > t.Attempt:
			return nil, &NoPlaceError{Why: PlaceLater, State: old.Clone()}
		case !ok && len(next.Taken) >= t.MaxOpen:
			return nil, &NoPlaceError{Why: PlacesFull, State: old.Clone()}
		}
		next.Taken[place] = TakenPlace{Attempt: t.Attempt, Since: time.Unix(now.Unix(), 0)}
	}
	if t.MaxNew > 0 {
		second := now.Unix()
		n, ok := next.New[second]
		switch {
		case ok && n >= t.MaxNew:
			return nil, &NoPlaceError{Why: PlacesNew, State: old.Clone()}
		case !ok && len(next.New) >= MaxSeconds:
			clear(next.New)
		}
		next.New[second] = n + 1
	}
	return next, nil
}

// Apply is what the change makes of the state.
func (r PlaceReturn) Apply(old *PlaceState, _ time.Time) (*PlaceState, error) {
	next := old.Clone()
	_, place := PlaceOf(r.ID)
	has, ok := next.Taken[place]
	if ok && (has.Attempt > r.Attempt || !r.Since.IsZero() && (has.Attempt != r.Attempt || !has.Since.Equal(r.Since))) {
		return nil, &NoPlaceError{Why: PlaceLater, State: old.Clone()}
	}
	delete(next.Taken, place)
	return next, nil
}

// Apply is what the change makes of the state.
func (c PlaceCheck) Apply(old *PlaceState, now time.Time) (*PlaceState, error) {
	next := old.Clone()
	if !next.CheckedAt.Equal(c.Seen) {
		return nil, &NoPlaceError{Why: placesChecked, State: old.Clone()}
	}
	next.CheckedAt, next.CheckedTo = now, c.To
	return next, nil
}

// Clone returns a deep copy; of nil an empty state.
func (p *PlaceState) Clone() *PlaceState {
	if p == nil {
		p = &PlaceState{}
	}
	c := *p
	c.Taken, c.New = maps.Clone(p.Taken), maps.Clone(p.New)
	if c.Taken == nil {
		c.Taken = map[string]TakenPlace{}
	}
	if c.New == nil {
		c.New = map[int64]int{}
	}
	return &c
}
