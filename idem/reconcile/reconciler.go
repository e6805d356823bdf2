package reconcile

import (
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"time"
	"unicode"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Store is what a [Reconciler] needs: a *dynamostore.AdminStore, or a *memstore.Store in
// tests.
type Store interface {
	protocol.Store
	protocol.AdminStore
}

const (
	// DefaultAuditRetention is how long changes are kept: a year, within which the books
	// of most businesses are closed.
	DefaultAuditRetention = 366 * 24 * time.Hour

	// leastRetention keeps an outcome from expiring before its write has landed.
	leastRetention = 10 * time.Second
	// maxRounds bounds how often one change is decided anew because somebody else wrote.
	maxRounds = 8
)

// Options of a reconciler. The zero value, and nil, mean the defaults.
type Options struct {
	// Margin is added to a lease before it counts as lapsed, because clocks differ. Use that
	// of the engines. Zero means [idem.DefaultMargin].
	Margin time.Duration
	// AuditRetention is how long changes are kept. Zero means [DefaultAuditRetention].
	AuditRetention time.Duration
	// Now is the clock, for tests. Nil means time.Now. The circuit of a provider
	// ([Operation.Provider]) has a clock of its own, time.Now.
	Now func() time.Time
}

// Reconciler settles records from outside their attempts. It is safe for concurrent use.
type Reconciler struct {
	store Store
	opts  Options

	mu      sync.Mutex
	counted map[string]bool // operations that had open questions
	known   [protocol.Shards]map[string]known
}

// New returns a reconciler over the store. It makes no call. Mistakes are an
// [*idem.ConfigError].
func New(store Store, o *Options) (*Reconciler, error) {
	if o == nil {
		o = &Options{}
	}
	invalid := func(what, format string, args ...any) (*Reconciler, error) {
		return nil, &idem.ConfigError{What: "reconcile: " + what, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case store == nil:
		return invalid("store", "is nil: make one with dynamostore.NewAdminStore")
	case o.Margin < 0:
		return invalid("Options.Margin", "is %v: it cannot be negative", o.Margin)
	case o.AuditRetention < 0:
		return invalid("Options.AuditRetention", "is %v: it cannot be negative", o.AuditRetention)
	}
	r := &Reconciler{store: store, opts: *o, counted: map[string]bool{}}
	if r.opts.Margin == 0 {
		r.opts.Margin = idem.DefaultMargin
	}
	if r.opts.AuditRetention == 0 {
		r.opts.AuditRetention = DefaultAuditRetention
	}
	if r.opts.Now == nil {
		r.opts.Now = time.Now
	}
	return r, nil
}

// now is the time as records keep it.
func (r *Reconciler) now() time.Time { return r.opts.Now().UTC().Truncate(time.Millisecond) }

// Lapsed reports whether the lease of a claim and the reconciler's margin are over, by its clock.
func (r *Reconciler) Lapsed(rec *idem.Record) bool { return rec.Lapsed(r.now(), r.opts.Margin) }

// expiry is when an outcome of the record ends that is written now: not before that of an outcome
// which it replaces, and which somebody has decided to keep for longer.
func (r *Reconciler) expiry(rec *idem.Record) time.Time {
	at := wholeSecond(r.now().Add(max(rec.Retention, leastRetention)))
	if rec.ExpiresAt.After(at) {
		return rec.ExpiresAt
	}
	return at
}

// wholeSecond is the time as records keep an expiry, not earlier.
func wholeSecond(at time.Time) time.Time {
	if s := at.Truncate(time.Second); s.Before(at) {
		return s.Add(time.Second)
	}
	return at
}

// newID is an owner or a write id.
func newID() string { return rand.Text() }

// Change says who changes a record, and why. It is kept in the record's history.
type Change struct {
	// Actor is a person or a program, such as an address or a function's name. Required.
	Actor string
	// Reason is for those who read it in a year. Required.
	Reason string
	// Tool is what the change was made with, such as "console". Optional.
	Tool string
	// IfWrite is the Write of the record that the decision is about. If somebody has written
	// the record since, nothing is changed and the error is [ErrChanged]. Empty means the record as
	// it is now. It is not kept.
	IfWrite string
	// DecisionID names the decision for who makes it, such as a digest of a form: at most 64 letters,
	// digits, - and _. [Change.Made] finds its change in the history. Optional.
	DecisionID string
}

// Made reports whether the entry is of the decision with this DecisionID.
func (c Change) Made(a protocol.Audit) bool {
	return c.DecisionID != "" && strings.HasPrefix(a.Entry, c.DecisionID+".")
}

// entry names a change, each try of a decision another one.
func (c Change) entry() string {
	if c.DecisionID == "" {
		return newID()
	}
	return c.DecisionID + "." + newID()
}

func (c Change) check() error {
	switch {
	case strings.TrimSpace(c.Actor) == "":
		return &idem.ConfigError{What: "change", Problem: "Change.Actor is empty: say who makes it, such as a person's address or a function's name"}
	case strings.TrimSpace(c.Reason) == "":
		return &idem.ConfigError{What: "change", Problem: "Change.Reason is empty: say why, for those who read it in a year"}
	case len(c.Actor) > maxText || len(c.Reason) > maxText || len(c.Tool) > maxText:
		return &idem.ConfigError{What: "change", Problem: fmt.Sprintf("Change has a text of more than %d bytes: shorten it, and link to the rest", maxText)}
	case len(c.DecisionID) > maxID || strings.ContainsFunc(c.DecisionID, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
	}):
		return &idem.ConfigError{What: "change", Problem: fmt.Sprintf(
			"Change.DecisionID is %q: use at most %d letters, digits, - and _, such as a digest", c.DecisionID, maxID)}
	}
	return nil
}

// about reports whether the record is the one that the change is about.
func (c Change) about(rec *idem.Record) error {
	if c.IfWrite != "" && rec.Write != c.IfWrite {
		return fmt.Errorf("%w: it is %s, attempt %d", ErrChanged, rec.State, rec.Attempt)
	}
	return nil
}

const maxText = 4 << 10

// maxID bounds Change.DecisionID in bytes: a SHA-256 in hexadecimal fits.
const maxID = 64

// audit is the entry of a change of the record.
func (r *Reconciler) audit(rec *idem.Record, by Change, change protocol.Change, to idem.State, ref string) *protocol.Audit {
	now := r.now()
	return &protocol.Audit{
		ID: rec.ID, Entry: by.entry(), At: now, Who: by.Actor, Why: by.Reason, Tool: by.Tool,
		Change: change, From: rec.State, To: to, Attempt: rec.Attempt, Ref: ref,
		ExpiresAt: now.Add(r.opts.AuditRetention),
	}
}
