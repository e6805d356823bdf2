package dynamostore

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
)

// used are the permissions that this package's calls need, as seen at the wire in all of its tests: by who calls,
// what is called, and the actions. A transaction needs those of what is in it. The infrastructure is held to them:
// each role that handles records must be allowed all of them.
var used struct {
	sync.Mutex
	actions map[[3]string]bool // caller, resource, action
}

const permissionsFile = "permissions.json"

// Who calls.
const (
	asHandler  = "handler"
	asRelay    = "relay"
	asSweeper  = "sweeper"
	asOperator = "operator"
	asReader   = "reader"
	asCheck    = "check"
	asRemover  = "remover"
	asScanner  = "scanner"
	asLedger   = "ledger"
)

func need(caller, resource, action string) {
	used.Lock()
	defer used.Unlock()
	if used.actions == nil {
		used.actions = map[[3]string]bool{}
	}
	used.actions[[3]string{caller, resource, "dynamodb:" + action}] = true
}

// recordCall notes what a request needs.
func recordCall(caller, op string, req *http.Request) {
	if op == "" || req.Body == nil {
		return
	}
	if op != "TransactWriteItems" && op != "Query" && op != "Scan" {
		need(caller, "records", op) // the others name no index
		return
	}
	body, err := io.ReadAll(req.Body)
	req.Body = io.NopCloser(bytes.NewReader(body))
	if err != nil {
		return
	}
	type attributes = map[string]map[string]any
	var in struct {
		IndexName     string
		TransactItems []map[string]struct{ Item, Key attributes }
	}
	if json.Unmarshal(body, &in) != nil {
		return
	}
	if op != "TransactWriteItems" {
		resource := "records"
		if in.IndexName != "" {
			resource += "/index/" + in.IndexName
		}
		need(caller, resource, op)
		return
	}
	for i, entry := range in.TransactItems {
		for kind, a := range entry {
			sk, _ := a.Item[schema.SK]["S"].(string)
			resource := "business"
			// the record comes first
			if i == 0 || strings.HasPrefix(sk, schema.OutboxSK) || strings.HasPrefix(sk, schema.AuditSK) {
				resource = "records"
			}
			action := kind + "Item"
			if kind == "ConditionCheck" {
				action = "ConditionCheckItem"
			}
			need(caller, resource, action)
		}
	}
}

// as names the caller of what goes through a wire.
type as struct {
	caller string
	next   http.RoundTripper
}

func (a as) RoundTrip(req *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	recordCall(a.caller, op, req)
	return a.next.RoundTrip(req)
}

