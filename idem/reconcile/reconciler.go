package reconcile

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"sync"
	"time"

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
	o = cmp.Or(o, &Options{})
	switch {
	case store == nil:
		return nil, invalid("reconcile: store", "is nil: make one with dynamostore.NewAdminStore")
	case o.Margin < 0:
		return nil, invalid("reconcile: Options.Margin", "is %v: it cannot be negative", o.Margin)
	case o.AuditRetention < 0:
		return nil, invalid("reconcile: Options.AuditRetention", "is %v: it cannot be negative", o.AuditRetention)
	}
	r := &Reconciler{store: store, opts: *o, counted: map[string]bool{}}
	r.opts.Margin = cmp.Or(o.Margin, idem.DefaultMargin)
	r.opts.AuditRetention = cmp.Or(o.AuditRetention, DefaultAuditRetention)
	if r.opts.Now == nil {
		r.opts.Now = time.Now
	}
	return r, nil
}

// invalid is a mistake of the caller.
func invalid(what, format string, args ...any) error {
	return &idem.ConfigError{What: what, Problem: fmt.Sprintf(format, args...)}
}

// now is the time as records keep it.
func (r *Reconciler) now() time.Time { return r.opts.Now().UTC().Truncate(time.Millisecond) }

// Lapsed reports whether the lease of a claim and the reconciler's margin are over, by its clock.
func (r *Reconciler) Lapsed(rec *idem.Record) bool { return rec.Lapsed(r.now(), r.opts.Margin) }

// expiry is when an outcome of the record ends that is written now: not before that of an outcome
// which it replaces, and which an operator has decided to keep for longer.
func (r *Reconciler) expiry(rec *idem.Record) time.Time {
	at := protocol.RoundUp(r.now().Add(max(rec.Retention, leastRetention)), time.Second)
	if rec.ExpiresAt.After(at) {
		return rec.ExpiresAt
	}
	return at
}

// newID is an owner or a write id.
func newID() string { return rand.Text() }
