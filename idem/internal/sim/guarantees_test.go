package sim

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// charge explores a handler that charges a card once, with the operation's token, and says so where it sent nothing.
func charge(t *testing.T, op idem.Operation) *Report {
	r, err := Explore(5000, func(plan Plan) (*World, error) {
		w := New(plan)
		synctest.Test(t, func(*testing.T) {
			w.Play(func(ctx context.Context, e *idem.Engine) (any, error) {
				return idem.Do(ctx, e, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (string, error) {
					err := w.Effect(ctx, "bank", "charge", idem.Token(ctx), false)
					switch {
					case errors.Is(err, ErrRejected):
						err = idem.Permanent(err)
					case errors.Is(err, ErrNotSent):
						err = idem.NotExecuted(err)
					}
					return "charged", err
				})
			})
		})
		return w, nil
	})
	require.NoError(t, err)
	require.Empty(t, r.Found)
	return r
}

// The page says what each caller gets at each fault of a first call.
func TestThePageOfGuarantees(t *testing.T) {
	page, err := os.ReadFile("../../GUARANTEES.md")
	require.NoError(t, err)
	once := charge(t, idem.Operation{Name: "charge"})
	repeatable := charge(t, idem.Operation{Name: "charge", Repeat: idem.Repeatable})
	var table strings.Builder
	for i, a := range once.rows {
		b := repeatable.rows[i]
		require.Equal(t, a.fault, b.fault)
		if strings.Contains(a.fault, "2nd Acquire") {
			break
		}
		fault := a.fault
		for call, words := range map[string]string{
			"1st Acquire": "the claim", "1st bank: charge": "the charge", "1st Finish": "the outcome",
		} {
			fault = strings.Replace(fault, call, words, 1)
		}
		if fault == "" {
			fault = "nothing"
		}
		cells := func(r row) string {
			charged := "no"
			if r.effects != "" {
				charged = "yes"
			}
			return fmt.Sprintf("%s, %s | %s", r.first, r.last, charged)
		}
		fmt.Fprintf(&table, "| %s | %s | %s |\n", fault, cells(a), cells(b))
	}
	require.Contains(t, string(page), table.String(), "put this into the page:\n%s", table.String())
}

// Each check has the name of what the design says.
func TestChecksAreOfTheDesign(t *testing.T) {
	design, err := os.ReadFile("../../DESIGN.md")
	require.NoError(t, err)
	for _, invariant := range slices.Concat(slices.Collect(maps.Keys(checks)), slices.Collect(maps.Keys(crowdChecks))) {
		require.Regexp(t, `(?m)^##+ `+regexp.QuoteMeta(invariant)+"$", string(design))
	}
}
