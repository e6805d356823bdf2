package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

var _ protocol.Places = (*Store)(nil)

const (
	// The record has a place of no later attempt, or there is room for it.
	ifPlace = "attribute_exists(open_places) AND (open_places.#place<:later OR " +
		"attribute_not_exists(open_places.#place) AND size(open_places)<:max_open)"
	ifNoPlaces = "attribute_not_exists(open_places)"
	ifPlaced   = "open_places.#place<:later"
	// The place is the one that was read.
	ifThisPlace = "open_places.#place=:place"
	// The second is not full, or there is room for it.
	ifSecond = "attribute_exists(new_keys) AND (new_keys.#second<:max_new OR " +
		"attribute_not_exists(new_keys.#second) AND size(new_keys)<:seconds)"
	ifNoSecond = "(attribute_not_exists(new_keys) OR attribute_not_exists(new_keys.#second) AND size(new_keys)>=:seconds)"
	// Nobody has looked since.
	ifUnchecked = "attribute_not_exists(checked_at)"
	ifChecked   = "checked_at=:seen"

	placeSet   = "open_places.#place=:place"
	placesSet  = "open_places=:places"
	secondSet  = "new_keys.#second=if_not_exists(new_keys.#second,:zero)+:one"
	secondsSet = "new_keys=:new_keys"
	checkSet   = "SET checked_at=:now,checked_to=:to"
	placeDrop  = "REMOVE open_places.#place"

	// maxPlaceForms bounds how often a place is asked for in another form.
	maxPlaceForms = 8
)

// placeForm says which of the item's maps are to be made anew, with the place or the second as
// their only members.
type placeForm struct{ places, seconds bool }

// TakePlace implements [protocol.Places]: one UpdateItem. The first one for a tenant's operation,
// and one in [protocol.MaxSeconds] that counts a new key, need another one.
func (s *Store) TakePlace(ctx context.Context, now time.Time, t protocol.PlaceTaking) error {
	k := s.retry.begin(ctx, "TakePlace")
	defer k.end()
	if t.MaxOpen <= 0 && t.MaxNew <= 0 {
		return nil
	}
	var form placeForm
	for range maxPlaceForms {
		u, cond := form.taking(t, now)
		old, err := s.updateItem(k, placesKey(t.ID), u, cond)
		if err != errRefused {
			return err
		}
		state, err := decodePlaces(old)
		if err != nil {
			return err
		}
		if _, err := t.Apply(state, now); err != nil {
			return err
		}
		form = placeForm{
			places:  !has(old, schema.OpenPlaces),
			seconds: !has(old, schema.NewKeys) || state.New[now.Unix()] == 0 && len(state.New) >= protocol.MaxSeconds,
		}
	}
	return k.fail(errors.New("the item of places changes all the time"))
}

func (f placeForm) taking(t protocol.PlaceTaking, now time.Time) (u *update, cond string) {
	u = newUpdate("SET ", 0, 4)
	u.names = map[string]string{}
	if t.MaxOpen > 0 {
		_, u.names["#place"] = protocol.PlaceOf(t.ID)
		at := placeNumber(t.Attempt, now)
		if f.places {
			cond = ifNoPlaces
			u.add(placesSet)
			delete(u.names, "#place")
			_, place := protocol.PlaceOf(t.ID)
			u.item[":places"] = &types.AttributeValueMemberM{Value: item{place: number(at)}}
		} else {
			cond = ifPlace
			u.add(placeSet)
			u.num(":place", at)
			u.num(":later", placeNumber(t.Attempt+1, time.Unix(0, 0)))
			u.num(":max_open", int64(t.MaxOpen))
		}
	}
	if t.MaxNew > 0 {
		if t.MaxOpen > 0 {
			cond += " AND "
			u.add(",")
		}
		second := strconv.FormatInt(now.Unix(), 10)
		u.names["#second"] = second
		u.item[":seconds"] = number(protocol.MaxSeconds)
		if f.seconds {
			cond += ifNoSecond
			u.add(secondsSet)
			u.item[":new_keys"] = &types.AttributeValueMemberM{Value: item{second: number(1)}}
		} else {
			cond += ifSecond
			u.add(secondSet)
			u.item[":max_new"], u.item[":zero"], u.item[":one"] = number(int64(t.MaxNew)), number(0), number(1)
		}
	}
	if len(u.names) == 0 {
		u.names = nil
	}
	return u, cond
}

