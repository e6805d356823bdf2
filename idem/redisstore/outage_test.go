package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/valkey-io/valkey-go"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/redisstore"
	"github.com/idem-go/idempotency/idem/testenv/outage"
	"github.com/idem-go/idempotency/idem/testenv/redis"
)

var order = idem.Operation{Name: "order"}

// shop runs an operation over a store.
type shop struct {
	t      *testing.T
	op     idem.Operation
	client valkey.Client
	store  *redisstore.Store
	engine *idem.Engine
	// runs is how often the handler ran.
	runs    atomic.Int64
	handler func(context.Context, string) (string, error)
}

func newShop(t *testing.T, client valkey.Client) *shop {
	s := &shop{t: t, op: order, client: client}
	s.store, _ = open(t, client, redisstore.Durable)
	var err error
	s.engine, err = idem.New(s.store, nil)
	require.NoError(t, err)
	s.handler = func(_ context.Context, id string) (string, error) { return "ordered " + id, nil }
	return s
}

func (s *shop) order(id string) (string, error) {
	run := func(ctx context.Context, id string) (string, error) {
		s.runs.Add(1)
		return s.handler(ctx, id)
	}
	return idem.Do(s.t.Context(), s.engine, s.op.Key("acme", id), id, run)
}

// do calls the server.
func do(t *testing.T, client valkey.Client, command ...string) valkey.ValkeyResult {
	t.Helper()
	return client.Do(t.Context(), client.B().Arbitrary(command...).Build())
}

func did(t *testing.T, client valkey.Client, command ...string) {
	t.Helper()
	require.NoError(t, do(t, client, command...).Error())
}

// acquire writes a claim of an order, without the engine.
func acquire(t *testing.T, s *redisstore.Store, id string) error {
	return s.Acquire(t.Context(), time.Now(), protocol.Claim{Record: protocol.Record{
		ID: order.Key("acme", id).ID(), State: idem.InProgress, Owner: "a", Write: "a", Due: time.Now()}})
}

// calls are how often the server was called since the last time, without set-up.
func calls(t *testing.T, client valkey.Client) (all map[string]string) {
	t.Helper()
	text, err := do(t, client, "INFO", "commandstats").ToString()
	require.NoError(t, err)
	all = map[string]string{}
	for line := range strings.Lines(text) {
		name, rest, ok := strings.Cut(strings.TrimPrefix(line, "cmdstat_"), ":calls=")
		if n, _, _ := strings.Cut(rest, ","); ok && (strings.HasPrefix(name, "eval") || name == "hmget" || name == "hget") {
			all[name] = n
		}
	}
	did(t, client, "CONFIG", "RESETSTAT")
	return all
}

// A first execution is two round trips, a replay one. The script calls HMGET by itself.
func TestRoundTrips(t *testing.T) {
	s := newShop(t, connect(t, redis.Start(t).Address()))
	_, err := s.order("first, which sends the script")
	require.NoError(t, err)
	calls(t, s.client)
	for _, want := range []string{"2", "1"} {
		_, err = s.order("a")
		require.NoError(t, err)
		require.Equal(t, map[string]string{"evalsha": want, "hmget": want}, calls(t, s.client))
	}
}

func TestTheScriptIsSentAgain(t *testing.T) {
	s := newShop(t, connect(t, redis.Start(t).Address()))
	s.handler = func(_ context.Context, id string) (string, error) {
		did(t, s.client, "SCRIPT", "FLUSH")
		return "ordered " + id, nil
	}
	for range 3 {
		did(t, s.client, "SCRIPT", "FLUSH")
		got, err := s.order("a")
		require.NoError(t, err)
		require.Equal(t, "ordered a", got)
	}
	require.EqualValues(t, 1, s.runs.Load())
}

// Without memory no claim is made. What runs still ends, and what is recorded answers.
func TestWithoutMemory(t *testing.T) {
	server := redis.Start(t, "maxmemory=4mb", "maxmemory-policy=noeviction")
	s := newShop(t, connect(t, server.Address()))
	s.op.Watch = idem.WatchNever // its end removes nothing from the index
	large := strings.Repeat("x", 100<<10)
	var ended []string
	s.handler = func(ctx context.Context, id string) (string, error) {
		s.handler = func(context.Context, string) (string, error) { return large, nil }
		for {
			id := fmt.Sprint(len(ended))
			if _, err := s.order(id); err != nil {
				failed := new(protocol.StoreError)
				require.ErrorAs(t, err, &failed)
				require.ErrorContains(t, err, "OOM")
				require.True(t, failed.Down && failed.Throttled)
				require.False(t, failed.Ambiguous)
				require.ErrorIs(t, err, idem.ErrStoreUnavailable)
				return "ordered " + id, nil
			}
			ended = append(ended, id)
		}
	}
	_, err := s.order("runs meanwhile")
	require.NoError(t, err)
	require.NotEmpty(t, ended)
	require.EqualValues(t, len(ended)+1, s.runs.Load(), "the last one did not run")
	for _, id := range append(ended, "runs meanwhile") {
		_, err := s.order(id)
		require.NoError(t, err)
	}
	require.EqualValues(t, len(ended)+1, s.runs.Load())
	did(t, s.client, "CONFIG", "SET", "maxmemory", "0")
	_, err = s.order(fmt.Sprint(len(ended)))
	require.NoError(t, err)
}

