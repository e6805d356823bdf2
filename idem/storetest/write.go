package storetest

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// write is one call of a store's method, as a value: it can be kept back, sent
// late, sent twice, and applied to the reference.
type write interface {
	fmt.Stringer
	id() string
	apply(*protocol.Record, time.Time) (*protocol.Record, error)
	send(context.Context, protocol.Store, time.Time) error
}

type (
	acquire  struct{ protocol.Claim }
	withdraw struct{ protocol.Withdrawal }
	extend   struct{ protocol.Extension }
	step     struct{ protocol.StepWrite }
	finish   struct{ protocol.Finish }
	settle   struct{ protocol.Settlement }
	refer    struct{ protocol.ReferenceWrite }
	// postpone, prolong and forget are writes of [protocol.AdminStore].
	postpone struct{ protocol.Postponement }
	prolong  struct{ protocol.Prolongation }
	forget   struct{ protocol.Erasure }
)

func (w acquire) id() string  { return w.Record.ID }
func (w withdraw) id() string { return w.Claim.Record.ID }
func (w extend) id() string   { return w.ID }
func (w step) id() string     { return w.ID }
func (w finish) id() string   { return w.ID }
func (w settle) id() string   { return w.ID }
func (w refer) id() string    { return w.ID }
func (w postpone) id() string { return w.ID }
func (w prolong) id() string  { return w.ID }
func (w forget) id() string   { return w.ID }

// at dates a claim that creates a record: now and UpdatedAt are the same instant.
func (w acquire) at(now time.Time) protocol.Claim {
	w.Record.UpdatedAt = now
	return w.Claim
}

func (w acquire) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.at(now).Apply(r, now)
}

func (w withdraw) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}
func (w extend) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}
func (w step) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}
func (w finish) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}
func (w settle) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}

func (w refer) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}
func (w postpone) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}
func (w prolong) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}
func (w forget) apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.Apply(r, now)
}

func (w acquire) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.Acquire(ctx, now, w.at(now))
}

func (w withdraw) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.Withdraw(ctx, now, w.Withdrawal)
}

func (w extend) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.Extend(ctx, now, w.Extension)
}

func (w step) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.RecordStep(ctx, now, w.StepWrite)
}

func (w finish) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.Finish(ctx, now, w.Finish)
}

func (w settle) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.Settle(ctx, now, w.Settlement)
}

func (w refer) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.RecordReference(ctx, now, w.ReferenceWrite)
}

func (w postpone) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.(protocol.AdminStore).Postpone(ctx, now, w.Postponement)
}

func (w prolong) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.(protocol.AdminStore).Prolong(ctx, now, w.Prolongation)
}

func (w forget) send(ctx context.Context, s protocol.Store, now time.Time) error {
	return s.(protocol.AdminStore).Forget(ctx, now, w.Erasure)
}

func (w acquire) String() string {
	switch {
	case w.Seen == "":
		return "a claim"
	case w.Replace:
		return "a replacement"
	}
	return "a takeover"
}

func (w withdraw) String() string { return "the withdrawal of " + acquire{w.Claim}.String() }
func (w extend) String() string   { return "an extension" }
func (w refer) String() string    { return "a reference" }
func (w postpone) String() string { return "a postponement" }
func (w prolong) String() string  { return "a prolongation" }
func (w forget) String() string   { return "a removal" }
func (w settle) String() string {
	if w.Kind == protocol.EventLapse {
		return "another call's park"
	}
	return "a resolution to " + string(w.Ending.State)
}

func (w step) String() string {
	if w.Begin {
		return "a begin mark"
	}
	return "a step"
}

func (w finish) String() string {
	if _, ok := w.Attempt.(protocol.WithoutResult); ok {
		return "a result for an outcome"
	}
	s := "an end as " + string(w.Ending.State)
	if w.Ending.State == protocol.Released && w.Ending.Uncertain {
		s += " (uncertain)"
	}
	if w.Attempt != nil {
		s += " without a claim"
	}
	return s
}
