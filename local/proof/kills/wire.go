package kills

import (
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/kills/signed"
)

// Moments are those at which a [Wire] kills.
var Moments = []string{"before the call", "before the reply", "with the reply"}

// Wire stands between the instances of a function and DynamoDB, and kills them
// there: before a call, after it and before its reply, or while the reply is on
// its way. It is safe for concurrent use.
type Wire struct {
	// URL is the endpoint for the function, whose client's transport is a
	// [signed.Transport].
	URL string

	mu    sync.Mutex
	pool  *runtime.Pool
	odds  int
	dice  *rand.Rand
	kills map[string]int // by the moment
	pids  map[int]bool
	rest  sync.WaitGroup
}

// NewWire opens a wire to the endpoint, which ends with the test.
func NewWire(tb testing.TB, endpoint string) *Wire {
	tb.Helper()
	target, err := url.Parse(endpoint)
	require.NoError(tb, err)
	w := &Wire{dice: rand.New(rand.NewPCG(1, 2)), kills: map[string]int{}, pids: map[int]bool{}}
	proxy := &httputil.ReverseProxy{
		// The host is part of the signature: it stays what the function signed.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		pid, _ := strconv.Atoi(r.Header.Get(signed.Header))
		moment, pool := w.throw(pid)
		switch moment {
		case "before the call":
			_ = pool.Kill(pid) // it may be gone already
			panic(http.ErrAbortHandler)
		case "before the reply":
			// What the process has sent arrives, whatever becomes of the process.
			proxy.ServeHTTP(httptest.NewRecorder(), r.WithContext(context.WithoutCancel(r.Context())))
			_ = pool.Kill(pid)
			panic(http.ErrAbortHandler)
		case "with the reply":
			proxy.ServeHTTP(rw, r)
			w.rest.Go(func() { _ = pool.Kill(pid) })
		default:
			proxy.ServeHTTP(rw, r)
		}
	}))
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		w.rest.Wait()
	})
	w.URL = server.URL
	return w
}

// Kill names the pool whose instances are killed, before odds are set.
func (w *Wire) Kill(pool *runtime.Pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.pool = pool
}

// SetOdds makes one call in so many kill its instance; 0 none.
func (w *Wire) SetOdds(odds int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.odds = odds
}

// Kills waits for those that are under way and counts all by their moment. Call it
// when the odds are 0 or nothing runs any more.
func (w *Wire) Kills() map[string]int {
	w.rest.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.kills)
}

// Killed reports whether an instance with the process id was killed.
func (w *Wire) Killed(pid int) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.pids[pid]
}

// throw decides about one call.
func (w *Wire) throw(pid int) (moment string, pool *runtime.Pool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.odds == 0 || w.dice.IntN(w.odds) != 0 {
		return "", nil
	}
	moment = Moments[w.dice.IntN(len(Moments))]
	w.kills[moment]++
	w.pids[pid] = true
	return moment, w.pool
}
