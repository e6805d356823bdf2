package console_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"net/url"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

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
	var err error
	r.r, err = reconcile.New(sealed{r.Faults}, &reconcile.Options{Now: r.Clock.Now})
	require.NoError(t, err)
	r.h, err = console.New(r.r, &console.Options{Prefix: "/ops", Who: console.ThisMachine, Now: r.Clock.Now, Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
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
		form := r.form(question, "completed")
		form.Set("known", known)
		form.Set("result", result)
		return r.post("/ops/act", form)
	}
	refused := decide("yes", `"re_4711"`)
	require.Equal(t, http.StatusUnprocessableEntity, refused.StatusCode)
	require.Contains(t, refused.text, "this store would write a plain one")
	require.Equal(t, idem.Unknown, r.state(question))
	require.Equal(t, http.StatusSeeOther, decide("no", "").StatusCode)
	require.Equal(t, idem.Completed, r.state(question))
}
