package reconcile

import (
	"cmp"
	"context"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Lookup reads the record with the id ([idem.Key.ID]); nil if there is none. Its Body says how
// large the result is; read it with [Reconciler.Result], and those of its Steps with
// [Reconciler.StepResult].
func (r *Reconciler) Lookup(ctx context.Context, id string) (*idem.Record, error) {
	return r.store.Get(ctx, id)
}

// Result reads the recorded result of a record that Lookup has returned.
func (r *Reconciler) Result(ctx context.Context, rec *idem.Record) ([]byte, error) {
	return r.store.Result(ctx, rec)
}

// StepResult reads the recorded result of a step of a record that Lookup has returned.
func (r *Reconciler) StepResult(ctx context.Context, rec *idem.Record, step string) ([]byte, error) {
	return r.store.StepResult(ctx, rec, step)
}

// History returns the changes of the record by operators, webhooks and sweeps, the earliest
// first. One whose entry cannot be read is a [protocol.ChangeUnreadable]. Of a call that has
// parked it, the record's Failure and OpenSince tell. In a table without transactions a change
// may stay Unconfirmed: see [protocol.Audit].
func (r *Reconciler) History(ctx context.Context, id string) ([]protocol.Audit, error) {
	var all []protocol.Audit
	for page := ""; ; {
		p, err := r.store.AuditOf(ctx, id, page)
		if err != nil {
			return nil, err
		}
		all = append(all, p.Entries...)
		if page = p.Next; page == "" {
			return all, nil
		}
	}
}

// Changes returns a page of the changes of all records by operators, webhooks and sweeps, from a
// time up to another, the earliest first. The order holds within a page and from each page to
// the next; changes of one millisecond are in the order of their records' IDs, and on one page.
// A page has at most some 1,600 changes, more only if many were made in one millisecond. It
// may have none and a next one.
//
// The index is eventually consistent: a change of the last seconds may be missing, and what it
// shows later is not on a page that was read before. Who follows what happens asks again from
// some seconds before the last change that was shown, and tells what is known by its ID and
// Entry. In a table without transactions a change may be Unconfirmed: see [protocol.Audit].
//
// The first page is "". Pass the same times with every page; they count in milliseconds.
func (r *Reconciler) Changes(ctx context.Context, from, to time.Time, page string) (protocol.AuditPage, error) {
	from, to = from.Truncate(time.Millisecond), to.Truncate(time.Millisecond)
	if page != "" {
		ms, err := strconv.ParseInt(page, 10, 64)
		if err != nil {
			return protocol.AuditPage{}, noPage(page)
		}
		if at := time.UnixMilli(ms).UTC(); at.After(from) {
			from = at
		}
	}
	shards := make([]protocol.AuditPage, protocol.AuditShards)
	g, gctx := errgroup.WithContext(ctx)
	for n := range shards {
		g.Go(func() (err error) {
			shards[n], err = r.changesOf(gctx, n, from, to)
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return protocol.AuditPage{}, err
	}
	// What a shard with a next page has from its last millisecond on is not all that there is.
	until, more := to, false
	for _, p := range shards {
		if p.Next == "" {
			continue
		}
		if last := lastAt(p).Truncate(time.Millisecond); !more || last.Before(until) {
			until, more = last, true
		}
	}
	var all protocol.AuditPage
	for _, p := range shards {
		for _, a := range p.Entries {
			if a.At.Before(until) {
				all.Entries = append(all.Entries, a)
			}
		}
	}
	slices.SortFunc(all.Entries, func(a, b protocol.Audit) int {
		return cmp.Or(a.At.Compare(b.At), cmp.Compare(a.ID, b.ID), cmp.Compare(a.Entry, b.Entry))
	})
	if more {
		all.Next = strconv.FormatInt(until.UnixMilli(), 10)
	}
	return all, nil
}

// changesOf reads pages of a shard until there is a later millisecond than the first one, from
// which the next page can go on.
func (r *Reconciler) changesOf(ctx context.Context, shard int, from, to time.Time) (all protocol.AuditPage, err error) {
	for {
		p, err := r.store.AuditBetween(ctx, shard, from, to, all.Next)
		if err != nil {
			return all, err
		}
		all.Entries, all.Next = append(all.Entries, p.Entries...), p.Next
		if all.Next == "" || len(all.Entries) > 0 && lastAt(all).UnixMilli() > from.UnixMilli() {
			return all, nil
		}
	}
}

func lastAt(p protocol.AuditPage) time.Time { return p.Entries[len(p.Entries)-1].At }

func noPage(page string) error {
	return invalid("page", "%q is none: pass what the page before returned as Next", page)
}
