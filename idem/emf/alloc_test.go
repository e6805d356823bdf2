//go:build !race

package emf_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
)

// maxAllocs is what metrics and log lines may allocate in an invocation.
const maxAllocs = 20

// watching is what looks at invocations.
type watching int

const (
	unwatched watching = iota
	byItself           // the engine's default
	metered            // metrics
	logged             // metrics, and what an operator must look at in the log
	verbose            // metrics, and every notice in the log
)

// ends are those of an invocation, by name.
var ends = map[string]struct {
	again bool  // with the key of the one before
	err   error // of its handler
}{
	"executed": {},
	"replayed": {again: true},
	"parked":   {err: errors.New("the connection broke")},
}

// invocations returns a function that invokes a handler, which ends like that.
func invocations(t *testing.T, w watching, end string) func() {
	m, err := emf.New(&emf.Options{Service: "payments", Out: io.Discard})
	require.NoError(t, err)
	logger := func(level slog.Level) idem.Observer {
		return idem.LogTo(slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: level})))
	}
	observer := map[watching]idem.Observer{
		unwatched: func(context.Context, notice.Notice) {},
		metered:   m.Observe,
		logged:    idem.Observers(m.Observe, logger(slog.LevelInfo)),
		verbose:   idem.Observers(m.Observe, logger(slog.LevelDebug)),
	}[w]
	engine, err := idem.New(memstore.New(), &idem.Options{Observer: observer})
	require.NoError(t, err)
	op, c := idem.Operation{Name: "charge"}, ends[end]
	var h emf.Handler = handler(func(ctx context.Context, payload []byte) ([]byte, error) {
		return idem.Do(ctx, engine, op.Key("acme", string(payload)), 1,
			func(context.Context, int) ([]byte, error) { return nil, c.err })
	})
	if w >= metered {
		h = m.Wrap(h)
	}
	n := 0
	ctx, cancel := context.WithTimeout(invocation(t.Context(), "c6af9ac6-7b61-11e6-9a41-93e8deadbeef"), time.Hour)
	t.Cleanup(cancel)
	return func() {
		if !c.again || n == 0 {
			n++
		}
		_, err := h.Invoke(ctx, strconv.AppendInt(nil, int64(n), 10))
		require.Equal(t, c.err, err)
	}
}

func TestMetricsAndLogsMakeFewAllocationsAndOffNone(t *testing.T) {
	for end, c := range ends {
		allocs := map[watching]float64{}
		for w := unwatched; w <= verbose; w++ {
			if w == byItself && c.err != nil {
				continue // it logs a line of that
			}
			allocs[w] = testing.AllocsPerRun(500, invocations(t, w, end))
		}
		none := allocs[unwatched]
		t.Logf("%s: %v allocations without an observer, %v more with metrics, %v with log lines too, %v with all of them",
			end, none, allocs[metered]-none, allocs[logged]-none, allocs[verbose]-none)
		require.LessOrEqual(t, allocs[verbose]-none, float64(maxAllocs), end)
		if c.err == nil {
			require.Equal(t, none, allocs[byItself], end)
		}
	}
}
