package ledger

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
)

var seed = flag.Uint64("seed", 1, "of the transfers, who asks for them, and the faults")

// timeout of the function: short, since the lease of a killed attempt runs until
// then.
const timeout = 2 * time.Second

// transfer as the function takes it.
type transfer struct {
	ID     string `json:"id"`
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int    `json:"amount"`
}

// transfers are n, of which every tenth asks for more than there is.
func transfers(random *rand.Rand, n int) (all []transfer) {
	for i := range n {
		from := random.IntN(accounts)
		to := (from + 1 + random.IntN(accounts-1)) % accounts
		amount := 1 + random.IntN(120)
		if i%10 == 9 {
			amount += accounts * opening
		}
		all = append(all, transfer{fmt.Sprintf("transfer-%03d", i), accountName(from), accountName(to), amount})
	}
	return all
}

// answer is what a caller ends with.
type answer struct {
	refused bool
	text    string // the receipt, or the refusal's message
}

// answers are what all callers got, and what some were told on the way.
type answers struct {
	mu          sync.Mutex
	of          map[string][]answer
	denied      []string // entries that were said not to be committed
	told        map[string]int
	invocations int
}

// ask makes a caller's call until there is an answer.
func (s *setup) ask(ctx context.Context, t transfer, got *answers) error {
	event, err := json.Marshal(t)
	if err != nil {
		return err
	}
	for {
		result, err := s.pool.Invoke(ctx, event, nil)
		if err != nil {
			return fmt.Errorf("%s has no answer: %w; told so far: %v", t.ID, err, got.told)
		}
		got.mu.Lock()
		got.invocations++
		pause := time.Duration(0)
		switch {
		case result.Error == nil:
			got.of[t.ID] = append(got.of[t.ID], answer{text: string(result.Payload)})
		case result.Error.Type == "Overdraft":
			got.of[t.ID] = append(got.of[t.ID], answer{true, result.Error.Message})
		default:
			got.told[result.Error.Type]++
			pause = 20 * time.Millisecond
			switch result.Error.Type {
			case "InFlightError":
				pause = 150 * time.Millisecond
			case "Denied":
				var entry string
				_, _ = fmt.Sscan(result.Error.Message, &entry)
				got.denied = append(got.denied, entry)
			case "NotCommittedError", "StoreUnavailableError", "OutOfTimeError", "Unrecorded", runtime.TypeExit,
				runtime.TypeTimedOut:
			default:
				err = fmt.Errorf("%s: %w", t.ID, result.Error)
			}
		}
		got.mu.Unlock()
		if err != nil || pause == 0 {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

// askAll lets all callers ask, a number of them at once.
func (s *setup) askAll(queue []transfer) *answers {
	s.t.Helper()
	got := &answers{of: map[string][]answer{}, told: map[string]int{}}
	rig.Crowd(s.t, queue, 12, 4*time.Minute, func(int) func(context.Context, transfer) error {
		return func(ctx context.Context, t transfer) error { return s.ask(ctx, t, got) }
	})
	return got
}

// anyFault strikes most where a commit is at stake.
var anyFault = rig.AnyFault(45, 15, 5)

// One mode with a process for each invocation, frozen in between, the other one with
// several in a process.
func TestTransfers(t *testing.T) {
	t.Parallel()
	n := 50
	if rig.Long() {
		n = 200
	}
	for mode, c := range map[string]struct {
		fn     runtime.Function
		freeze bool
	}{
		"reserved": {runtime.Function{MaxInstances: 6, Timeout: timeout}, true},
		"atomic":   {runtime.Function{MaxInstances: 3, Concurrency: 2, Timeout: timeout}, false},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			random := rand.New(rand.NewPCG(*seed, 0))
			all := transfers(random, n)
			queue := rig.Sendings(random, all, 5)
			s := newSetup(t, mode, c.fn, c.freeze, true, anyFault)
			s.startRelay()

			got := s.askAll(queue)
			s.calm()
			made, refused := s.audit(all, queue, got)
			repeats := s.requireMessages(made)

			t.Logf("%s, seed %d: %d transfers, %d callers, %d invocations, %d made, %d refused, %d messages more than once; "+
				"%d entries denied; told %v; %.1f s; %v",
				mode, *seed, n, len(queue), got.invocations, len(made), refused, repeats, len(got.denied), got.told,
				time.Since(began).Seconds(), s.tally)
			for _, fault := range append([]string{stuckSoon, stuckLater}, rig.AllFaults...) {
				require.NotZero(t, s.tally.fault(fault), fault)
			}
			require.NotZero(t, refused)
			require.Greater(t, len(made), n/3)
			if rig.Long() { // a short run may by chance have none
				require.NotZero(t, len(got.denied)+s.tally.notice("claim withdrawn"), "some commit was fenced")
			}
		})
	}
}

// Conflicts alone are waited out: they cost nobody the claim, and each transfer is
// made by its first attempt.
func TestConflictsAlone(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"reserved", "atomic"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			random := rand.New(rand.NewPCG(*seed, 3))
			all := transfers(random, 40)
			queue := rig.Sendings(random, all, 5)
			// Time enough that no lease is over and no budget is used up on a busy machine.
			s := newSetup(t, mode, runtime.Function{MaxInstances: 6, Timeout: time.Minute}, false,
				false, func(op string) (float64, []string) {
					if slices.Contains([]string{"TransactWriteItems", "PutItem", "UpdateItem"}, op) {
						return 30, []string{faultnet.Conflicted}
					}
					return 0, nil
				}, "LEDGER_PATIENCE=20s")
			got := s.askAll(queue)
			s.calm()
			s.audit(all, queue, got)
			t.Logf("%s, seed %d: %d conflicts; told %v; %v", mode, *seed, s.tally.fault(faultnet.Conflicted), got.told, s.tally)
			require.NotZero(t, s.tally.fault(faultnet.Conflicted))
			for _, tr := range all {
				rec, _ := s.record(tr)
				require.Equal(t, 1, rec.Attempt, rec.ID)
			}
			for what, n := range got.told {
				require.Equal(t, "InFlightError", what, "%d callers were told", n)
			}
			require.Zero(t, s.tally.notice("lease lost"))
		})
	}
}
