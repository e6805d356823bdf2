package pgstore

import (
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// leastConns is how many connections a pool needs: one for a transaction, and another one for the lease.
const leastConns = 2

// Store is an [idem.Store] on Postgres. It is safe for concurrent use.
type Store struct {
	*casstore.Store
	driver driver
}

// New returns a store over the pool. It makes no call. Mistakes are a [*protocol.ConfigError].
func New(pool *pgxpool.Pool) (*Store, error) {
	if pool == nil {
		return nil, &protocol.ConfigError{What: "pgstore.New", Problem: "the pool is nil: make one with pgxpool.New"}
	}
	if n := pool.Config().MaxConns; n < leastConns {
		return nil, &protocol.ConfigError{What: "pgstore.New", Problem: fmt.Sprintf("the pool has %d connection: a "+
			"transaction holds one, and its lease is renewed by another; set pool_max_conns to %d", n, leastConns)}
	}
	d := driver{pool}
	return &Store{casstore.New(d, nil), d}, nil
}
