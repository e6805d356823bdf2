package main

import (
	"context"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/pgstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/redisstore"
)

// where names what the command looks at, and says what a check of it is about.
func (g Globals) where() (string, string) {
	if u, err := url.Parse(g.Store); g.Store != "" && err == nil {
		return "The store at " + view.Plain(u.Host), ""
	}
	return "Table " + view.Plain(g.Table), ": its keys, its index and its TTL"
}

// connectTo is the open of the real command for a store that is not DynamoDB.
func connectTo(ctx context.Context, g Globals, c *serverClock) (*backend, error) {
	scheme, _, _ := strings.Cut(g.Store, "://")
	switch {
	case len(g.KMSKey)+len(g.KMSContext) > 0:
		return nil, misuse("--kms-key and --kms-context are for tables of DynamoDB: the store keeps results as they are")
	case g.Region != "" || g.Profile != "":
		return nil, misuse("--region and --profile are for tables of DynamoDB: --store has all of the address")
	case scheme == "postgres", scheme == "postgresql":
		return connectToPostgres(ctx, g, c)
	case scheme == "redis", scheme == "rediss":
		return connectToRedis(ctx, g, c)
	}
	return nil, misuse("--store is the URL of a Postgres, which begins with postgres://, or of a Redis or Valkey, "+
		"with redis:// or rediss://, and not with %q", scheme)
}

func connectToPostgres(ctx context.Context, g Globals, c *serverClock) (*backend, error) {
	pool, err := pgxpool.New(ctx, g.Store)
	if err != nil {
		return nil, misuse("--store: %v", err)
	}
	store, err := pgstore.New(pool)
	if err != nil {
		return nil, err
	}
	return &backend{
		store: store, scanner: store, letters: store.Outbox(), check: store.Check,
		caller: func(context.Context) string { return userName() },
		time: func(ctx context.Context) (time.Duration, bool, error) {
			var now time.Time
			err := pool.QueryRow(ctx, "SELECT clock_timestamp()").Scan(&now)
			return timeOf(c, now, err)
		},
		stored: stored(store.Stored),
	}, nil
}

// redisParameters are those of the URL of a Redis: two of the store, and those that the client reads.
var redisParameters = []string{"prefix", "promise", "addr", "client_cache", "client_name", "db", "dial_timeout",
	"master_set", "max_retries", "protocol", "skip_verify", "write_timeout"}

func connectToRedis(ctx context.Context, g Globals, c *serverClock) (*backend, error) {
	o, err := valkey.ParseURL(g.Store)
	if err != nil { // which quotes the password
		return nil, misuse("--store is no URL of a Redis, such as rediss://user:password@host:6379/0?promise=durable: " +
			"in a password write %%2F for /, and so on")
	}
	u, _ := url.Parse(g.Store)
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, misuse("--store: what is behind the question mark cannot be read")
	}
	for name := range query {
		if !slices.Contains(redisParameters, name) {
			return nil, misuse("--store: there is no parameter %q: the parameters are %s", name,
				strings.Join(redisParameters, ", "))
		}
	}
	// Where nothing executes it does not matter what the server promises.
	promised := query.Get("promise")
	promise := map[string]redisstore.Promise{"": redisstore.Lossy, "lossy": redisstore.Lossy,
		"durable": redisstore.Durable}[promised]
	if promise == 0 {
		return nil, misuse("--store: promise is durable or lossy, and not %q", promised)
	}
	o.DisableCache, o.DisableRetry = true, true
	client, err := valkey.NewClient(o)
	if err != nil {
		return nil, &protocol.StoreError{Op: "connect", Down: true, Err: err}
	}
	store, err := redisstore.New(client, redisstore.Options{Promise: promise, Prefix: query.Get("prefix")})
	if err != nil {
		return nil, err
	}
	return &backend{
		store: store, scanner: store, letters: noLetters{},
		check: func(ctx context.Context) error {
			if promised == "" {
				return misuse("a check needs the promise that the service declares: end --store with ?promise=durable or " +
					"?promise=lossy")
			}
			return store.Check(ctx)
		},
		caller: func(context.Context) string { return userName() },
		time: func(ctx context.Context) (time.Duration, bool, error) {
			parts, err := client.Do(ctx, client.B().Time().Build()).AsIntSlice()
			if err != nil || len(parts) != 2 {
				return 0, false, err
			}
			return timeOf(c, time.Unix(parts[0], parts[1]*1000), nil)
		},
		stored: stored(store.Stored),
	}, nil
}

// timeOf has the clock take a server's time.
func timeOf(c *serverClock, now time.Time, err error) (time.Duration, bool, error) {
	if err != nil {
		return 0, false, err
	}
	c.is(now)
	ahead, known := c.fast()
	return ahead, known, nil
}

// stored are the attributes of a record that cannot be read.
func stored(read func(context.Context, string) ([]byte, error)) func(context.Context, string) (
	map[string]types.AttributeValue, error) {
	return func(ctx context.Context, id string) (map[string]types.AttributeValue, error) {
		data, err := read(ctx, id)
		if data == nil {
			return nil, err
		}
		return map[string]types.AttributeValue{"data": &types.AttributeValueMemberS{Value: string(data)}}, err
	}
}

// noLetters are the dead letters of a store without an outbox.
type noLetters struct{}

func (noLetters) Dead(context.Context, int, string) ([]*outbox.Entry, string, error) {
	return nil, "", misuse("Redis keeps no messages: only DynamoDB and Postgres have an outbox")
}
