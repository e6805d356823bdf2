package ledger

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// Margin is for how long before and after the compared time entries and records are read, to match what is on
	// different days of the two sides.
	Margin = time.Hour
	// earlier is for how long before that entries are read too, and not compared: what a retry does again is on
	// another day than what it repeats.
	earlier = 24 * time.Hour
	// DefaultRate is how many read units of the table a second a comparison takes.
	DefaultRate = 500
)

// Store is what a [Ledger] reads: a *dynamostore.Scanner, or a *memstore.Store in tests.
type Store interface {
	protocol.Scanner
	// Result reads the result of a record that was scanned with it.
	Result(ctx context.Context, rec *protocol.Record) ([]byte, error)
}

// Entry is an effect that the provider has, and what a record expects of it.
type Entry struct {
	// Token is the key under which the request was sent. Leave it empty for an entry that was made without one, such
	// as by hand in the provider's console: it then belongs to the record that has its Ref.
	Token string `json:"token,omitempty"`
	// Ref is what the provider calls the effect. An entry has a token or a reference, or both.
	Ref string `json:"ref,omitempty"`
	// Value is what must be the same on both sides, such as the amount in minor units with its currency. It is
	// compared where both sides have one.
	Value string `json:"value,omitempty"`
	// State is the effect's state, in the provider's word. It is compared where both sides have one.
	State string `json:"state,omitempty"`
	// At is when the provider took the request, by its clock, and not when it books or pays. Of a record it is
	// when the outcome was recorded.
	At time.Time `json:"at,omitzero"`
}

// Record is a record that is completed or failed. It is only to be read.
type Record struct {
	*protocol.Record
	store Store
}

// Result reads the recorded result, encoded as the record's Codec says: JSON, or the form of a response, which
// idemhttp.Decode reads. If it was recorded without its result, or cannot be read, the error matches
// [protocol.ErrRecordUnreadable].
func (r Record) Result(ctx context.Context) ([]byte, error) {
	if r.Omitted || r.State != protocol.Completed {
		return nil, fmt.Errorf("%w: it has no result", protocol.ErrRecordUnreadable)
	}
	return r.store.Result(ctx, r.Record)
}

// Expected is what a record says of the effect.
type Expected struct {
	// Effect says that the provider has one. It has none after a refusal that was recorded as a response.
	Effect bool
	// Value and State are compared with those of the entry, unless they are empty.
	Value, State string
}

// Options of a ledger. Operation and Entries are required.
type Options struct {
	// Operation is the name of the operation whose records are compared, those of all tenants.
	Operation string
	// Entries returns what the provider did for the operation from a time up to another, in any order. Entries
	// outside of that time are ignored. Leave out what has no effect, such as a declined charge. An error
	// ends the comparison before anything is reported; to ask again for a page is the iterator's matter.
	Entries func(ctx context.Context, from, to time.Time) iter.Seq2[Entry, error]
	// Distinct says that each entry is an effect of its own, also one that is equal to another one, as a row of a file
	// is. Else equal entries that have a Ref are one, since pages of a provider may overlap.
	Distinct bool
	// Expect says what a record that is completed or failed expects. If its error matches
	// [protocol.ErrRecordUnreadable], as that of [Record.Result] does, a record that is completed expects an effect, and
	// the entry is an [Unread] one; any other error ends the comparison. Where results are not recorded, return
	// Effect alone for a record that has Omitted. Nil means that a completed record expects an effect, a failed one
	// none, and that no values are compared.
	Expect func(ctx context.Context, rec Record) (Expected, error)
	// Token is the key under which the record's handler sends its request, empty for none. Of a record that
	// cannot be read only the ID is known. Nil means that of idem.Token outside steps. For the token of a
	// step return protocol.Token(rec.ID, "charge").
	Token func(rec *protocol.Record) string
	// Rate is how many read units of the table a second are taken. Zero means [DefaultRate].
	Rate float64
	// Now is the clock, for tests. Nil means time.Now.
	Now func() time.Time
}

// Ledger compares entries of a provider with records. It is safe for concurrent use if the functions of
// its options are.
type Ledger struct {
	store  Store
	opts   Options
	memory int
}

// New returns a ledger of the store's records. It makes no call. Mistakes are a [*protocol.ConfigError].
func New(store Store, o Options) (*Ledger, error) {
	switch {
	case store == nil:
		return nil, invalid("store", "is nil: make one with dynamostore.NewScanner")
	case o.Operation == "":
		return nil, invalid("Options.Operation", "is empty: name the operation whose records are compared")
	case o.Entries == nil:
		return nil, invalid("Options.Entries", "is nil: give the function that reads the provider's entries")
	case !(o.Rate >= 0): // also what is no number
		return nil, invalid("Options.Rate", "is %v: it cannot be negative", o.Rate)
	}
	o.Rate = cmp.Or(o.Rate, DefaultRate)
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Token == nil {
		o.Token = func(rec *protocol.Record) string { return protocol.Token(rec.ID, "") }
	}
	if o.Expect == nil {
		o.Expect = func(_ context.Context, rec Record) (Expected, error) {
			return Expected{Effect: rec.State == protocol.Completed}, nil
		}
	}
	return &Ledger{store: store, opts: o, memory: memory}, nil
}

func invalid(what, format string, args ...any) error {
	return &protocol.ConfigError{What: "ledger: " + what, Problem: fmt.Sprintf(format, args...)}
}

// expected is what the record expects, and why its result cannot be read, if so. One that failed has none.
func (l *Ledger) expected(ctx context.Context, rec *protocol.Record) (x Expected, unread string, err error) {
	x, err = l.opts.Expect(ctx, Record{rec, l.store})
	switch {
	case errors.Is(err, protocol.ErrRecordUnreadable):
		if x = (Expected{Effect: rec.State == protocol.Completed}); x.Effect {
			unread = err.Error()
			unread = unread[:min(len(unread), maxText)]
		}
		return x, unread, nil
	case err != nil:
		return x, "", fmt.Errorf("ledger: Options.Expect of record %q: %w", rec.ID, err)
	}
	return x, "", nil
}
