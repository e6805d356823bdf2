package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Defaults and limits of a store.
const (
	// DefaultAttemptTimeout is what one try gets: a hundred times the usual answer
	// of a table in the same region, and still two tries a second or so within the
	// engine's budget.
	DefaultAttemptTimeout = time.Second
	// DefaultBudget is what a call gets whose context has no deadline.
	DefaultBudget = 5 * time.Second
	// DefaultMaxResult covers everything that Lambda can return.
	DefaultMaxResult = 8 << 20
)

const (
	// resultLimit is what one BatchGetItem can return.
	resultLimit = 16 << 20
	// retries is how many retries the store has in hand for claims and reads, those of all
	// callers together: enough for what a healthy table needs, and a sixth of what 64 callers at
	// once would send. A retry that succeeds is put back, and five calls that need none put one
	// back. So a table that is slow, throttles or is down gets this many requests more than there
	// are calls, and a fifth of what it answers. Where none is left, a claim or a read fails after
	// its first try, and nothing has run. Writes of outcomes, steps, leases and withdrawals need
	// none.
	retries = 10
)

// Client is what the store uses of a *dynamodb.Client. The store retries by
// itself and switches the client's retries off, so that it knows of every try.
type Client interface {
	PutItem(context.Context, *dynamodb.PutItemInput, ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error)
	UpdateItem(context.Context, *dynamodb.UpdateItemInput, ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error)
	GetItem(context.Context, *dynamodb.GetItemInput, ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error)
	BatchGetItem(context.Context, *dynamodb.BatchGetItemInput,
		...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error)
	TransactWriteItems(context.Context, *dynamodb.TransactWriteItemsInput,
		...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error)
}

// Options of a store. The zero value, and nil, mean the defaults.
type Options struct {
	// AttemptTimeout is the longest that one try may take; a try also gets no more
	// than half of the time left, so that there is always a second one. A part of a
	// result gets five times as long, a transaction a second more for each MiB, within
	// all of the time left. Zero means [DefaultAttemptTimeout].
	AttemptTimeout time.Duration

	// Budget is the time for a whole call, all its tries together, if its context
	// has no deadline. Zero means [DefaultBudget].
	Budget time.Duration

	// MaxResult is the largest encoded result in bytes, before compression; a
	// larger one gives an [*protocol.TooLargeError]. Zero means [DefaultMaxResult]; at
	// most 16 MiB. It does not limit reading.
	MaxResult int

	// Sealer, if not nil, encrypts results, steps' results and accepted inputs, after compression, so that who
	// can read the table, its stream and its backups cannot read them. See the package's doc
	// for what is not encrypted. Give all stores on a table the same: what cannot be decrypted
	// is unreadable ([protocol.ErrRecordUnreadable]), and so is what is encrypted to a store without
	// it. What was recorded before it is read as it is.
	Sealer Sealer

	// SealedOnly makes results unreadable that are not encrypted. Set it once those from before
	// Sealer have expired: then write access to the table is not enough to forge a result.
	SealedOnly bool

	// WithoutTransactions is for a table that has none: a global table with strong consistency
	// across regions. Every store on such a table must have it; infra sets
	// IDEM_WITHOUT_TRANSACTIONS ([schema.EnvWithoutTransactions]) for its functions. The audit
	// entry of a change from outside is then written before the change, as unconfirmed, and once
	// more when the change is made. A [Tx], its messages and atomic mode are refused before the
	// handler runs or where it asks for its Tx. On another table it costs calls.
	WithoutTransactions bool

	// TableKeys names the key attributes of tables that handlers only [Tx.Put] into,
	// by the table's name: {"accounts": {"id"}}. With them two Puts on one item are
	// found before DynamoDB is called; without them it refuses the transaction. The
	// keys of tables for which a unit of work has another action are known from that.
	TableKeys map[string][]string
}

