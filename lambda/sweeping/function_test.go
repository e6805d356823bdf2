package sweeping

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// An invocation that always fails raises the alarm on sweepers that stop. So it fails if
// nothing could be done, also beside a record that nobody can read, or if the open questions
// cannot be counted, and at no other time.
func TestInvocationFailsIfNothingCouldBeDone(t *testing.T) {
	refund := idem.Operation{Name: "refund"}
	for name, tc := range map[string]struct {
		due, unreadable, later int
		deny                   idemtest.Method
		fails, says            string
	}{
		"nothing due":                       {},
		"due later":                         {later: 1},
		"due later, and reads are denied":   {later: 1, deny: idemtest.Get, fails: "the open questions could not be counted: ", says: "Get"},
		"the index is denied":               {deny: idemtest.Due, says: "Due"},
		"due":                               {due: 3},
		"reads are denied":                  {due: 3, deny: idemtest.Get, says: "Get"},
		"writes are denied":                 {due: 3, deny: idemtest.Settle, says: "Settle"},
		"unreadable alone":                  {unreadable: 1},
		"unreadable":                        {due: 3, unreadable: 1},
		"unreadable, and writes are denied": {due: 3, unreadable: 1, deny: idemtest.Settle, says: "Settle"},
	} {
		t.Run(name, func(t *testing.T) {
			h := idemtest.New(t, nil)
			now := h.Clock.Now()
			for n := range tc.due + tc.unreadable + tc.later {
				rec := idem.Record{ID: refund.Key("acme", fmt.Sprint(n)).ID(), State: idem.InProgress, Owner: "o", Write: "w", LeaseUntil: now, Due: now}
				if n < tc.unreadable {
					rec.State = "of a newer version"
				}
				if n >= tc.due+tc.unreadable { // escalated
					rec.State, rec.OpenSince, rec.Due = idem.Unknown, now, now.Add(24*time.Hour)
				}
				require.NoError(t, h.Store.Acquire(t.Context(), now, protocol.Claim{Record: rec}))
			}
			h.Clock.Advance(time.Minute)
			if tc.deny != "" {
				h.Faults.Always(idemtest.Deny, tc.deny)
			}
			reconciler, err := reconcile.New(h.Faults, &reconcile.Options{Now: h.Clock.Now})
			require.NoError(t, err)
			sweeper, err := reconcile.NewSweeper(reconciler, nil)
			require.NoError(t, err)
			var out bytes.Buffer
			metrics, err := emf.New(&emf.Options{Service: "sweeper", Out: &out})
			require.NoError(t, err)
			err = (&function{reconciler, sweeper, metrics}).handle(t.Context())
			require.NoError(t, metrics.Flush(t.Context()))
			require.Contains(t, out.String(), `"swept":1`)
			require.Equal(t, tc.deny != idemtest.Due && tc.deny != idemtest.Get, strings.Contains(out.String(), `"oldest_open":`),
				"what cannot be read is not said to be nothing: %s", out.String())
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, cmp.Or(tc.fails, "nothing could be done: "))
			require.ErrorContains(t, err, "idem: store: "+tc.says+": idemtest: denied")
		})
	}
}

// The page shows the example's program.
func TestTheProgramOfThePageIsTheExample(t *testing.T) {
	page, err := os.ReadFile("../functions/sweeper/README.md")
	require.NoError(t, err)
	_, program, found := strings.Cut(string(page), "```go\nfunc main() {\n")
	require.True(t, found)
	program, _, _ = strings.Cut(program, "```")
	example, err := os.ReadFile("example_test.go")
	require.NoError(t, err)
	require.Contains(t, string(example), "func ExampleMain() {\n"+program)
}

func deployed(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-central-1")
	t.Setenv(schema.EnvTable, "records")
	t.Setenv(schema.EnvSweepEscalations, "https://sqs.eu-central-1.amazonaws.com/111122223333/people")
}

// A probe gets the store that the sweep has; a set-up that fails ends the process.
func TestOperationsOfASweeperOfYourOwn(t *testing.T) {
	deployed(t)
	f, err := open(t.Context(), nil, func(store idem.Store) ([]reconcile.Operation, error) {
		require.NotNil(t, store)
		return []reconcile.Operation{{Operation: idem.Operation{Name: "refund"}, Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
			return reconcile.NotExecuted(), nil
		}}}, nil
	}, nil)
	require.NoError(t, err)
	require.NotNil(t, f)
	_, err = open(t.Context(), nil, func(idem.Store) ([]reconcile.Operation, error) { return nil, errors.New("PROVIDER_URL is missing") }, nil)
	require.ErrorContains(t, err, "PROVIDER_URL is missing")
}

func TestEnvironment(t *testing.T) {
	deployed(t)
	for _, without := range []string{"", "true"} {
		t.Setenv(schema.EnvWithoutTransactions, without)
		_, err := open(t.Context(), nil, nil, nil)
		require.NoError(t, err)
	}
	t.Setenv(schema.EnvSweepEscalations, "people")
	_, err := open(t.Context(), nil, nil, nil)
	require.ErrorContains(t, err, "is not a queue URL")
}
