package crash

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// scant is a store in which no result can be stored in time with its outcome: the
// outcome is recorded without it, and the result is added by a write of its own.
type scant struct{ *memory }

func (s scant) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	_, added := f.Attempt.(protocol.WithoutResult)
	if f.Ending.State == idem.Completed && !f.Ending.Omitted && !added {
		return &idem.StoreError{Op: "Finish", ResultNotStored: true, Err: errors.New("no part was taken")}
	}
	return s.memory.Finish(ctx, now, f)
}

// TestResultsThatAreAddedLater plays an operation whose result is added after its
// outcome through every crash, and every pair of them.
func TestResultsThatAreAddedLater(t *testing.T) {
	for _, repeat := range repeats {
		for _, commits := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/commits %v", repeat, commits), func(t *testing.T) {
				var calls []string
				synctest.Test(t, func(t *testing.T) { calls = playAdded(t, repeat, commits).first })
				require.Len(t, calls, 4, "the claim, the outcome, the outcome without its result, the result")
				cells := 0
				for n := range calls {
					for _, k := range kinds {
						first := fault{n + 1, k}
						synctest.Test(t, func(t *testing.T) {
							once := playAdded(t, repeat, commits, first)
							for m := range once.second {
								for _, k := range kinds {
									playAdded(t, repeat, commits, first, fault{m + 1, k})
									cells++
								}
							}
						})
					}
				}
				require.Greater(t, cells, 30)
			})
		}
	}
}

// added tells which calls the first two deliveries made.
type added struct{ first, second []string }

func playAdded(t *testing.T, repeat idem.Repeat, commits bool, faults ...fault) (out added) {
	t.Helper()
	m := &memory{Store: memstore.New()}
	w := &business{}
	key := idem.Operation{Name: "order", Repeat: repeat}.Key("acme", "order-1")
	record := func() *idem.Record {
		rec, err := m.Get(t.Context(), key.ID())
		require.NoError(t, err)
		return rec
	}
	var p *process
	var engine *idem.Engine
	runs, runsThen, deaths := 0, -1, 0
	deliver := func(f fault) (string, error) {
		if p == nil || p.isDead() {
			p = &process{w: w, Store: scant{m}}
			var err error
			engine, err = idem.New(p, nil)
			require.NoError(t, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.deliver(f, cancel)
		v, err := idem.Do(ctx, engine, key, "an order", func(ctx context.Context, _ string) (string, error) {
			require.Equal(t, -1, runsThen, "it runs although it is recorded: %v", faults)
			runs++
			if commits {
				return "done", putInMemory(ctx, "done")
			}
			return "done", nil
		})
		p.mu.Lock()
		if out.first == nil {
			out.first = p.calls
		} else if out.second == nil {
			out.second = p.calls
		}
		p.mu.Unlock()
		if p.isDead() {
			deaths++
			err = errDead
		}
		time.Sleep(time.Minute)
		if rec := record(); rec != nil && rec.State == idem.Completed && runsThen < 0 {
			runsThen = runs
		}
		return v, err
	}
	for n := range most {
		f := fault{}
		if n < len(faults) {
			f = faults[n]
		}
		_, _ = deliver(f)
	}
	v, err := deliver(fault{})
	require.NoError(t, engine.Flush(t.Context()))
	rec := record()
	switch {
	case rec.State == idem.Unknown:
		require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
		require.Equal(t, idem.NotRepeatable, repeat)
		require.Empty(t, m.rows)
		return out
	case rec.Omitted:
		require.ErrorIs(t, err, idem.ErrOutcomeUnavailable)
		require.Positive(t, deaths, "the result is lost with the process that had it: %v", faults)
	default:
		require.NoError(t, err)
		require.Equal(t, "done", v)
	}
	require.Equal(t, idem.Completed, rec.State)
	if repeat == idem.NotRepeatable {
		require.LessOrEqual(t, runs, 1)
	}
	if commits {
		require.Equal(t, []string{"done"}, m.rows, "the writes took effect once: %v", faults)
	}
	return out
}
