package redisstore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Promise is what a server promises of what it has confirmed.
type Promise uint8

const (
	// Durable servers keep it, whichever node ends: MemoryDB, ElastiCache with synchronous durability, and a server of
	// your own with appendonly yes, appendfsync always and no replica that takes over.
	Durable Promise = iota + 1
	// Lossy servers may lose it, such as when a replica takes over: any other one. Operations that are not repeatable,
	// accepted work, steps of [idem.AtMostOnce] and steps with a compensation are refused.
	Lossy
)

// Options of a store.
type Options struct {
	// Promise is what the server promises. Required: it cannot be found out.
	Promise Promise
	// Prefix begins each key: two with different ones share nothing. Empty means "idem".
	Prefix string
}

// Store is an [idem.Store] on Redis. It is safe for concurrent use.
type Store struct {
	*casstore.Store
	driver  driver
	promise Promise
}

// New returns a store over the client. It makes no call. Mistakes are a [*protocol.ConfigError].
func New(client valkey.Client, o Options) (*Store, error) {
	if o.Prefix == "" {
		o.Prefix = "idem"
	}
	problem := ""
	switch {
	case client == nil:
		problem = "the client is nil: make one with valkey.NewClient"
	case o.Promise == 0:
		problem = "Promise is missing: set redisstore.Durable if the server keeps all that it has confirmed also when a " +
			"node ends, as MemoryDB does, and redisstore.Lossy if it may lose some, as a replica that takes over does"
	case o.Promise > Lossy:
		problem = fmt.Sprintf("Promise is %d: use redisstore.Durable or redisstore.Lossy", o.Promise)
	case strings.ContainsAny(o.Prefix, "{}*?[]\\"):
		problem = fmt.Sprintf("Prefix is %q: use none of the characters {}*?[]\\", o.Prefix)
	}
	if problem != "" {
		return nil, &protocol.ConfigError{What: "redisstore.New", Problem: problem}
	}
	d := driver{client, keys(o.Prefix)}
	return &Store{casstore.New(d, errNoUnits), d, o.Promise}, nil
}

var (
	errNoUnits = fmt.Errorf("%w: %w", &protocol.ConfigError{What: "redisstore",
		Problem: "Redis commits no writes of another database with the outcome: a unit of work and atomic mode are " +
			"refused. Use idem.Reserved, and give business writes the operation's token or make them in steps, or keep the " +
			"records in the database of the business's rows, as with pgstore and dynamostore"}, errors.ErrUnsupported)
	errLossy = &protocol.ConfigError{What: "redisstore",
		Problem: "redisstore.Lossy says that the server may lose what it has confirmed, also a claim, and then a second " +
			"call runs: declare the operation idem.Repeatable if that does no harm, make its step one of idem.AtLeastOnce " +
			"without a compensation, or use a server that is redisstore.Durable"}
)

// Traits say what the store refuses; see [idem.Store].
func (s *Store) Traits() protocol.Traits {
	t := s.Store.Traits()
	if s.promise == Lossy {
		t.Lossy = errLossy
	}
	return t
}
