package console_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
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

// sealed is a store of records whose results are encrypted, without the key.
type sealed struct{ reconcile.Store }

func (s sealed) Get(ctx context.Context, id string) (*idem.Record, error) {
	rec, err := s.Store.Get(ctx, id)
	if rec != nil {
		rec.Sealed = true
	}
	return rec, err
}

func (s sealed) Result(context.Context, *idem.Record) ([]byte, error) {
	return nil, fmt.Errorf("%w: its results are encrypted", idem.ErrRecordUnreadable)
}

func (s sealed) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	if w.Sealed && len(w.Ending.Result) > 0 {
		return &idem.ConfigError{What: "dynamostore: Settle", Problem: "this store would write a plain one"}
	}
	return s.Store.Settle(ctx, now, w)
}

// A console without the key shows everything else, and records no plain result.
func TestARecordWhoseResultsAreEncrypted(t *testing.T) {
	r, question := newQuestion(t, console.Options{})
	done := r.end(refund.Key("acme", "r-2"), "secret result", nil)
	r.over(sealed{r.Faults})
	for _, show := range []string{"", "&show=result"} {
		page := r.get("/ops/record?id=" + url.QueryEscape(done) + show)
		require.Equal(t, http.StatusOK, page.StatusCode)
		require.NotContains(t, page.text, "secret")
		require.Contains(t, page.text, "15 bytes")
		if show != "" {
			require.Contains(t, page.text, "encrypted")
		}
	}
	decide := func(known, result string) answer {
		form := r.form(question, "completed", url.Values{"known": {known}, "result": {result}})
		return r.post("/ops/act", form)
	}
	refused := decide("yes", `"re_4711"`)
	require.Equal(t, http.StatusUnprocessableEntity, refused.StatusCode)
	require.Contains(t, refused.text, "this store would write a plain one")
	require.Equal(t, idem.Unknown, r.state(question))
	require.Equal(t, http.StatusSeeOther, decide("no", "").StatusCode)
	require.Equal(t, idem.Completed, r.state(question))
}
