package reconcile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// DefaultListed is how many records a page of a list has at most.
	DefaultListed = 50
	// maxRead is how many index entries are read for a page.
	maxRead = 1000
	// readers read records at once.
	readers = 16
)

// Filter says which records a list has. The zero value lists all that the index holds:
// open questions and watched claims.
type Filter struct {
	// Operations and Tenants by name. Nil means all of them; an empty tenant is that of the
	// records without one.
	Operations, Tenants []string
	// States of the records. Nil means all of them.
	States []idem.State
	// Before is the latest time since which a listed record has been without an outcome, which is
	// its OpenSince, or of a claim its LeaseUntil, or at which it ended. Zero means any time.
	Before time.Time
	// Escalated lists only what was escalated.
	Escalated bool
	// Limit is how many records a page has at most. Zero means [DefaultListed].
	Limit int
}

// Page is one page of a list.
type Page struct {
	// Records of the page, each as it was read. A claim has no OpenSince: it is without an outcome
	// since the end of its lease.
	Records []*idem.Record
	// Unreadable records: see package protocol's ErrRecordUnreadable.
	Unreadable []string
	// Read is how many entries of the index were read for the page.
	Read int
	// Next is the next page; empty after the last one. A page may have fewer records than
	// its limit, or none, and have a next one.
	Next string
}

// List returns a page of the records that have no outcome: open questions and watched
// claims. It reads the index, shard by shard, in each the first due first, and of what it
// names the operations and tenants of the filter. It reads at most 1,000 entries
// of the index for a page. Claims that are not watched are not in the index.
//
// The first page is "".
func (r *Reconciler) List(ctx context.Context, f Filter, page string) (Page, error) {
	if f.Limit < 0 {
		return Page{}, invalid("filter", "Limit is %d: it cannot be negative", f.Limit)
	}
	f.Limit = cmp.Or(f.Limit, DefaultListed)
	shard, at, err := parsePage(page)
	if err != nil {
		return Page{}, err
	}
	var l Page
	for side := 1; shard < protocol.Shards; side = min(2*side, readers) {
		limit, most := min(f.Limit-len(l.Records), maxRead-l.Read), maxRead-l.Read
		if limit <= 0 {
			l.Next = fmt.Sprint(shard, " ", at)
			return l, nil
		}
		due, err := r.due(ctx, f, shard, at, side, limit, most)
		if err != nil {
			return Page{}, err
		}
		for _, p := range due {
			if f.count(p.IDs) > f.Limit-len(l.Records) || len(p.IDs) > maxRead-l.Read {
				break // it is read again, with what is left of the limit
			}
			l.Read += len(p.IDs)
			if err := r.read(ctx, f, p.IDs, &l); err != nil {
				return Page{}, err
			}
			if at = p.Next; at != "" {
				break
			}
			shard++
		}
	}
	return l, nil
}

// due reads a page of the shard at its place and, at the same time, the first pages of the shards after
// it: side pages in all. Most shards are empty most of the time.
func (r *Reconciler) due(
	ctx context.Context, f Filter, shard int, at string, side, limit, most int,
) ([]protocol.DuePage, error) {
	due := make([]protocol.DuePage, min(side, protocol.Shards-shard))
	g, ctx := errgroup.WithContext(ctx)
	for i := range due {
		q := protocol.DueQuery{Shard: shard + i, Until: never, Limit: limit}
		if i == 0 {
			q.Page = at
		}
		g.Go(func() (err error) {
			due[i], err = r.dueOf(ctx, f, q, most)
			return err
		})
	}
	return due, g.Wait()
}

// dueOf reads entries of a shard. If the filter lets few keys through, it reads as many as it may
// at once: names cost no read of a record.
func (r *Reconciler) dueOf(ctx context.Context, f Filter, q protocol.DueQuery, most int) (protocol.DuePage, error) {
	if f.Operations != nil || f.Tenants != nil {
		ahead := q
		ahead.Limit = most
		due, err := r.store.Due(ctx, ahead)
		if err != nil || f.count(due.IDs) <= q.Limit {
			return due, err
		}
	}
	return r.store.Due(ctx, q)
}

func parsePage(page string) (shard int, at string, err error) {
	if page == "" {
		return 0, "", nil
	}
	n, at, ok := strings.Cut(page, " ")
	shard, err = strconv.Atoi(n)
	if !ok || err != nil || shard < 0 || shard >= protocol.Shards {
		return 0, "", noPage(page)
	}
	return shard, at, nil
}

// read adds those of the records that the filter lets through.
func (r *Reconciler) read(ctx context.Context, f Filter, ids []string, l *Page) error {
	ids = slices.DeleteFunc(slices.Clone(ids), func(id string) bool { return !f.names(id) })
	found := make([]*idem.Record, len(ids))
	unreadable := make([]bool, len(ids))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(readers)
	for i, id := range ids {
		g.Go(func() (err error) {
			found[i], err = r.store.Get(ctx, id)
			if errors.Is(err, protocol.ErrRecordUnreadable) {
				unreadable[i], err = true, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return err
	}
	for i, rec := range found {
		switch {
		case unreadable[i]:
			l.Unreadable = append(l.Unreadable, ids[i])
		case rec != nil && !rec.Due.IsZero() && f.Matches(rec):
			l.Records = append(l.Records, rec)
		}
	}
	return nil
}

// names reports whether the filter lets the key with the id through.
func (f *Filter) names(id string) bool {
	tenant, operation := namesOf(id)
	return (f.Operations == nil || slices.Contains(f.Operations, operation)) &&
		(f.Tenants == nil || slices.Contains(f.Tenants, tenant))
}

// count is how many of the keys the filter lets through.
func (f *Filter) count(ids []string) (n int) {
	for _, id := range ids {
		if f.names(id) {
			n++
		}
	}
	return n
}

// Matches reports whether the filter lets the record through. Limit plays no part. A
// [protocol.Scanner] has the records that the index does not hold.
func (f *Filter) Matches(rec *idem.Record) bool {
	return f.names(rec.ID) && (f.States == nil || slices.Contains(f.States, rec.State)) &&
		(f.Before.IsZero() || !at(rec).After(f.Before)) &&
		(!f.Escalated || !rec.EscalatedAt.IsZero())
}

// at is since when the record is without an outcome, or when it ended.
func at(rec *idem.Record) time.Time {
	if rec.Open() || rec.State == idem.InProgress {
		return since(rec)
	}
	return rec.UpdatedAt
}
