package memstore

import (
	"context"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Due lists what is due; see [protocol.AdminStore].
func (s *Store) Due(ctx context.Context, q protocol.DueQuery) (protocol.DuePage, error) {
	if err := alive(ctx, "Due"); err != nil {
		return protocol.DuePage{}, err
	}
	var due []*protocol.Record
	for _, rec := range s.Records() {
		if !rec.Due.IsZero() && !rec.Due.After(q.Until) && shardOf(rec) == q.Shard {
			due = append(due, rec)
		}
	}
	slices.SortStableFunc(due, func(a, b *protocol.Record) int { return a.Due.Compare(b.Due) })
	// A page begins behind the last record of the one before, which may be deleted.
	if q.Page != "" {
		at, id, ok := strings.Cut(q.Page, " ")
		ns, err := strconv.ParseInt(at, 10, 64)
		if !ok || err != nil {
			return protocol.DuePage{}, &protocol.ConfigError{What: "page",
				Problem: fmt.Sprintf("memstore: %q is none: pass what the page before returned as Next", q.Page)}
		}
		due = slices.DeleteFunc(due, func(r *protocol.Record) bool {
			n := r.Due.UnixNano()
			return n < ns || n == ns && r.ID <= id
		})
	}
	var p protocol.DuePage
	for i, rec := range due {
		if q.Limit > 0 && i == q.Limit {
			last := due[i-1]
			p.Next = fmt.Sprint(last.Due.UnixNano(), " ", last.ID)
			break
		}
		p.IDs, p.Due = append(p.IDs, rec.ID), append(p.Due, rec.Due)
	}
	return p, nil
}

// Postpone writes when a record is due next; see [protocol.AdminStore].
func (s *Store) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	return s.write(ctx, "Postpone", p.ID, now, p.Apply, with{audit: p.Audit})
}

// Prolong keeps a record that has ended for longer; see [protocol.AdminStore].
func (s *Store) Prolong(ctx context.Context, now time.Time, p protocol.Prolongation) error {
	return s.write(ctx, "Prolong", p.ID, now, p.Apply, with{audit: p.Audit})
}

// Forget removes a record; see [protocol.AdminStore].
func (s *Store) Forget(ctx context.Context, now time.Time, e protocol.Erasure) error {
	return s.write(ctx, "Forget", e.ID, now, e.Apply, with{audit: e.Audit})
}

// ReadPaused implements pause.Store.
func (s *Store) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	if err := alive(ctx, "ReadPaused"); err != nil {
		return protocol.Paused{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return protocol.Paused{Pauses: slices.Clone(s.paused.Pauses), Write: s.paused.Write}, nil
}

// WritePaused implements reconcile.PauseStore.
func (s *Store) WritePaused(ctx context.Context, w protocol.PausedWrite) error {
	if err := alive(ctx, "WritePaused"); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	next, err := w.Apply(s.paused)
	if err != nil {
		return err
	}
	if s.paused.Write != w.Write {
		s.paused = protocol.Paused{Pauses: slices.Clone(next.Pauses), Write: next.Write}
		s.audits = append(s.audits, cloned(*w.Audit))
	}
	return nil
}

// AuditOf lists the changes of a record from outside its attempts, all on one page; see
// [protocol.AdminStore].
func (s *Store) AuditOf(ctx context.Context, id, page string) (protocol.AuditPage, error) {
	return s.audit(ctx, func(a *protocol.Audit) bool { return a.ID == id })
}

// AuditBetween lists the changes of all records in a time, all on one page; see
// [protocol.AdminStore].
func (s *Store) AuditBetween(ctx context.Context, n int, from, to time.Time, page string) (protocol.AuditPage, error) {
	return s.audit(ctx, func(a *protocol.Audit) bool {
		return int(hash(a.ID)%protocol.AuditShards) == n && !a.At.Before(from) && a.At.Before(to)
	})
}

// cloned is an entry of its own.
func cloned(a protocol.Audit) protocol.Audit {
	a.Steps = maps.Clone(a.Steps)
	return a
}

func (s *Store) audit(ctx context.Context, wanted func(*protocol.Audit) bool) (protocol.AuditPage, error) {
	if err := alive(ctx, "Audit"); err != nil {
		return protocol.AuditPage{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var p protocol.AuditPage
	for _, a := range s.audits {
		if wanted(&a) {
			p.Entries = append(p.Entries, cloned(a))
		}
	}
	slices.SortStableFunc(p.Entries, func(a, b protocol.Audit) int { return a.At.Compare(b.At) })
	return p, nil
}

// Scan lists all records; see [protocol.Scanner]. It costs nothing.
func (s *Store) Scan(ctx context.Context, q protocol.ScanQuery) (p protocol.ScanPage, err error) {
	if err := alive(ctx, "Scan"); err != nil {
		return p, err
	}
	if q.Segments < 1 || q.Segment < 0 || q.Segment >= q.Segments {
		return p, fmt.Errorf("memstore: there is no segment %d of %d", q.Segment, q.Segments)
	}
	for _, rec := range s.Records() {
		if int(hash(rec.ID)%uint32(q.Segments)) != q.Segment || rec.ID <= q.Page {
			continue
		}
		if q.Limit > 0 && p.Looked == q.Limit {
			p.Next = p.Records[p.Looked-1].ID
			break
		}
		if !q.Results {
			rec = rec.WithoutResults()
		}
		p.Records, p.Looked = append(p.Records, rec), p.Looked+1
	}
	return p, nil
}

// shardOf is the record's shard of the index: a claim that no sweep has postponed is among the claims.
func shardOf(rec *protocol.Record) int {
	if rec.State == protocol.InProgress && rec.Sweep == "" {
		return protocol.QuestionShards + int(hash(rec.ID)%(protocol.Shards-protocol.QuestionShards))
	}
	return int(hash(rec.ID) % protocol.QuestionShards)
}

func hash(id string) uint32 {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id))
	return h.Sum32()
}
