package idem

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem/protocol"
)

const maxReference = 256

// SetReference records what the provider calls the effect, such as the id of a payment, before the
// outcome is known. It belongs to the operation, also inside a [Step]: the next attempt has it in
// [Info], the outcome in [Outcome]. Of several the last one counts.
//
// It is one write under the claim, none if the record has it. In atomic mode, with [FailOpen] and after an error that
// matches [ErrStoreUnavailable] it is written with the outcome. [ErrLeaseLost] ends the context too. A [*ConfigError]
// says that ref is empty, no text or longer than 256 bytes, or that the call is outside an operation.
func SetReference(ctx context.Context, ref string) error {
	a := attemptOf(ctx)
	switch problem := referenceProblem(ref); {
	case a == nil:
		return configError("SetReference", "the context is not a handler's: pass the context that the handler was given")
	case ref == "":
		return configError("SetReference",
			"the reference is empty: pass what the provider calls the effect, or leave the call out")
	case problem != "":
		return configError("SetReference", "%s", problem)
	case a.running.Load() == nil || a.journal.isOver():
		return configError("SetReference", "the handler has returned: call it before")
	}
	a.signs.Store(true)
	r := &a.reference
	r.writing.Lock()
	defer r.writing.Unlock()
	if r.say(ref); a.journal.isOver() {
		// While it was being said: whether the outcome carries it is not known.
		return configError("SetReference", "the handler has returned: call it before")
	}
	return r.record(ctx, a, ref)
}

// referenceProblem is what is wrong with a reference, with what to do.
func referenceProblem(ref string) string {
	switch {
	case len(ref) > maxReference:
		return fmt.Sprintf("the reference has %d bytes: use at most %d, or a digest of it", len(ref), maxReference)
	case !utf8.ValidString(ref) || strings.ContainsFunc(ref, unicode.IsControl):
		return "the reference has control characters or is not valid UTF-8: pass its hexadecimal form"
	}
	return ""
}

// reference is what an attempt knows of what the provider calls the effect.
type reference struct {
	writing sync.Mutex // one write at a time: each is over the one before

	mu sync.Mutex
	// latest is what was said last, in this attempt or before; recorded is what the record
	// has, as far as that is known, and write the id of the write that made it so.
	latest, recorded, write string
	// inDoubt: a write over that one got no answer, and may have landed or land late.
	// markInDoubt: so may a begin mark, which is over any.
	inDoubt, markInDoubt bool
}

// inherit takes over the reference of earlier attempts.
func (r *reference) inherit(recorded string) { r.latest, r.recorded = recorded, recorded }

// say notes the reference.
func (r *reference) say(ref string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.latest = ref
}

// record writes what was said under the claim, if there is one.
func (r *reference) record(ctx context.Context, a *attempt, ref string) error {
	if !a.claimed() {
		return nil // it is written with the outcome
	}
	x, e := a.running.Load().x, a.engine()
	for range maxRounds {
		has, seen := r.has(ref)
		if has {
			return nil
		}
		w := protocol.ReferenceWrite{ID: a.rec.ID, Owner: a.rec.Owner, Write: a.writeID(), Ref: ref, Seen: seen}
		ctx, cancel := x.finishing(ctx, 0)
		err := e.store.RecordReference(ctx, e.now(), w)
		cancel()
		var conflict *protocol.ConflictError
		switch {
		case err == nil:
			r.landed(ref, w.Write)
			return nil
		case !errors.As(err, &conflict):
			r.unanswered(false)
			return fmt.Errorf("idem: the reference is not recorded yet, the outcome will carry it: %w", err)
		case !conflict.Existing.HeldBy(a.rec.Owner) || conflict.Existing.RefWrite == seen:
			return a.journal.halt(a.running.Load(), fmt.Errorf("%w: the reference is not recorded", ErrLeaseLost))
		}
		// One that was written before, without an answer, has landed after all.
		r.landed(conflict.Existing.Ref, conflict.Existing.RefWrite)
	}
	return &StoreError{Op: "reference", Err: errors.New("the record's reference changes all the time")}
}

// has reports whether the record has the reference for certain, and the write that the
// next one is over.
func (r *reference) has(ref string) (certain bool, write string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recorded == ref && !r.inDoubt && !r.markInDoubt, r.write
}

// landed notes what the record has. An earlier write whose reply is missing cannot land any
// more: its condition names the write before this one.
func (r *reference) landed(ref, write string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.recorded, r.write, r.inDoubt = ref, write, false
}

// unanswered notes that a write, or a begin mark with a reference, got no answer.
func (r *reference) unanswered(mark bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.inDoubt, r.markInDoubt = true, r.markInDoubt || mark
}

// known returns the latest reference, and what of it the record may not have in the end.
func (r *reference) known() (latest, owed string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.latest != r.recorded || r.inDoubt || r.markInDoubt {
		owed = r.latest
	}
	return r.latest, owed
}
