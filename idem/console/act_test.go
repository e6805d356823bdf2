package console_test

import (
	"context"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// The page that tells it is followed, and exchanged after another one's change.
func TestADecisionIsConfirmedToItsOperatorOnly(t *testing.T) {
	who := "alice"
	r, id := newQuestion(t, console.Options{Who: func(*http.Request) (string, error) { return who, nil }})
	done := r.post("/ops/act", r.form(id, "completed")).Header.Get("Location")
	require.Contains(t, r.get(done).text,
		"<strong>Recorded.</strong> Resolved: from unknown to completed, attempt 1. By alice,")
	r.Clock.Advance(time.Second)
	who = "bob"
	require.Contains(t, r.get(r.post("/ops/act", r.form(id, "released")).Header.Get("Location")).text,
		"to released, attempt 1. By bob,")
	who = "alice"
	require.Contains(t, r.get(done).text,
		"<strong>Recorded.</strong> Resolved: from unknown to completed, attempt 1. By alice,")
	require.NotContains(t, r.get("/ops/record?done=1&"+url.Values{"id": {id}}.Encode()).text, "<strong>Recorded.</strong>")
}

func TestTwoClicksAtOnceChangeOnce(t *testing.T) {
	r, id := newQuestion(t, console.Options{})
	form := r.form(id, "released")
	var mu sync.Mutex
	codes := map[int]int{}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			a := r.post("/ops/act", form)
			mu.Lock()
			defer mu.Unlock()
			codes[a.StatusCode]++
		})
	}
	all.Wait()
	require.Equal(t, map[int]int{http.StatusSeeOther: 1, http.StatusConflict: 7}, codes)
	require.Equal(t, 1, r.changes(id))
}

// A browser that is closed, or clicks again, ends its request.
func TestAChangeGoesOnWithoutItsBrowser(t *testing.T) {
	r, id := newQuestion(t, console.Options{})
	req := request(http.MethodPost, "/ops/act", r.form(id, "released"))
	ctx, cancel := context.WithCancel(req.Context())
	r.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
		cancel()
		require.NoError(t, ctx.Err())
		return c.Do(ctx)
	})
	r.do(req.WithContext(ctx))
	require.Equal(t, idem.Released, r.state(id))
}
