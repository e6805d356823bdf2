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

// Store is what a [Reconciler] needs: a *dynamostore.Questions, or a *memstore.Store in
// tests.
type Store interface {
	protocol.Store
	protocol.Questions
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
	bad := func(what, format string, args ...any) (*Reconciler, error) {
		return nil, &idem.ConfigError{What: "reconcile: " + what, Problem: fmt.Sprintf(format, args...)}
	}
	switch {
	case store == nil:
		return bad("store", "is nil: make one with dynamostore.NewQuestions")
	case o.Margin < 0:
		return bad("Options.Margin", "is %v: it cannot be negative", o.Margin)
	case o.AuditRetention < 0:
		return bad("Options.AuditRetention", "is %v: it cannot be negative", o.AuditRetention)
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

// By says who changes a record, and why. It is kept with the change.
type By struct {
	// Who is a person or a program, such as an address or a function's name. Required.
	Who string
	// Why is for those who read it in a year. Required.
	Why string
	// Tool is what the change was made with, such as "console". Optional.
	Tool string
	// Seen is the Write of the record that the decision is about. If somebody has written
	// the record since, nothing is changed and the error is [ErrChanged]. Empty means the record as
	// it is now. It is not kept.
	Seen string
	// ID names the decision for who makes it, such as a digest of a form: at most 64 letters,
	// digits, - and _. [By.Made] finds its change in the history. Optional.
	ID string
}

// Made reports whether the change is the decision with this ID.
func (b By) Made(a protocol.Audit) bool { return b.ID != "" && strings.HasPrefix(a.Entry, b.ID+".") }

// entry names a change, each try of a decision another one.
func (b By) entry() string {
	if b.ID == "" {
		return newID()
	}
	return b.ID + "." + newID()
}

func (b By) check() error {
	switch {
	case strings.TrimSpace(b.Who) == "":
		return &idem.ConfigError{What: "change", Problem: "By.Who is empty: say who makes it, such as a person's address or a function's name"}
	case strings.TrimSpace(b.Why) == "":
		return &idem.ConfigError{What: "change", Problem: "By.Why is empty: say why, for those who read it in a year"}
	case len(b.Who) > maxText || len(b.Why) > maxText || len(b.Tool) > maxText:
		return &idem.ConfigError{What: "change", Problem: fmt.Sprintf("By has a text of more than %d bytes: shorten it, and link to the rest", maxText)}
	case len(b.ID) > maxID || strings.ContainsFunc(b.ID, func(r rune) bool {
		return r > unicode.MaxASCII || !unicode.IsLetter(r) && !unicode.IsDigit(r) && r != '-' && r != '_'
	}):
		return &idem.ConfigError{What: "change", Problem: fmt.Sprintf("By.ID is %q: use at most %d letters, digits, - and _, such as a digest", b.ID, maxID)}
	}
	return nil
}

// about reports whether the record is the one that the change is about.
func (b By) about(rec *idem.Record) error {
	if b.Seen != "" && rec.Write != b.Seen {
		return fmt.Errorf("%w: it is %s, attempt %d", ErrChanged, rec.State, rec.Attempt)
	}
	return nil
}

const maxText = 4 << 10

// maxID bounds By.ID in bytes: a SHA-256 in hexadecimal fits.
const maxID = 64

// audit is the entry of a change of the record.
func (r *Reconciler) audit(rec *idem.Record, by By, change protocol.Change, to idem.State, ref string) *protocol.Audit {
	now := r.now()
	return &protocol.Audit{
		ID: rec.ID, Entry: by.entry(), At: now, Who: by.Who, Why: by.Why, Tool: by.Tool,
		Change: change, From: rec.State, To: to, Attempt: rec.Attempt, Ref: ref,
		ExpiresAt: now.Add(r.opts.AuditRetention),
	}
}