// ReturnPlace implements [protocol.Places]: one UpdateItem.
func (s *Store) ReturnPlace(ctx context.Context, now time.Time, r protocol.PlaceReturn) error {
	k := s.retry.begin(ctx, "ReturnPlace")
	defer k.end()
	u := newUpdate(placeDrop, 0, 1)
	_, place := protocol.PlaceOf(r.ID)
	u.names = map[string]string{"#place": place}
	cond := ifPlaced
	if r.Since.IsZero() {
		u.num(":later", placeNumber(r.Attempt+1, time.Unix(0, 0)))
	} else {
		cond = ifThisPlace
		u.num(":place", placeNumber(r.Attempt, r.Since))
	}
	old, err := s.updateItem(k, placesKey(r.ID), u, cond)
	return concludePlaces(old, err, func(state *protocol.PlaceState) (*protocol.PlaceState, error) { return r.Apply(state, now) })
}

// CheckPlaces implements [protocol.Places]: one UpdateItem.
func (s *Store) CheckPlaces(ctx context.Context, now time.Time, c protocol.PlaceCheck) error {
	k := s.retry.begin(ctx, "CheckPlaces")
	defer k.end()
	u := newUpdate(checkSet, 1, 2)
	u.num(":now", millis(now))
	u.str(":to", c.To)
	cond := ifUnchecked
	if !c.Seen.IsZero() {
		cond = ifChecked
		u.num(":seen", millis(c.Seen))
	}
	old, err := s.updateItem(k, placesKey(c.ID), u, cond)
	return concludePlaces(old, err, func(state *protocol.PlaceState) (*protocol.PlaceState, error) { return c.Apply(state, now) })
}

// concludePlaces says what a write's end means: what was refused says why.
func concludePlaces(old item, err error, apply func(*protocol.PlaceState) (*protocol.PlaceState, error)) error {
	if err != errRefused {
		return err
	}
	state, err := decodePlaces(old)
	if err != nil {
		return err
	}
	_, err = apply(state)
	return err
}

func placesKey(id string) item {
	group, _ := protocol.PlaceOf(id)
	return itemKey(group+schema.LimitPK, schema.LimitSK)
}

// placeNumber is a place as stored: numbers of later attempts are larger.
func placeNumber(attempt int, at time.Time) int64 {
	return int64(attempt)*schema.PlaceUnit + at.Unix()
}

func number(n int64) types.AttributeValue {
	return &types.AttributeValueMemberN{Value: strconv.FormatInt(n, 10)}
}

// decodePlaces reads the item; nil stands for none.
func decodePlaces(it item) (*protocol.PlaceState, error) {
	p := (*protocol.PlaceState)(nil).Clone()
	damaged := func(name string) error {
		return fmt.Errorf("%w: %s of %q in the item of places", protocol.ErrRecordUnreadable, name, text(it, schema.PK))
	}
	each := func(name string, take func(member string, n int64) error) error {
		if !has(it, name) {
			return nil
		}
		m, ok := it[name].(*types.AttributeValueMemberM)
		if !ok {
			return damaged(name)
		}
		for member, v := range m.Value {
			n, err := integer(v)
			if err == nil {
				err = take(member, n)
			}
			if err != nil {
				return damaged(name)
			}
		}
		return nil
	}
	if err := each(schema.OpenPlaces, func(place string, n int64) error {
		p.Taken[place] = protocol.TakenPlace{Attempt: int(n / schema.PlaceUnit), Since: time.Unix(n%schema.PlaceUnit, 0)}
		return nil
	}); err != nil {
		return nil, err
	}
	if err := each(schema.NewKeys, func(second string, n int64) error {
		at, err := strconv.ParseInt(second, 10, 64)
		p.New[at] = int(n)
		return err
	}); err != nil {
		return nil, err
	}
	if has(it, schema.CheckedAt) {
		n, err := integer(it[schema.CheckedAt])
		if err != nil {
			return nil, damaged(schema.CheckedAt)
		}
		p.CheckedAt, p.CheckedTo = time.UnixMilli(n), text(it, schema.CheckedTo)
	}
	return p, nil
}

func integer(v types.AttributeValue) (int64, error) {
	n, ok := v.(*types.AttributeValueMemberN)
	if !ok {
		return 0, errors.New("no number")
	}
	return strconv.ParseInt(n.Value, 10, 64)
}
