package readme

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/reconcile"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

// sectionOf is the section of a page, without its title.
func sectionOf(t *testing.T, page, title string) string {
	_, section, found := strings.Cut(read(t, page), "\n## "+title+"\n")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\n## ")
	return section
}

// The table of the smallest production is what a crash leaves without a sweeper, and what a sweep
// would have found.
func TestTheSmallestProduction(t *testing.T) {
	repeatable := idem.Operation{Name: "op", Repeat: idem.Repeatable}
	atomic := idem.Operation{Name: "op", Repeat: idem.Repeatable, Mode: idem.Atomic}
	plays := map[string]struct {
		op   idem.Operation
		step bool
	}{
		"`Repeatable`":                          {repeatable, false},
		"`Repeatable`, `Mode: idem.Atomic`":     {atomic, false},
		"`Repeatable`, in an at-most-once step": {repeatable, true},
		"`NotRepeatable`":                       {idem.Operation{Name: "op"}, false},
	}
	rows := endRow.FindAllStringSubmatch(sectionOf(t, "lambda/README.md", "The smallest production"), -1)[1:]
	require.Len(t, rows, len(plays)+1)
	for _, row := range rows {
		play, ok := plays[row[1]]
		if !ok {
			require.Equal(t, "accepted for later", row[1])
			continue
		}
		t.Run(row[1], func(t *testing.T) {
			h := idemtest.New(t, nil)
			key, ran := play.op.Key("acme", "1"), 0
			effect := func(context.Context) (int, error) {
				if ran++; ran == 1 {
					h.Crash()
				}
				return 1, nil
			}
			call := func() error {
				return idemtest.Deliver(h, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
					return idem.Do(ctx, e, key, 1, func(ctx context.Context, _ int) (int, error) {
						if play.step {
							return idem.Step(ctx, "charge", effect, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
						}
						return effect(ctx)
					})
				})[0].Err
			}
			require.ErrorIs(t, call(), idemtest.ErrCrashed)
			h.Restart()
			h.Clock.Advance(time.Hour)

			left, found := "", listed(t, h)
			switch rec := h.Record(key); {
			case rec == nil:
				left = "there is no record"
			case rec.ExpiresAt.IsZero() && len(found) == 1:
				left = "the record stays; only a sweep reports it"
			case !rec.ExpiresAt.IsZero() && len(found) == 0:
				left = "the record expires; no log line reports it"
			}
			require.Equal(t, row[4], left)

			next, err := "", call()
			switch {
			case err == nil && ran == 2:
				next = "runs the handler"
			case ran == 1:
				require.ErrorIs(t, call(), idem.ErrOutcomeUnknown) // by now, where the handler ran up to the step
				next = "gets `ErrOutcomeUnknown`"
			}
			require.Equal(t, row[3], next)
			require.Equal(t, ran == 1, strings.Contains(row[2], "a sweeper"))
		})
	}
}

// listed are the records that a sweep would find.
func listed(t *testing.T, h *idemtest.Harness) []*idem.Record {
	r, err := reconcile.New(h.Store, &reconcile.Options{Now: h.Clock.Now})
	require.NoError(t, err)
	page, err := r.List(t.Context(), reconcile.Filter{}, "")
	require.NoError(t, err)
	return page.Records
}

// Accepted work that no worker begins is ended by a sweep alone.
func TestOnlyASweepEndsWhatNoWorkerBegins(t *testing.T) {
	h := idemtest.New(t, nil)
	op := idem.Operation{Name: "export", Repeat: idem.Repeatable}
	accept := func() idem.Outcome {
		got, err := later.Accept[int](t.Context(), h.Engine, op.Key("acme", "1"), 1,
			func(context.Context, string) error { return nil })
		require.True(t, err == nil || got.Outcome.RecordState == idem.Failed, "%v", err)
		return got.Outcome
	}
	require.NotEmpty(t, accept().StatusID)
	h.Clock.Advance(24 * time.Hour)
	require.Equal(t, idem.Pending, accept().RecordState)
	r, err := reconcile.New(h.Store, &reconcile.Options{Now: h.Clock.Now})
	require.NoError(t, err)
	sweeper, err := reconcile.NewSweeper(r, nil)
	require.NoError(t, err)
	report, err := sweeper.Sweep(t.Context())
	require.NoError(t, err)
	require.Equal(t, 1, report.NotStarted)
	require.Equal(t, idem.Failed, h.Record(op.Key("acme", "1")).State)
}

// What a reader looks up is what clients and logs show.
func TestWhatIsSeenExists(t *testing.T) {
	// local/proof/modules has the last one, and the one before it is of the AWS SDK.
	known := []string{"missing go.sum entry for module", "not found: ComputePayloadHash"}
	for _, code := range []idemhttp.Code{idemhttp.CodeKeyReused, idemhttp.CodeUndeclared, idemhttp.CodeTenantMissing,
		idemhttp.CodeOutcomeUnknown, idemhttp.CodeInProgress} {
		known = append(known, string(code))
	}
	for _, reason := range []idemlambda.Reason{idemlambda.ReasonKeyReused, idemlambda.ReasonUnknown,
		idemlambda.ReasonInFlight} {
		known = append(known, string(reason))
	}
	var seen []string
	for line := range strings.Lines(sectionOf(t, "lambda/README.md", "When you see this")) {
		if !strings.HasPrefix(line, "| `") {
			continue
		}
		cell := strings.Split(line, "|")[1]
		for _, m := range code.FindAllString(cell, -1) {
			seen = append(seen, strings.Trim(m, "`"))
		}
	}
	require.Len(t, seen, len(known))
	for _, name := range seen {
		require.True(t, slices.Contains(known, name), name)
	}
}
