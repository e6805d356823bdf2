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

// writeWithdrawal takes back a claim, under the time now. Repeating it is safe.
//
// A claim that has seen no record lands as soon as there is none. What stands in its way
// now, and may be gone before it comes, is replaced by the withdrawal, as the claim would.
func (e *Engine) writeWithdrawal(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	first := w
	var err error
	for range maxRounds {
		err = e.store.Withdraw(ctx, now, w)
		var conflict *protocol.ConflictError
		if first.Claim.Seen != "" || !errors.As(err, &conflict) {
			return err
		}
		seen := conflict.Existing
		if seen == nil {
			var gErr error
			if seen, gErr = e.store.Get(protocol.Insist(ctx), first.Claim.Record.ID); gErr != nil {
				return gErr
			}
		}
		w = first
		if seen == nil {
			continue
		}
		do, until := e.claims(&first.Claim.Record, seen), e.now().Add(fenceFor)
		if !free(do) || seen.ExpiresAt.IsZero() || seen.ExpiresAt.After(until) {
			return err
		}
		w.Claim = e.claimOver(first.Claim.Record, seen, do, LeaveAbandonedUnnoticed)
		w.Uncertain = w.Claim.Record.Uncertain
	}
	return err
}

// claims says what a call with the claim would do about the record.
func (e *Engine) claims(claim, rec *Record) protocol.Action {
	ev := protocol.Event{Kind: protocol.EventClaim, Fingerprint: claim.Fingerprint, Repeat: claim.Repeat, Margin: e.opts.Margin}
	return protocol.Next(rec, ev, e.now()).Do
}

// free reports whether a call would claim the record.
func free(do protocol.Action) bool {
	return do == protocol.DoCreate || do == protocol.DoReplace || do == protocol.DoTakeOver
}