// Store is an [idem.Store] on one DynamoDB table. Make it with [New], once, at
// start-up; it is safe for concurrent use.
type Store struct {
	client    Client
	table     *string
	retry     retrier
	maxResult int
	codec     codec
	keys      map[string][]string
	sealer    Sealer
	// sealedOnly: a plain result is unreadable.
	sealedOnly bool
	// noTransactions: each write is a request of its own.
	noTransactions bool
	optFns         []func(*dynamodb.Options)
}

var _ protocol.Store = (*Store)(nil)

// New returns a store on the table. It makes no call: run [Check] at deployment, or when a
// long-lived process starts, to find a missing table. Mistakes are an [*idem.ConfigError].
func New(client Client, table string, o *Options) (*Store, error) {
	o = cmp.Or(o, &Options{})
	invalid := func(what, format string, args ...any) (*Store, error) {
		return nil, &protocol.ConfigError{What: "dynamostore: " + what, Problem: fmt.Sprintf(format, args...)}
	}
	if err := checkArguments(client, table); err != nil {
		return nil, err
	}
	switch {
	case tooShort(o.AttemptTimeout):
		return invalid("Options.AttemptTimeout", needsUnit, o.AttemptTimeout)
	case tooShort(o.Budget):
		return invalid("Options.Budget", needsUnit, o.Budget)
	case o.MaxResult < 0 || o.MaxResult > resultLimit:
		return invalid("Options.MaxResult", "is %d: use 1 to %d, or zero for %d", o.MaxResult, resultLimit, DefaultMaxResult)
	}
	if o.Sealer != nil {
		if n := o.Sealer.Overhead(); n < 0 || n > MaxSealOverhead {
			return invalid("Options.Sealer", "has an Overhead of %d: use 0 to %d", n, MaxSealOverhead)
		}
		if most := resultLimit - MaxSealOverhead; o.MaxResult > most {
			return invalid("Options.MaxResult", "is %d: use at most %d with a Sealer", o.MaxResult, most)
		}
	} else if o.SealedOnly {
		return invalid("Options.SealedOnly", "has no meaning without a Sealer: set Options.Sealer")
	}
	for name, keys := range o.TableKeys {
		if n := len(keys); name == "" || n < 1 || n > 2 || slices.Contains(keys, "") {
			return invalid("Options.TableKeys", "has %q for table %q: name the partition key, and the sort key if there is one",
				keys, name)
		}
	}
	return &Store{
		client: client, table: &table, maxResult: cmp.Or(o.MaxResult, DefaultMaxResult),
		keys:   maps.Clone(o.TableKeys),
		sealer: o.Sealer, sealedOnly: o.SealedOnly,
		noTransactions: o.WithoutTransactions,
		retry: retrier{
			attempt: cmp.Or(o.AttemptTimeout, DefaultAttemptTimeout), budget: cmp.Or(o.Budget, DefaultBudget), table: table,
			quota: ratelimit.NewTokenRateLimit(retries * retryCost),
		},
		optFns: []func(*dynamodb.Options){func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} }, observe},
	}, nil
}

// tooShort finds a time without its unit, or below zero. Zero is for the default.
func tooShort(d time.Duration) bool { return d != 0 && d < time.Millisecond }

const needsUnit = "is %v: use at least a millisecond, with its unit, such as time.Second, or zero for the default"

// Traits implements [protocol.Store].
func (s *Store) Traits() protocol.Traits {
	t := protocol.Traits{NoUnits: s.refusesUnits()}
	if s.sealer != nil {
		t.StepExtra = s.sealer.Overhead() + sealedFields
	}
	return t
}

// refusesUnits is why no unit can commit; nil if units can.
func (s *Store) refusesUnits() error {
	if !s.noTransactions {
		return nil
	}
	return fmt.Errorf("%w: %w", &protocol.ConfigError{What: what(*s.table),
		Problem: "has no transactions, as dynamostore.Options.WithoutTransactions says: " +
			"a Tx, its messages and atomic mode cannot commit. Use idem.Reserved, and give business writes the " +
			"operation's token or make them in steps, or keep the records in a table of one region"}, errors.ErrUnsupported)
}
