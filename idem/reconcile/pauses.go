package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// PauseStore is what a [Store] does for pauses: a *dynamostore.AdminStore and a *memstore.Store have it.
// A store without it gives errors.ErrUnsupported.
type PauseStore interface {
	// ReadPaused reads consistently what is paused.
	ReadPaused(ctx context.Context) (protocol.Paused, error)
	// WritePaused replaces that together with the audit entry, or writes the entry before it as
	// Unconfirmed. It is a [*protocol.ConflictError] if something else is there than the write has seen.
	WritePaused(ctx context.Context, w protocol.PausedWrite) error
}

const (
	// maxPauses bounds how many pauses there can be: all functions read them.
	maxPauses = 100
	// maxPauseText bounds who pauses and why, together, in bytes.
	maxPauseText = 1 << 10
	// pausesKept is for how long a pause is kept once what it has turned away has come again, if there is
	// room: a sweep may be late.
	pausesKept = 24 * time.Hour
)

// Paused lists what is paused now, in the order in which it was paused. See package pause.
func (r *Reconciler) Paused(ctx context.Context) ([]protocol.Pause, error) {
	s, err := r.pauses()
	if err != nil {
		return nil, err
	}
	is, err := s.ReadPaused(ctx)
	return slices.DeleteFunc(is.Pauses, func(p protocol.Pause) bool { return p.Ended(r.now()) }), err
}

// Pause pauses the tenant's calls of the operation, or all of them if the tenant is empty, until a
// time, or until [Reconciler.Resume] if that is zero. A pause of the same calls is replaced: it goes
// on, with this end and this reason. It is recorded under [protocol.Pause.ID]. By.IfWrite is not used.
func (r *Reconciler) Pause(ctx context.Context, operation, tenant string, until time.Time, by Change) error {
	p := protocol.Pause{Operation: operation, Tenant: tenant, Since: r.now(),
		Until: protocol.RoundUp(until.UTC(), time.Second), Who: by.Actor, Why: by.Reason}
	if err := by.check(); err != nil {
		return err
	}
	// As keys have them, with any value.
	key := idem.Operation{Name: operation}.Key(cmp.Or(tenant, idem.SingleTenant), "any")
	switch {
	case key.Err() != nil:
		return invalid("pause", "%s", strings.TrimPrefix(key.Err().Error(), "idem: "))
	case !until.IsZero() && (!until.After(p.Since) || until.After(never)):
		return invalid("pause", "it would end at %s: use a time in the future, before the year 9999",
			until.Format(time.RFC3339))
	case len(p.Who)+len(p.Why) > maxPauseText:
		return invalid("pause", "who and why have more than %d bytes together: shorten them, and link to the rest",
			maxPauseText)
	}
	return r.changePaused(ctx, p, by, protocol.ChangePaused, func(all []protocol.Pause) ([]protocol.Pause, error) {
		at, first := inForce(all, p, p.Since), -1 // of those that have ended, the first to have recovered
		for i := range all {
			if all[i].Ended(p.Since) && (first < 0 || all[i].Recovers().Before(all[first].Recovers())) {
				first = i
			}
		}
		switch {
		case at >= 0:
			lasts := p
			lasts.Since = all[at].Since
			all[at] = lasts
			return all, nil
		case len(all) < maxPauses:
		case first < 0:
			return nil, invalid("pause", "there are %d pauses, and no more are possible: pause whole operations", len(all))
		default:
			all = slices.Delete(all, first, first+1)
		}
		return append(all, p), nil
	})
}

// Resume ends the pause of the tenant's calls of the operation, or of all of them if the tenant is
// empty. If exactly these are not paused, the error matches [ErrNotFound]. By.IfWrite is the [protocol.Pause.Digest]
// of the pause that the decision is about: if there is another one, it goes on, and the error is [ErrChanged].
func (r *Reconciler) Resume(ctx context.Context, operation, tenant string, by Change) error {
	if err := by.check(); err != nil {
		return err
	}
	now := r.now()
	p := protocol.Pause{Operation: operation, Tenant: tenant}
	return r.changePaused(ctx, p, by, protocol.ChangeResumed, func(all []protocol.Pause) ([]protocol.Pause, error) {
		at := inForce(all, p, now)
		switch {
		case at < 0:
			return nil, fmt.Errorf("%w: operation %q of tenant %q has no pause of its own", ErrNotFound, operation, tenant)
		case by.IfWrite != "" && all[at].Digest() != by.IfWrite:
			return nil, fmt.Errorf("%w: the pause of these calls is another one", ErrChanged)
		}
		all[at].Until = now
		return all, nil
	})
}

// inForce is the index of the pause of the same calls that lasts; -1 if there is none.
func inForce(all []protocol.Pause, p protocol.Pause, now time.Time) int {
	return slices.IndexFunc(all, func(other protocol.Pause) bool {
		return other.Operation == p.Operation && other.Tenant == p.Tenant && !other.Ended(now)
	})
}

func (r *Reconciler) pauses() (PauseStore, error) {
	s, ok := r.store.(PauseStore)
	if !ok {
		return nil, fmt.Errorf("reconcile: the store %T has no pauses: use a *dynamostore.AdminStore: %w", r.store,
			errors.ErrUnsupported)
	}
	return s, nil
}

// changePaused writes the list of pauses as edit makes it. If another write was faster, edit sees the
// list again.
func (r *Reconciler) changePaused(ctx context.Context, p protocol.Pause, by Change, change protocol.Change,
	edit func([]protocol.Pause) ([]protocol.Pause, error)) error {
	s, err := r.pauses()
	if err != nil {
		return err
	}
	for range maxRounds {
		is, err := s.ReadPaused(ctx)
		if err != nil {
			return err
		}
		now := r.now()
		next, err := edit(slices.DeleteFunc(slices.Clone(is.Pauses), func(p protocol.Pause) bool {
			return p.Ended(now) && now.After(p.Recovers().Add(pausesKept))
		}))
		if err != nil {
			return err
		}
		a := r.audit(&idem.Record{ID: p.ID()}, by, change, "", "")
		a.Until = p.Until
		err = s.WritePaused(ctx, protocol.PausedWrite{
			Paused: protocol.Paused{Pauses: next, Write: newID()}, Seen: is.Write, Audit: a,
		})
		if !isAnswer(err) {
			return err
		}
	}
	return fmt.Errorf("%w: what is paused keeps being written", ErrChanged)
}

// maxRounds bounds how often a change of what is paused begins again: each time another one was made.
const maxRounds = 8

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
