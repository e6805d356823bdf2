package protocol

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"time"
)

// ErrPaused: the operation is paused for the tenant, or for all; a [*PausedError] says more. Nothing
// was executed.
var ErrPaused = errors.New("idem: the operation is paused; nothing was executed, try again later")

// PausedError is the answer to a call that would execute while its operation is paused. It matches
// [ErrPaused].
type PausedError struct {
	// RetryAfter is when it is of use to try again: when the pause ends, if that is known and soon,
	// else after as long as it has lasted already, five minutes at least. It is a second at least. If the call has two
	// pauses, it is the later one of both.
	RetryAfter time.Duration
}

func (e *PausedError) Error() string { return ErrPaused.Error() }

// Is makes the error match [ErrPaused].
func (e *PausedError) Is(target error) bool { return target == ErrPaused }

// Pauser says whether calls may execute: package pause has one. It is safe for concurrent use.
type Pauser interface {
	// MayExecute returns nil if the tenant's calls of the operation may execute now, a [*PausedError] if they
	// are paused, and a [*StoreError] if that cannot be found out.
	MayExecute(ctx context.Context, now time.Time, tenant, operation string) error
}

// Pause keeps calls of an operation from executing.
type Pause struct {
	// Operation is its name. Tenant is whose calls are paused; empty for all of them.
	Operation string `json:"operation"`
	Tenant    string `json:"tenant,omitempty"`
	// Since is when it was written, Until when it ends or has ended; zero for a pause that an operator ends.
	Since time.Time `json:"since"`
	Until time.Time `json:"until,omitzero"`
	// Who paused it, and why.
	Who string `json:"who"`
	Why string `json:"why"`
}

// leastWait is how long what a pause has turned away waits at least.
const leastWait = 5 * time.Minute

// Covers reports whether the pause is about the tenant's calls of the operation.
func (p *Pause) Covers(tenant, operation string) bool {
	return p.Operation == operation && (p.Tenant == "" || p.Tenant == tenant)
}

// Ended reports whether the pause is over.
func (p *Pause) Ended(now time.Time) bool { return !p.Until.IsZero() && !now.Before(p.Until) }

// RetryAfter is the one of a [PausedError] at the time, of a pause that has not ended.
func (p *Pause) RetryAfter(now time.Time) time.Duration {
	d := max(now.Sub(p.Since), leastWait)
	if !p.Until.IsZero() {
		d = min(d, p.Until.Sub(now))
	}
	return max(d, time.Second)
}

// Recovers is when what a pause has turned away has come again, once the pause has ended, with the
// time that a worker needs to begin it: accepted work is not taken for forgotten before.
func (p *Pause) Recovers() time.Time {
	return p.Until.Add(max(p.Until.Sub(p.Since), leastWait)).Add(15 * time.Minute)
}

// ID names the paused calls in the history of changes: <tenant>#<operation>#pause, encoded as in a
// record's id. No record has it.
func (p *Pause) ID() string {
	part := func(s string) string { return strings.ReplaceAll(url.QueryEscape(s), "+", "%20") }
	return part(p.Tenant) + "#" + part(p.Operation) + pauseSuffix
}

// Digest names the pause as it is, of what it is and who wrote why, for a change that is about this one alone. A pause
// that replaces it has another one.
func (p *Pause) Digest() string {
	text, _ := json.Marshal(p) // texts and times
	sum := sha256.Sum256(text)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// pauseSuffix is shorter than the digest of any key.
const pauseSuffix = "#pause"

// IsPauseID reports whether the id is that of a [Pause], and of no record.
func IsPauseID(id string) bool { return strings.HasSuffix(id, pauseSuffix) }

// Paused is what a store keeps of pauses: one list for all operations.
type Paused struct {
	Pauses []Pause
	// Write is the id of the write that made it; empty if there never was one.
	Write string
}

// PausedWrite replaces a [Paused], on the condition that its Write is Seen.
type PausedWrite struct {
	Paused
	Seen string
	// Audit is written with it.
	Audit *Audit
}

// Apply returns what the write makes of what is there. It is a [*ConflictError] without a record if
// that is not what the write has seen.
func (w *PausedWrite) Apply(old Paused) (Paused, error) {
	switch old.Write {
	case w.Write:
		return old, nil
	case w.Seen:
		return w.Paused, nil
	}
	return old, &ConflictError{}
}