func TestMain(m *testing.M) {
	testmain.Parallel(4) // they wait for DynamoDB and for budgets most of the time
	// What engines without an observer log is what their tests make happen.
	slog.SetDefault(slog.New(slog.DiscardHandler))
	code := m.Run()
	if code == 0 {
		if err := comparePermissions(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// comparePermissions compares what was needed with the golden file: nothing may be
// missing in it, and after a run of all tests nothing may be too much.
func comparePermissions() error {
	used.Lock()
	defer used.Unlock()
	if len(used.actions) == 0 {
		return nil // no test came so far
	}
	file := filepath.Join("testdata", permissionsFile)
	if *updateGolden {
		golden := map[string]map[string][]string{}
		for n := range used.actions {
			if golden[n[0]] == nil {
				golden[n[0]] = map[string][]string{}
			}
			golden[n[0]][n[1]] = append(golden[n[0]][n[1]], n[2])
			slices.Sort(golden[n[0]][n[1]])
		}
		text, err := json.MarshalIndent(golden, "", "  ")
		if err != nil {
			return err
		}
		return os.WriteFile(file, append(text, '\n'), 0o644)
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var golden map[string]map[string][]string
	if err := json.Unmarshal(text, &golden); err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	const hint = "run all tests of the package with -update, read the difference, and see that infra grants it"
	for n := range used.actions {
		if !slices.Contains(golden[n[0]][n[1]], n[2]) {
			return fmt.Errorf("%s does not have %s on %s, which the %s needs: %s", file, n[2], n[1], n[0], hint)
		}
	}
	if flag.Lookup("test.run").Value.String() != "" || flag.Lookup("test.skip").Value.String() != "" || testing.Short() {
		return nil
	}
	for caller, resources := range golden {
		for resource, actions := range resources {
			for _, action := range actions {
				if !used.actions[[3]string{caller, resource, action}] {
					return fmt.Errorf("%s has %s on %s, which the %s no longer needs: %s", file, action, resource, caller, hint)
				}
			}
		}
	}
	return nil
}

func TestPermissionsOfCheck(t *testing.T) {
	f := open(t, nil)
	require.NoError(t, Check(t.Context(), f.clientAs(asCheck), f.table))
}

// A sweep asks about one operation, whose step has a large result and whose own will be
// large, and escalates another one.
func TestPermissionsOfASweeper(t *testing.T) {
	eachKind(t, func(t *testing.T, f *fixture, q *AdminStore) {
		sweepTwo(t, f)
		// Parked and resolved, parked and escalated.
		require.Equal(t, 4, changesConfirmed(t, q))
	})
}

// changesConfirmed counts the changes of all records. Each was made.
func changesConfirmed(t *testing.T, q *AdminStore) (n int) {
	t.Helper()
	for shard := range protocol.AuditShards {
		p, err := q.AuditBetween(t.Context(), shard, time.Time{}, time.Now().Add(2*time.Hour), "")
		require.NoError(t, err)
		for _, a := range p.Entries {
			require.False(t, a.Unconfirmed)
		}
		n += len(p.Entries)
	}
	return n
}

// A reader looks at everything that an operator may look at: lists, a record with large
// results, its history, changes by time, dead letters.
func TestPermissionsOfAReader(t *testing.T) {
	f := open(t, nil)
	ctx := t.Context()
	client := f.clientAs(asReader)
	store := must(NewAdminStore(client, f.table, f.o))
	reader, operator := must(reconcile.New(store, nil)), must(reconcile.New(f.adminStore(t), nil))
	engine := f.engine()
	large := base64.StdEncoding.EncodeToString(noise(30_000))
	key := idem.Operation{Name: "refund"}.Key(idem.SingleTenant, "1")
	_, err := idem.Do(ctx, engine, key, "", func(ctx context.Context, _ string) (string, error) {
		_, err := idem.Step(ctx, "step", func(context.Context) (string, error) { return large, nil }, nil)
		require.NoError(t, err)
		return "", errors.New("the connection broke")
	})
	require.Error(t, err)

	l, err := reader.List(ctx, reconcile.Filter{}, "")
	require.NoError(t, err)
	require.Len(t, l.Records, 1)
	step, err := reader.StepResult(ctx, l.Records[0], "step")
	require.NoError(t, err)
	require.Contains(t, string(step), large)
	require.NoError(t, reconcile.Resolve(ctx, operator, key,
		large, reconcile.Change{Actor: "alice", Reason: "the provider has it", IfWrite: l.Records[0].Write}))
	_, kept := f.parts(t)
	require.Zero(t, kept, "the parts of its steps expire with the outcome")
	rec, err := reader.Lookup(ctx, key.ID())
	require.NoError(t, err)
	result, err := reader.Result(ctx, rec)
	require.NoError(t, err)
	require.Contains(t, string(result), large)
	history, err := reader.History(ctx, key.ID())
	require.NoError(t, err)
	require.Len(t, history, 1)
	require.Equal(t, 1, changesConfirmed(t, store))

	relay := openBox(t)
	dead := relay.publish(t, "acme#charge#abc", 0, order(""), base)
	isTrue(t)(relay.DeadLetter(ctx, base, relay.entry(t, dead), 10, "refused"))
	letters := must(NewOutbox(client, relay.table, nil))
	require.Equal(t, []string{"acme#charge#abc/0"}, relay.listed(t, letters.Dead))
}

func sweepTwo(t *testing.T, f *fixture) {
	t.Helper()
	reconciler := must(reconcile.New(must(NewAdminStore(f.clientAs(asSweeper), f.table, f.o)),
		&reconcile.Options{Now: func() time.Time { return time.Now().Add(time.Hour) }}))
	asked, left := idem.Operation{Name: "asked", Repeat: idem.NotRepeatable},
		idem.Operation{Name: "left", Repeat: idem.NotRepeatable}
	large := base64.StdEncoding.EncodeToString(noise(30_000)) // which hardly compresses
	sweeper := must(reconcile.NewSweeper(reconciler, &reconcile.SweepOptions{Operations: []reconcile.Operation{{
		Operation: asked, Probe: func(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
			found, err := q.StepResult(ctx, "step")
			if err != nil {
				return reconcile.Answer{}, err
			}
			return reconcile.CompletedWith(string(found)), nil
		},
	}, {
		Operation: left, Probe: func(context.Context, reconcile.Question) (reconcile.Answer, error) {
			return reconcile.CannotBeKnown("the provider is closed"), nil
		},
	}}, Log: slog.New(slog.DiscardHandler)}))
	engine := f.engine()
	out, err := idem.Do(t.Context(), engine, asked.Key(idem.SingleTenant, "1"),
		"", func(ctx context.Context, _ string) (string, error) {
			if _, err := idem.Step(ctx, "step", func(context.Context) (string, error) { return large, nil }, nil); err != nil {
				return "", err
			}
			return idem.Do(ctx, engine, left.Key(idem.SingleTenant, "1"), "", func(context.Context, string) (string, error) {
				report, err := sweeper.Sweep(t.Context())
				require.NoError(t, err)
				require.Equal(t, []int{2, 1, 1, 0}, []int{report.Parked, report.Resolved, report.Escalated, report.Failed}, "%v",
					report)
				return "", nil
			})
		})
	require.NoError(t, err)
	require.Contains(t, out, large, "the caller gets what the provider said")
}
