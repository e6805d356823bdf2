package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/local/aws/testmain"
)

// envDelivery makes of the test binary a process that handles one delivery.
const envDelivery = "IDEM_CRASH_DELIVERY"

// delivery is what a process is told.
type delivery struct {
	Endpoint, Table, Order string
	// Effects is the file to which each effect adds its line.
	Effects string
	Ahead   time.Duration
	N       int
	Kind    kind
}

func TestMain(m *testing.M) { testmain.Run(m, testmain.Role{Env: envDelivery, Main: handle}) }

// handle is the process: it handles the delivery and writes the answer, unless it
// kills itself at a request before.
func handle(told string) error {
	var d delivery
	if err := json.Unmarshal([]byte(told), &d); err != nil {
		return err
	}
	effects, err := os.OpenFile(d.Effects, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	g := &database{endpoint: d.Endpoint, table: d.Table}
	clock := new(idemtest.Clock)
	clock.Advance(d.Ahead)
	w := &business{runs: map[string]int{}, recorded: map[string]bool{}, put: g.put(d.Order), log: effects}
	p := &process{w: w, wired: true}
	w.dead = p.isDead
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		return err
	}
	p.deliver(fault{d.N, d.Kind}, func() {
		_ = self.Kill()
		select {} // it is delivered any moment
	})
	if p.Store, err = g.open(p); err != nil {
		return err
	}
	opts := patient(clock)
	engine, err := idem.New(p, &opts)
	if err != nil {
		return err
	}
	key := idem.Operation{Name: "order", Repeat: idem.Repeatable}.Key("acme", d.Order)
	v, err := idem.Do(context.Background(), engine, key, "an order",
		func(ctx context.Context, _ string) (string, error) {
			return w.order(ctx, &idem.StepConfig[string]{Semantics: idem.AtMostOnce})
		})
	if err == nil {
		fmt.Print(v)
	}
	if errors.Is(err, idem.ErrOutcomeUnknown) {
		return nil // nothing to say
	}
	return err
}

// TestKilledProcesses plays the crashes of the first order with processes that are
// killed, and ends each as the matrix does.
func TestKilledProcesses(t *testing.T) {
	g := newDatabase(t)
	var calls []string
	synctest.Test(t, func(t *testing.T) { calls = play(t, inMemory(), scenarios[0], idem.Repeatable).calls[0] })
	t.Run("cells", func(t *testing.T) {
		for n, label := range calls {
			for _, k := range []kind{killBefore, killAfter} {
				t.Run(label+"/"+string(k), func(t *testing.T) {
					t.Parallel()
					var want result
					synctest.Test(t, func(t *testing.T) { want = play(t, inMemory(), scenarios[0], idem.Repeatable, fault{n + 1, k}) })
					s := g.setup(t)
					d := delivery{Endpoint: g.endpoint, Table: g.table, Order: s.order, Effects: filepath.Join(t.TempDir(), "effects"), N: n + 1, Kind: k}
					require.NoError(t, os.WriteFile(d.Effects, nil, 0o600))
					_, err := run(t, d)
					var exit *exec.ExitError
					require.ErrorAs(t, err, &exit)
					require.False(t, exit.Exited(), "it was killed")
					d.N = 0
					store, err := g.open(&process{w: new(business), wired: true})
					require.NoError(t, err)
					key := idem.Operation{Name: "order"}.Key("acme", s.order)
					var rec *idem.Record
					var answer string
					for range most {
						d.Ahead += time.Minute
						answer, err = run(t, d)
						rec, _ = store.Get(t.Context(), key.ID())
						if rec != nil && (rec.State == idem.Completed || rec.State == idem.Unknown) {
							break
						}
					}
					require.NotNil(t, rec)
					got := result{state: rec.State, runs: map[string]int{}}
					lines, fErr := os.ReadFile(d.Effects)
					require.NoError(t, fErr)
					for _, name := range strings.Fields(string(lines)) {
						got.runs[name]++
					}
					require.Equal(t, cellOf(want), cellOf(got))
					require.Equal(t, want.runs, got.runs)
					rows, rErr := s.rows(t.Context())
					require.NoError(t, rErr)
					if rec.State == idem.Completed {
						require.NoError(t, err)
						require.Equal(t, []string{answer}, rows)
					} else {
						require.Empty(t, rows)
					}
				})
			}
		}
	})
}

// run starts a process for the delivery and waits for its end.
func run(t *testing.T, d delivery) (string, error) {
	t.Helper()
	told, err := json.Marshal(d)
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), envDelivery+"="+string(told))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, os.Stderr
	err = cmd.Run()
	return out.String(), err
}
