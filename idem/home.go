package idem

import (
	"context"
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/idem/protocol"
)

// home settles where the key is claimed, which may be under a former secret of its operation. It
// returns the record if that was read on the way, or must be seen before the claim. The store is
// asked within the time of asking.
func (x *execution) home(ctx, asking context.Context) (*Record, error) {
	op := &x.call.Key.op
	if x.call.Accepted != nil {
		return x.call.Accepted, nil
	}
	look := x.call.NoClaim != nil || x.later != nil || op.Mode == Atomic && !op.ReplayRunsHandler
	if name := x.call.Key.name; name != nil {
		find := name.Claim
		if x.call.NoClaim != nil {
			find = name.Find
		}
		h, err := find(asking, &x.engine.place)
		if err != nil {
			x.heard(ctx, err)
			return nil, err
		}
		x.moveTo(h)
		if h.Seen != nil {
			return h.Seen, nil
		}
		look = look || op.Mode == Atomic && h.MayMove
	}
	if !look {
		return nil, nil
	}
	rec, err := x.look(asking)
	x.heard(ctx, err)
	return rec, err
}

// moveTo makes the call one for the record that is there.
func (x *execution) moveTo(h protocol.Home) {
	x.call.Key.id, x.call.Fingerprint, x.former = h.ID, h.Fingerprint(x.input), h.Former
}

// elsewhere goes on where the record is, if what was seen says that it is not where it was looked
// for: there is a mark, or the record was under a former secret and is over, so that the next one
// is made under the current one.
func (x *execution) elsewhere(ctx, asking context.Context, seen *Record) (rec *Record, moved bool, err error) {
	mark := seen != nil && seen.State == protocol.Moved
	over := x.former && (seen == nil || seen.Unexecuted() || seen.Expired(x.engine.now().Add(-x.engine.opts.Margin)))
	refuse := func(why string) error {
		return &StoreError{Op: "claim", Err: fmt.Errorf("record %s has moved %s", x.call.Key.id, why)}
	}
	switch name := x.call.Key.name; {
	case !mark && !over:
		return seen, false, nil
	case name == nil:
		return nil, false, refuse("under a secret of its operation, which this process does not have: see package secrets")
	case x.ran.Load() > 0:
		return nil, false, refuse("under another secret of its operation while the handler ran")
	case over:
		rec, err = x.home(ctx, asking)
		return rec, true, err
	default:
		h, err := name.Follow(seen)
		if err != nil {
			return nil, false, err
		}
		x.moveTo(h)
		rec, err = x.look(asking)
		return rec, true, err
	}
}

// look reads the record without claiming it, once more if it cannot be read.
func (x *execution) look(ctx context.Context) (*Record, error) {
	rec, err := x.engine.store.Get(ctx, x.call.Key.id)
	if errors.Is(err, ErrRecordUnreadable) {
		return x.engine.store.Get(ctx, x.call.Key.id)
	}
	return rec, err
}
