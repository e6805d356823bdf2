package sweeping

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/kmsseal"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/kmstest"
)

// An invocation that always fails raises the alarm on sweepers that stop. So it fails if nothing could be done, also
// next to a record that cannot be read, or if the open questions cannot be counted, and at no other time.
func TestInvocationFailsIfNothingCouldBeDone(t *testing.T) {
	refund := idem.Operation{Name: "refund"}
	for name, tc := range map[string]struct {
		due, unreadable, later int
		deny                   idemtest.Method
		fails, says            string
	}{
		"nothing due": {},
		"due later":   {later: 1},
		"due later, and reads are denied": {later: 1, deny: idemtest.Get,
			fails: "the open questions could not be counted: ", says: "Get"},
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
				rec := idem.Record{ID: refund.Key("acme", fmt.Sprint(n)).ID(), State: idem.InProgress, Owner: "o", Write: "w",
					LeaseUntil: now, Due: now}
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
			require.Equal(t, tc.deny != idemtest.Due && tc.deny != idemtest.Get,
				strings.Contains(out.String(), `"oldest_open":`),
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
	t.Setenv(schema.EnvSweepEscalations, "https://sqs.eu-central-1.amazonaws.com/111122223333/operators")
}

// A probe gets the store that the sweep has; a set-up that fails ends the process.
func TestOperationsOfASweeperOfYourOwn(t *testing.T) {
	deployed(t)
	f, err := open(t.Context(), nil, func(store idem.Store) ([]reconcile.Operation, error) {
		require.NotNil(t, store)
		return []reconcile.Operation{{Operation: idem.Operation{Name: "refund"},
			Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
				return reconcile.NotExecuted(), nil
			}}}, nil
	}, nil)
	require.NoError(t, err)
	require.NotNil(t, f)
	_, err = open(t.Context(), nil,
		func(idem.Store) ([]reconcile.Operation, error) { return nil, errors.New("PROVIDER_URL is missing") }, nil)
	require.ErrorContains(t, err, "PROVIDER_URL is missing")
}

func TestEnvironment(t *testing.T) {
	deployed(t)
	for _, without := range []string{"", "true"} {
		t.Setenv(schema.EnvWithoutTransactions, without)
		_, err := open(t.Context(), nil, nil, nil)
		require.NoError(t, err)
	}
	for _, good := range []string{"1", "256"} {
		t.Setenv(schema.EnvSweepConcurrency, good)
		_, err := open(t.Context(), nil, nil, nil)
		require.NoError(t, err)
	}
	for _, bad := range []string{"0", "-1", "257", "many", "8.5"} {
		t.Setenv(schema.EnvSweepConcurrency, bad)
		_, err := open(t.Context(), nil, nil, nil)
		require.ErrorContains(t, err, fmt.Sprintf("IDEM_SWEEP_CONCURRENCY is %q: use a whole number from 1 to 256", bad))
	}
	t.Setenv(schema.EnvSweepConcurrency, "")
	t.Setenv(schema.EnvSweepEscalations, "operators")
	_, err := open(t.Context(), nil, nil, nil)
	require.ErrorContains(t, err, "is not a queue URL")
}

// A sweep of encrypted records needs no key, unless a probe knows a result: that one is encrypted too, or
// not recorded.
func TestASweepOfEncryptedRecords(t *testing.T) {
	deployed(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "idemlocal")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "idemlocal")
	t.Setenv(schema.EnvEndpoint, dynamotest.Endpoint(t))
	table := "sweeping-" + rand.Text()
	t.Setenv(schema.EnvTable, table)
	keys := kmstest.New(t)
	t.Setenv("AWS_ENDPOINT_URL_SQS", keys.URL) // which knows no queue
	seal := func(aws.Config) (dynamostore.Sealer, error) {
		return kmsseal.New(keys.Client(), kmsseal.Options{Key: "alias/results"})
	}
	client := dynamotest.Client(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, table))
	sealer, err := seal(aws.Config{})
	require.NoError(t, err)
	store, err := dynamostore.New(client, table,
		&dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute, Sealer: sealer})
	require.NoError(t, err)
	engine, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute})
	require.NoError(t, err)
	refund, charge, payout := idem.Operation{Name: "refund"}, idem.Operation{Name: "charge"},
		idem.Operation{Name: "payout"}
	errCut := errors.New("cut")
	park := func(op idem.Operation) {
		_, err := idem.Do(t.Context(), engine, op.Key("acme", "1"),
			1, func(context.Context, int) (string, error) { return "", errCut })
		require.ErrorIs(t, err, errCut)
	}
	metrics, err := emf.New(&emf.Options{Service: "sweeper", Out: io.Discard})
	require.NoError(t, err)
	sweep := func(seal func(aws.Config) (dynamostore.Sealer, error)) {
		f, err := open(t.Context(), seal, func(idem.Store) (all []reconcile.Operation, err error) {
			for _, op := range []idem.Operation{refund, charge, payout} {
				all = append(all, reconcile.Operation{Operation: op,
					Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
						if op.Name == charge.Name {
							return reconcile.CompletedWithoutResult(), nil
						}
						return reconcile.CompletedWith("re_4711"), nil
					}})
			}
			return all, nil
		}, metrics)
		require.NoError(t, err)
		_, err = f.sweep(t.Context())
		require.NoError(t, err)
	}
	recorded := func(op idem.Operation) *idem.Record {
		rec, err := store.Get(t.Context(), op.Key("acme", "1").ID())
		require.NoError(t, err)
		return rec
	}
	park(refund)
	park(charge)
	keys.Made()
	sweep(nil)
	require.Equal(t, idem.Unknown, recorded(refund).State, "operators have the key")
	require.Equal(t, idem.Completed, recorded(charge).State)
	require.NotContains(t, keys.Made(), "GenerateDataKey")

	park(payout)
	sweep(seal)
	rec := recorded(payout)
	require.Equal(t, idem.Completed, rec.State)
	require.NotContains(t, string(rec.Body.Data), "re_4711")
	got, err := idem.Do(t.Context(), engine, payout.Key("acme", "1"),
		1, func(context.Context, int) (string, error) { return "again", nil })
	require.NoError(t, err)
	require.Equal(t, "re_4711", got)
}
