package outbox

import (
	"context"
	"slices"
	"time"
)

// Deliver sends messages that the table's stream has brought, refs in its order.
// It returns the index of the first ref that has to be delivered again, or their
// number if none has: the relay has sent it, settled it, or noted that it is the
// sweep's.
//
// A message without an ordering key that fails is left to the sweep, so it holds
// up nothing. One with an ordering key is tried again in its turn, in this call
// while there is time and then in the next, until it is sent or parked; only what
// has the same destination and key waits for it, and the stream if the call ends
// before. Messages of one record are sent in the order of their numbers, whatever
// the order of refs.
//
// An error says that nothing could be read; everything has to be delivered again.
func (r *Relay) Deliver(ctx context.Context, refs []Ref) (Report, int, error) {
	found, err := r.load(ctx, refs)
	if err != nil {
		return Report{Left: len(refs)}, 0, err
	}
	x := r.begin(ctx, true)
	p := &plan{found: found, added: map[*Entry]bool{}, byKey: map[[2]string]*lane{}}
	now := time.Now()
	for _, ref := range refs {
		e := found[ref]
		switch {
		case e != nil && e.Unreadable != nil:
			x.report.Unreadable++
			x.report.problem("%v", e.Unreadable)
		case e == nil || !e.pending():
			x.report.Skipped++ // sent and gone, or settled
		case e.OrderingKey == "" && e.NextTry.After(now):
			x.report.Skipped++ // the sweep's
		default:
			p.add(e)
		}
	}
	x.all(p.lanes)
	first := slices.IndexFunc(refs, func(ref Ref) bool { return x.left[found[ref]] })
	if first < 0 {
		first = len(refs)
	}
	return x.report, first, nil
}

// load reads the messages, and those that their records have published before
// them under the same ordering key: a batch may end between two.
func (r *Relay) load(ctx context.Context, refs []Ref) (map[Ref]*Entry, error) {
	found, err := r.store.Load(ctx, distinct(refs))
	if err != nil {
		return nil, err
	}
	var before []Ref
	for _, ref := range refs {
		e := found[ref]
		if e == nil || !e.pending() || e.OrderingKey == "" {
			continue
		}
		for n := range e.Number {
			if earlier := (Ref{e.Record, sibling(e.ID, n)}); found[earlier] == nil {
				before = append(before, earlier)
			}
		}
	}
	if len(before) == 0 {
		return found, nil
	}
	more, err := r.store.Load(ctx, distinct(before))
	for ref, e := range more {
		found[ref] = e
	}
	return found, err
}

func distinct(refs []Ref) []Ref {
	seen := make(map[Ref]bool, len(refs))
	var list []Ref
	for _, ref := range refs {
		if !seen[ref] {
			seen[ref] = true
			list = append(list, ref)
		}
	}
	return list
}

// plan puts messages into lanes.
type plan struct {
	found map[Ref]*Entry
	added map[*Entry]bool
	byKey map[[2]string]*lane
	lanes []*lane
}

func (p *plan) add(e *Entry) {
	if p.added[e] {
		return
	}
	p.added[e] = true
	if e.OrderingKey == "" {
		p.lanes = append(p.lanes, &lane{entries: []*Entry{e}})
		return
	}
	for n := range e.Number {
		earlier := p.found[Ref{e.Record, sibling(e.ID, n)}]
		if earlier != nil && earlier.pending() && earlier.Destination == e.Destination && earlier.OrderingKey == e.OrderingKey {
			p.add(earlier)
		}
	}
	l := p.lane(e)
	if len(l.entries) == 0 {
		l.notBefore = e.NextTry
	}
	l.entries = append(l.entries, e)
}

func (p *plan) lane(e *Entry) *lane {
	key := [2]string{e.Destination, e.OrderingKey}
	l := p.byKey[key]
	if l == nil {
		l = &lane{}
		p.byKey[key] = l
		p.lanes = append(p.lanes, l)
	}
	return l
}
