// Package duel compares the throughput of calls made by hand with that of an engine over a store. The two take turns,
// since machines are noisy.
package duel

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// rounds of each comparison. Both sides have a turn in each, which is long enough for caches to be warm, and in which
// each caller makes at least so many calls.
const (
	rounds = 9
	turn   = 200 * time.Millisecond
	calls  = 20
)

// widest is the width of an interval beyond which a comparison says nothing.
const widest = 0.5

// Call makes one call with the id.
type Call func(ctx context.Context, id string) error

// Path is a call that both sides make, with ids of [NewID], [Recorded] or [Hot].
type Path struct {
	Name         string
	ID           func() string
	ByHand, Idem Call
	// Least is the least share of the throughput by hand that is accepted.
	Least float64
}

// Run compares the paths at 1, 8 and 32 callers, and prints a line for each. It fails if the 95 % interval of the
// paired ratios of a path lies wholly below its least one, or is too wide to say anything.
func Run(ctx context.Context, paths ...Path) error {
	fmt.Printf("%d interleaved rounds\n", rounds)
	fmt.Printf("  %-9s %8s %12s %12s %8s   %s\n", "path", "callers", "by hand", "with idem", "ratio", "95 % interval")
	var errs []error
	for _, callers := range []int{1, 8, 32} {
		for _, p := range paths {
			if err := p.compare(ctx, callers); err != nil {
				errs = append(errs, fmt.Errorf("%s, %d callers: %w", p.Name, callers, err))
			}
		}
	}
	return errors.Join(errs...)
}

// compare runs both sides, each round in the other order.
func (p Path) compare(ctx context.Context, callers int) error {
	var ratios, hands, withs []float64
	for i := range rounds + 1 {
		sides := []Call{p.ByHand, p.Idem}
		var got [2]float64
		for j := range sides {
			k := (i + j) % 2
			x, err := throughput(ctx, callers, p.ID, sides[k])
			if err != nil {
				return err
			}
			got[k] = x
		}
		if i > 0 { // the first one warms up
			hands, withs, ratios = append(hands, got[0]), append(withs, got[1]), append(ratios, got[1]/got[0])
		}
	}
	low, high := interval(ratios)
	fmt.Printf("  %-9s %8d %9.0f /s %9.0f /s %8.3f   %.3f to %.3f\n", p.Name, callers, middle(hands), middle(withs),
		middle(ratios), low, high)
	if high-low > widest {
		return fmt.Errorf("between %.3f and %.3f of the throughput by hand: the machine is too busy to compare", low, high)
	}
	if high < p.Least {
		return fmt.Errorf("between %.3f and %.3f of the throughput by hand, at least %.2f is required", low, high, p.Least)
	}
	return nil
}

// throughput makes calls by so many callers for a turn. It returns calls per second.
func throughput(ctx context.Context, callers int, id func() string, call Call) (float64, error) {
	g, ctx := errgroup.WithContext(ctx)
	var done atomic.Int64
	begun := time.Now()
	for range callers {
		g.Go(func() error {
			for n := 0; (n < calls || time.Since(begun) < turn) && ctx.Err() == nil; n++ {
				if err := call(ctx, id()); err != nil {
					return err
				}
				done.Add(1)
			}
			return nil
		})
	}
	err := g.Wait()
	return float64(done.Load()) / time.Since(begun).Seconds(), err
}

// recordedKeys are more than an engine knows as hot.
const recordedKeys = 4096

var next atomic.Int64

// NewID returns an id that no call has had.
func NewID() string { return "op-" + strconv.FormatInt(next.Add(1), 36) }

// Recorded returns an id of [Record], another one each time.
func Recorded() string { return recorded(next.Add(1)) }

// Hot returns an id of [Record], always the same.
func Hot() string { return recorded(0) }

func recorded(i int64) string { return "recorded-" + strconv.FormatInt(i%recordedKeys, 10) }

// Record makes first calls with the ids that are replayed later.
func Record(ctx context.Context, first Call) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(32)
	for i := range int64(recordedKeys) {
		g.Go(func() error { return first(ctx, recorded(i)) })
	}
	return g.Wait()
}

func middle(xs []float64) float64 { return slices.Sorted(slices.Values(xs))[len(xs)/2] }

// interval is the 95 % confidence interval of the mean, by Student's t.
func interval(xs []float64) (low, high float64) {
	const student = 2.306 // the 97.5 % quantile for 8 degrees of freedom: 9 rounds
	var mean, sum float64
	for _, x := range xs {
		mean += x / rounds
	}
	for _, x := range xs {
		sum += (x - mean) * (x - mean)
	}
	half := student * math.Sqrt(sum/(rounds-1)/rounds)
	return mean - half, mean + half
}

// Side is an engine's.
type Side struct{ engine *idem.Engine }

// Operation is what a [Side] executes, of tenant "acme".
var Operation = idem.Operation{Name: "bench", Repeat: idem.Repeatable}

// Body is what is recorded: 1 KB, which does not compress to nothing.
var Body = func() []byte {
	body := make([]byte, 1<<10)
	for i := range body {
		body[i] = byte('a' + i*i%26)
	}
	return body
}()

// NewSide returns an engine's side over the store, in which it records what is replayed.
func NewSide(ctx context.Context, store idem.Store) (*Side, error) {
	// A busy machine's store is slow, and not down.
	engine, err := idem.New(store, &idem.Options{ClaimBudget: 20 * time.Second, FinishBudget: 20 * time.Second})
	if err != nil {
		return nil, err
	}
	s := &Side{engine}
	return s, Record(ctx, s.First)
}

// Execution is the call of an engine with the key.
func Execution(id string) idem.Call {
	return idem.Call{
		Key: Operation.Key("acme", id), Fingerprint: fingerprint.Bytes(Body),
		Run: func(context.Context) idem.Answer { return idem.Answer{Body: Body} },
	}
}

// First executes.
func (s *Side) First(ctx context.Context, id string) error {
	out, err := s.engine.Execute(ctx, Execution(id))
	if err == nil && (out.Replayed || out.Queued) {
		return errors.New("not a first execution")
	}
	return err
}

// Replay answers a duplicate.
func (s *Side) Replay(ctx context.Context, id string) error {
	out, err := s.engine.Execute(ctx, Execution(id))
	if err == nil && (!out.Replayed || len(out.Body) != len(Body)) {
		return errors.New("not a replay")
	}
	return err
}
