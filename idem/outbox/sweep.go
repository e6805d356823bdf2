package outbox

import (
	"context"
	"errors"
	"time"
)

// Sweep sends what the stream has missed and what is due for another try: all
// waiting messages older than [Options.Grace], shard by shard, the oldest first.
// Of messages with one destination and ordering key none is sent before an older
// one. It returns when it has seen them all, or when time is up; the relay's next
// sweep begins with the shards that this one has not come to. The error joins those
// of shards that could not be read.
func (r *Relay) Sweep(ctx context.Context) (Report, error) {
	x := r.begin(ctx, false)
	before := time.Now().Add(-r.opts.Grace)
	var failed []error
	for range Shards {
		if x.over(time.Now()) {
			break
		}
		// One that takes the sweep's whole time, or the process, is not the first again.
		n := r.swept.Add(1) % Shards
		if err := x.shard(int(n), before); err != nil {
			failed = append(failed, err)
			x.report.problem("%v", err)
		}
	}
	return x.report, errors.Join(failed...)
}

func (x *run) shard(n int, before time.Time) error {
	held := map[[2]string]bool{} // ordering keys whose turn has not come
	for cursor := ""; ; {
		entries, next, err := x.store.Waiting(x.ctx, n, before, cursor)
		if err != nil {
			return err
		}
		x.sweep(entries, held)
		if cursor = next; cursor == "" || x.over(time.Now()) {
			return nil
		}
	}
}

func (x *run) sweep(entries []*Entry, held map[[2]string]bool) {
	p := &plan{byKey: map[[2]string]*lane{}}
	now := time.Now()
	for _, e := range entries {
		key := [2]string{e.Destination, e.OrderingKey}
		switch {
		case e.Unreadable != nil:
			x.report.Unreadable++
			x.report.problem("%v", e.Unreadable)
		case !e.pending() || held[key]:
			x.report.Skipped++
		case e.OrderingKey == "" && !e.NextTry.After(now):
			p.lanes = append(p.lanes, &lane{entries: []*Entry{e}})
		case e.NextTry.After(now) && (e.OrderingKey == "" || p.byKey[key] == nil):
			x.report.Skipped++
			if e.OrderingKey != "" {
				held[key] = true
			}
		default:
			l := p.lane(e)
			l.entries = append(l.entries, e)
		}
	}
	x.all(p.lanes)
	for e := range x.left {
		if e.OrderingKey != "" {
			held[[2]string{e.Destination, e.OrderingKey}] = true
		}
	}
	clear(x.left)
}
