package sim

import (
	"context"
	"errors"
	"reflect"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// history is what has happened to records, and what has run under their keys.
type history struct {
	versions  map[string][]version // by id
	runs      []*run
	refused   map[any]bool // units that do not commit, as a caller was answered
	escalated bool         // a question was
	died      bool         // a process has, or was frozen
}

// version is a record from when a write has landed. There is none once it was deleted.
type version struct {
	at time.Time
	*protocol.Record
}

// outcome reports whether a version is one that is kept at a time.
func (v version) outcome(at time.Time) bool {
	return v.Record != nil && (v.State == protocol.Completed || v.State == protocol.Failed) && !v.Expired(at)
}

// at is the version of a record at a time.
func (h *history) at(id string, t time.Time) (at version) {
	for _, v := range h.versions[id] {
		if !v.at.After(t) {
			at = v
		}
	}
	return at
}

// look notes what a call to the store has changed.
func (w *World) look(id string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	rec, err := w.Store.Get(context.Background(), id)
	all := w.history.versions[id]
	if err != nil || len(all) == 0 && rec == nil || len(all) > 0 && reflect.DeepEqual(all[len(all)-1].Record, rec) {
		return
	}
	w.history.versions[id] = append(all, version{time.Now(), rec})
}

// expire deletes a record that has expired, as TTL may at any moment.
func (w *World) expire(ctx context.Context, id string) {
	rec, err := w.Store.Get(context.Background(), id)
	if err == nil && rec != nil && rec.Expired(time.Now()) && w.Draw(ctx, 2) == 1 {
		w.Store.Delete(id)
		w.look(id)
		w.tell("TTL deletes the record")
	}
}

// run is one of a handler.
type run struct {
	id       string
	p        *process
	repeat   idem.Repeat
	from, to time.Time
	stopped  time.Time // when its context has ended, after which another one may run
	class    idem.Class
}

// until is when a run is over, as far as others must respect it.
func (r *run) until() time.Time {
	if !r.stopped.IsZero() && r.stopped.Before(r.to) {
		return r.stopped
	}
	return r.to
}

// recorded reports whether the process knows an outcome of the run.
func (r *run) recorded() bool { return r.class == idem.ClassCompleted || r.class == idem.ClassFailed }

// Run notes that a handler runs under a key. It ends with the class that fn returns.
func (w *World) Run(ctx context.Context, key idem.Key, fn func() idem.Class) error {
	p, err := w.caller(ctx, "handler", key.Operation().Name)
	if err != nil {
		return err
	}
	r := &run{id: key.ID(), p: p, repeat: key.Operation().Repeat, from: time.Now()}
	w.mu.Lock()
	w.history.runs = append(w.history.runs, r)
	w.mu.Unlock()
	stop := context.AfterFunc(ctx, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		r.stopped = time.Now()
	})
	class := idem.ClassUncertain // unless fn returns
	defer func() {
		stop()
		w.mu.Lock()
		r.to = time.Now()
		if !p.isDead() {
			r.class = class
		}
		w.mu.Unlock()
		w.tell("process %d: its run ends", p.n)
	}()
	w.tell("process %d: a handler runs", p.n)
	class = fn()
	switch class {
	case idem.ClassCompleted:
		return nil
	case idem.ClassFailed:
		return idem.Permanent(ErrRejected)
	case idem.ClassNotExecuted:
		return idem.NotExecuted(ErrRejected)
	}
	return ErrNoReply
}

// Refused notes that a caller was answered that a unit of work does not commit, if its error says so.
func (w *World) Refused(ctx context.Context, unit any, err error) {
	p, _ := w.caller(ctx, "caller", "")
	if c, ok := errors.AsType[*idem.CommitError](err); ok && !c.Ambiguous && p != nil && !p.isDead() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.history.refused[unit] = true
	}
}

// escalate is what operators get of a sweep.
func (w *World) escalate(context.Context, reconcile.Escalation) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.history.escalated = true
	return nil
}
