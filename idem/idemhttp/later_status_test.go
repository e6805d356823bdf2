package idemhttp

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Anyone but the tenant learns nothing, not even that the work exists.
func TestAStatusIsToldToItsTenantAlone(t *testing.T) {
	b := newLaterService(t, memory())
	at := b.accepted()
	id := b.at
	guess := []byte(id)
	guess[50] ^= 1
	var same *heard
	for name, ask := range map[string][2]string{
		"another tenant": {id, "green"},
		"a guessed id":   {string(guess), "blue"},
		"a malformed id": {"june", "blue"},
		"a short id":     {id[:40], "blue"},
		"escapes":        {"%2e%2e%2f", "blue"},
		"nothing":        {strings.Repeat("A", 64), "blue"},
		"the key":        {testKey, "blue"},
	} {
		for _, method := range []string{"GET", "DELETE"} {
			got := b.send(method, b.server.URL+"/statements/"+ask[0], ask[1], "")
			b.problem(got, 404, CodeStatusNotFound)
			if same == nil {
				same = &got
			}
			require.Equal(t, *same, got, name)
		}
		head := b.send("HEAD", b.server.URL+"/statements/"+ask[0], ask[1], "")
		require.Equal(t, 404, head.status)
		require.Empty(t, head.body)
	}
	b.problem(b.send("GET", at, strings.Repeat("x", 2000), ""), 403, CodeTenantMissing)
	require.Equal(t, idem.Pending, b.state(b.send("GET", at, "blue", "")).State)
}

// Its tenant cancels what nobody has begun, and a worker that comes then does not run it.
func TestPendingWorkIsCancelled(t *testing.T) {
	b := newLaterService(t, memory())
	at := b.accepted()
	b.problem(b.send("DELETE", at, "green", ""), 404, CodeStatusNotFound)
	for range 2 {
		gone := b.send("DELETE", at, "blue", "")
		require.Equal(t, 204, gone.status)
		require.Empty(t, gone.body)
	}
	b.problem(b.send("GET", at, "blue", ""), 409, CodeCancelled)
	b.problem(b.post(june), 409, CodeCancelled)
	var failed *idem.RecordedError
	require.ErrorAs(t, b.work(nil), &failed)
	require.Equal(t, protocol.CodeCancelled, failed.Code)
	require.Zero(t, b.runs)
	rec, err := b.store.Get(t.Context(), b.handed[0])
	require.NoError(t, err)
	require.Empty(t, rec.Steps, "the input goes too")
	require.Equal(t, b.now().Add(idem.DefaultRetention), rec.ExpiresAt)
}

// A worker's claim lands between the look and the cancellation.
func TestAWorkerIsFasterThanItsCancellation(t *testing.T) {
	r := &race{Store: memory()}
	b := newLaterService(t, r)
	at := b.accepted()
	r.first = func() { require.NoError(t, b.work(nil)) }
	b.problem(b.send("DELETE", at, "blue", ""), 409, CodeBegun)
	require.Equal(t, 200, b.send("GET", at, "blue", "").status)
	require.Equal(t, 1, b.runs)
}

type race struct {
	idem.Store
	first func()
}

func (r *race) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	if f := r.first; f != nil {
		r.first = nil
		f()
	}
	return r.Store.Settle(ctx, now, s)
}

// The store is down: nothing is told of any id.
func TestAStatusOfAStoreThatIsDown(t *testing.T) {
	b := newLaterService(t, down{memory()})
	for _, method := range []string{"GET", "DELETE"} {
		b.problem(b.send(method, b.server.URL+"/statements/"+strings.Repeat("A", 64), "blue", ""), 503, CodeStoreUnavailable)
	}
}

type down struct{ idem.Store }

func (down) Get(context.Context, string) (*idem.Record, error) {
	return nil, &idem.StoreError{Op: "Get", Down: true, Err: errors.New("connection refused")}
}

// Clients are asked to come at longer and longer intervals.
func TestRetryAfterGrowsWithTheWait(t *testing.T) {
	b := newLaterService(t, memory())
	at := b.accepted()
	for _, c := range []struct {
		waited time.Duration
		after  string
	}{{0, "1"}, {10 * time.Second, "3"}, {time.Minute, "15"}, {30 * time.Minute, "30"}} {
		b.passed.Store(int64(c.waited))
		require.Equal(t, c.after, b.send("GET", at, "blue", "").header.Get("Retry-After"))
	}
}

// A gateway that has matched a template knows whose path it is.
func TestPathsOfAStatus(t *testing.T) {
	b := newLaterService(t, memory())
	for _, c := range []struct {
		method, route, path string
		id                  string // none if it is not the contract's
	}{
		{"GET", "/statements/{id}", "/statements/7", "7"},
		{"get", "", "/statements/7", "7"},
		{"HEAD", "/{proxy+}", "/statements/7", "7"},
		{"DELETE", "/{rest...}", "/statements/7", "7"},
		{"GET", "/", "/statements/7", "7"},
		{method: "GET", route: "/statements/latest", path: "/statements/latest"},
		{method: "GET", route: "/{x}/{y}", path: "/statements/7"},
		{method: "GET", path: "/statements"},
		{method: "GET", path: "/statements/"},
		{method: "GET", path: "/statements/7/pages"},
		{method: "OPTIONS", route: "/statements/{id}", path: "/statements/7"},
		{method: "PUT", path: "/statements/7"},
	} {
		l, id := b.contract.later.(*laters).find(&Request{Method: c.method, Route: c.route, Path: c.path})
		require.Equal(t, c.id != "", l != nil, "%+v", c)
		if l != nil {
			require.Equal(t, c.id, id)
		}
	}
	// A handler without accepted work is asked as ever, and nothing is looked up.
	require.Nil(t, newContract(t, memory()).later)
}
