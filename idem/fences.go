package idem

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// fenceMemory is how long a process goes by a record that it has seen and that stays for
	// fenceFor at least.
	fenceMemory = time.Minute
	// mostFences is how many of them it remembers.
	mostFences = 256
)

// fences are the withdrawals of claims that saw no record. A record keeps out every such claim
// but the one that it is. So many duplicates at once whose claims got no answer are taken back
// with one write, for which the others wait.
type fences struct {
	mu   sync.Mutex
	byID map[string]*fence
}

// fence is a withdrawal on its way, or what it has found.
type fence struct {
	done chan struct{} // closed once the rest is written
	// stays is set if there is a record, for fenceFor at least.
	stays bool
	owner string // the record's
	at    instant
}

// of returns the record's fence. If there is none but the given one it makes one, which the
// caller must write.
func (fs *fences) of(id string, but *fence) (f *fence, made bool) {
	fs.mu.Lock()
	defer fs.mu.Unlock()
	if f = fs.byID[id]; f != nil && f != but {
		return f, false
	}
	if fs.byID == nil || len(fs.byID) >= mostFences {
		fs.byID = map[string]*fence{}
	}
	f = &fence{done: make(chan struct{})}
	fs.byID[strings.Clone(id)] = f
	return f, true
}

// keepsOut waits for the fence and reports whether the claim has not landed and cannot land. It
// returns false if the context ends before that is known.
func (f *fence) keepsOut(ctx context.Context, claim *Record) bool {
	select {
	case <-f.done:
		return f.stays && f.owner != claim.Owner && rightNow().since(f.at) < fenceMemory
	case <-ctx.Done():
		return false
	}
}

// takeBack is [Engine.writeWithdrawal] for a claim under which nothing has run. It writes
// nothing if what another withdrawal of this process has found keeps the claim out.
func (e *Engine) takeBack(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	claim := &w.Claim.Record
	if w.Claim.Seen != "" || claim.Retention < fenceFor {
		return e.writeWithdrawal(ctx, now, w)
	}
	f, mine := e.fences.of(claim.ID, nil)
	for !mine {
		if f.keepsOut(ctx, claim) {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		f, mine = e.fences.of(claim.ID, f)
	}
	defer close(f.done)
	err := e.writeWithdrawal(ctx, now, w)
	conflict, refused := errors.AsType[*protocol.ConflictError](err)
	switch {
	case err == nil:
		f.stays, f.owner = true, w.Owner
	case refused && conflict.Existing != nil:
		goes := conflict.Existing.ExpiresAt
		f.stays, f.owner = goes.IsZero() || goes.After(e.now().Add(fenceFor)), conflict.Existing.Owner
	}
	f.at = rightNow()
	return err
}
