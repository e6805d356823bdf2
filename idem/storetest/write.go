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
	Apply(*protocol.Record, time.Time) (*protocol.Record, error)
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

// Apply is the claim's, dated as it is sent. The other writes have theirs from package protocol.
func (w acquire) Apply(r *protocol.Record, now time.Time) (*protocol.Record, error) {
	return w.at(now).Apply(r, now)
}

// send sends a write to a store.
func send(ctx context.Context, s protocol.Store, now time.Time, w write) error {
	switch w := w.(type) {
	case acquire:
		return s.Acquire(ctx, now, w.at(now))
	case withdraw:
		return s.Withdraw(ctx, now, w.Withdrawal)
	case extend:
		return s.Extend(ctx, now, w.Extension)
	case step:
		return s.RecordStep(ctx, now, w.StepWrite)
	case finish:
		return s.Finish(ctx, now, w.Finish)
	case settle:
		return s.Settle(ctx, now, w.Settlement)
	case refer:
		return s.RecordReference(ctx, now, w.ReferenceWrite)
	case postpone:
		return s.(protocol.AdminStore).Postpone(ctx, now, w.Postponement)
	case prolong:
		return s.(protocol.AdminStore).Prolong(ctx, now, w.Prolongation)
	}
	return s.(protocol.AdminStore).Forget(ctx, now, w.(forget).Erasure)
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
func (extend) String() string     { return "an extension" }
func (refer) String() string      { return "a reference" }
func (postpone) String() string   { return "a postponement" }
func (prolong) String() string    { return "a prolongation" }
func (forget) String() string     { return "a removal" }

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