// A server that reads its files is down, and nothing runs. Then all is there.
func TestALoadingServer(t *testing.T) {
	t.Parallel()
	server := redis.Start(t, "appendonly=yes", "appendfsync=always", "key-load-delay=20000",
		"loading-process-events-interval-bytes=1024")
	s := newShop(t, connect(t, server.Address()))
	const n = 100
	for id := range n {
		_, err := s.order(fmt.Sprint(id))
		require.NoError(t, err)
	}
	// With these it reads for more than a minute.
	did(t, s.client, "EVAL",
		"for n = 1, 4000 do redis.call('SET', 'filler' .. n, string.rep('x', 1000)) end return 1", "0")
	did(t, s.client, "BGREWRITEAOF") // it answers while it reads a snapshot
	require.Eventually(t, func() bool {
		text, err := do(t, s.client, "INFO", "persistence").ToString()
		return err == nil && strings.Contains(text, "aof_rewrite_in_progress:0") &&
			strings.Contains(text, "aof_last_bgrewrite_status:ok")
	}, time.Minute, 10*time.Millisecond)
	server.Kill()
	started := make(chan error)
	go func() { started <- server.Start() }()
	require.Eventually(t, func() bool {
		err := acquire(t, s.store, "new")
		failed := new(protocol.StoreError)
		return errors.As(err, &failed) && strings.Contains(err.Error(), "LOADING") && failed.Down && !failed.Ambiguous
	}, time.Minute, time.Millisecond)
	did(t, s.client, "CONFIG", "SET", "key-load-delay", "0")
	require.NoError(t, <-started)
	for id := range n {
		_, err := s.order(fmt.Sprint(id))
		require.NoError(t, err)
	}
	require.EqualValues(t, n, s.runs.Load())
}

// A server that has lost its data knows of no claim: the attempt that runs cannot end, and another call runs again.
func TestAFlushedServer(t *testing.T) {
	s := newShop(t, connect(t, redis.Start(t).Address()))
	_, err := s.order("ended")
	require.NoError(t, err)
	s.handler = func(_ context.Context, id string) (string, error) {
		did(t, s.client, "FLUSHALL")
		return "", nil
	}
	_, err = s.order("runs")
	require.Error(t, err, "nothing says that it was this attempt's turn")
	s.handler = func(_ context.Context, id string) (string, error) { return "ordered " + id, nil }
	for _, id := range []string{"ended", "runs"} {
		got, err := s.order(id)
		require.NoError(t, err)
		require.Equal(t, "ordered "+id, got)
	}
	require.EqualValues(t, 4, s.runs.Load())
}

// What a server answers that does nothing is certain, and nothing runs. It works again once the reason has ended.
func TestRefusals(t *testing.T) {
	t.Parallel()
	server := redis.Start(t, "busy-reply-threshold=50", "replica-serve-stale-data=no", "maxmemory-policy=noeviction")
	other := redis.Start(t)
	s, admin := newShop(t, connect(t, server.Address())), connect(t, server.Address())
	set := func(name, value string) func() { return func() { did(t, admin, "CONFIG", "SET", name, value) } }
	host, port, err := net.SplitHostPort(other.Address())
	require.NoError(t, err)
	for _, c := range []struct {
		word                        string
		begin, end                  func()
		works, throttled, ambiguous bool
	}{
		{word: "NOREPLICAS", throttled: true,
			begin: set("min-replicas-to-write", "1"), end: set("min-replicas-to-write", "0")},
		{word: "BUSY", throttled: true, begin: func() {
			go func() {
				_ = admin.Do(context.Background(), admin.B().Eval().Script("while true do end").Numkeys(0).Build())
			}()
			require.Eventually(t, func() bool {
				return do(t, s.client, "PING").Error() != nil
			}, time.Minute, 10*time.Millisecond)
		}, end: func() { did(t, s.client, "SCRIPT", "KILL") }},
		{word: "NOPERM", works: true, begin: func() { did(t, admin, "ACL", "SETUSER", "default", "-evalsha") },
			end: func() { did(t, admin, "ACL", "SETUSER", "default", "+@all") }},
		// The script may have made a part of its change before.
		{word: "can't run this command", ambiguous: true, works: true,
			begin: func() { did(t, admin, "ACL", "SETUSER", "default", "-hset") },
			end:   func() { did(t, admin, "ACL", "SETUSER", "default", "+@all") }},
		{word: "READONLY", begin: func() {
			did(t, admin, "REPLICAOF", host, port)
			require.Eventually(t, func() bool {
				return do(t, admin, "EXISTS", "x").Error() == nil
			}, time.Minute, 10*time.Millisecond)
		}, end: func() {}},
		{word: "MASTERDOWN", begin: func() {
			other.Kill()
			require.Eventually(t, func() bool {
				return do(t, admin, "EXISTS", "x").Error() != nil
			}, time.Minute, 10*time.Millisecond)
		}, end: func() { did(t, admin, "REPLICAOF", "NO", "ONE") }},
	} {
		t.Run(c.word, func(t *testing.T) {
			c.begin()
			runs := s.runs.Load()
			err := acquire(t, s.store, c.word)
			failed := new(protocol.StoreError)
			require.ErrorAs(t, err, &failed)
			require.ErrorContains(t, err, c.word)
			require.Equal(t, c.ambiguous, failed.Ambiguous, "%v", err)
			require.Equal(t, !c.works, failed.Down, "%v", err)
			require.Equal(t, c.throttled, failed.Throttled, "%v", err)
			_, err = s.order(c.word)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Equal(t, runs, s.runs.Load())
			c.end()
			s.engine, err = idem.New(s.store, nil) // with its circuit closed
			require.NoError(t, err)
			_, err = s.order(c.word)
			if c.word != "READONLY" {
				require.NoError(t, err)
				require.Equal(t, runs+1, s.runs.Load())
			}
		})
	}
}

// A server that takes no more connections is busy, and a client without credentials sends nothing: that says nothing
// about the server.
func TestConnectionsThatAreNotMade(t *testing.T) {
	server := redis.Start(t)
	admin := connect(t, server.Address())
	var fault atomic.Pointer[error]
	client, err := valkey.NewClient(valkey.ClientOption{InitAddress: []string{server.Address()}, DisableCache: true,
		DisableRetry: true, PipelineMultiplex: -1, ClientSetInfo: valkey.DisableClientSetInfo, // or it reads no answer
		AuthCredentialsFn: func(valkey.AuthCredentialsContext) (valkey.AuthCredentials, error) {
			if err := fault.Load(); err != nil {
				return valkey.AuthCredentials{}, *err
			}
			return valkey.AuthCredentials{}, nil
		}})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	s := newShop(t, client)
	fails := func(says string) *protocol.StoreError {
		t.Helper()
		did(t, admin, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
		failed := new(protocol.StoreError)
		require.Eventually(t, func() bool { // once the client has seen that its connection has ended
			_, err := s.store.Get(t.Context(), "acme#order#a")
			return errors.As(err, &failed) && strings.Contains(err.Error(), says)
		}, time.Minute, time.Millisecond)
		return failed
	}
	did(t, admin, "CONFIG", "SET", "maxclients", "1")
	failed := fails("max number of clients")
	require.True(t, failed.Down && failed.Throttled)
	err = acquire(t, s.store, "a")
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.Ambiguous, "%v", err)
	did(t, admin, "CONFIG", "SET", "maxclients", "100")

	for _, fn := range []error{errors.New("there is no token"), fmt.Errorf("there is no token: %w",
		&net.OpError{Op: "dial", Err: errors.New("refused")}), fmt.Errorf("there is no token: %w",
		context.DeadlineExceeded)} {
		fault.Store(&fn)
		require.False(t, fails("there is no token").Down, "%v", fn)
	}
	fault.Store(nil)
	_, err = s.order("a")
	require.NoError(t, err)
}

// A change whose reply is lost may have been made. It is sent again, and knows itself.
func TestLostReplies(t *testing.T) {
	server := redis.Start(t)
	p := outage.NewProxy(t, server.Address())
	s := newShop(t, connect(t, p.Addr().String()))
	var cut atomic.Int64 // how many changes, with reads if it is more than one
	for name, fate := range map[string]outage.Fate{"reply lost": outage.LoseReply, "request lost": outage.LoseRequest} {
		p.OnRequest(func(sent string) outage.Fate {
			n := cut.Load()
			if strings.Contains(sent, "EVAL") && n > 0 || strings.Contains(sent, "HMGET") && n > 1 {
				cut.Add(-1)
				return fate
			}
			return outage.Pass
		})
		t.Run(name, func(t *testing.T) {
			runs := s.runs.Load()
			s.handler = func(_ context.Context, id string) (string, error) {
				cut.Store(1)
				return "ordered " + id, nil
			}
			cut.Store(1)
			got, err := s.order(name)
			require.NoError(t, err)
			require.Equal(t, "ordered "+name, got)
			require.Equal(t, runs+1, s.runs.Load())

			cut.Store(1 << 20)
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			defer cancel()
			err = s.store.Acquire(ctx, time.Now(), protocol.Claim{Record: protocol.Record{
				ID: order.Key("acme", name+" in doubt").ID(), State: idem.InProgress, Owner: "a", Write: "a"}})
			cut.Store(0)
			failed := new(protocol.StoreError)
			require.ErrorAs(t, err, &failed)
			require.True(t, failed.Ambiguous && failed.Down && !failed.Throttled, "%v", err)
		})
	}
	p.Close()
	server.Kill()
	_, err := s.order("without a server")
	failed := new(protocol.StoreError)
	require.ErrorAs(t, err, &failed)
	require.ErrorContains(t, err, "refused")
	_, err = s.order("without a server, again")
	require.ErrorAs(t, err, &failed)
	require.False(t, failed.Ambiguous, "nothing was sent: %v", err)
	require.True(t, failed.Down)
}
