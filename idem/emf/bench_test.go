package emf_test

import (
	"context"
	"io"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
)

// maxAllocs is what metrics may allocate in an invocation.
const maxAllocs = 20

// invocations returns a function that invokes a handler: half of its calls are executed, half
// are replays. Without metrics nobody is told.
func invocations(t testing.TB, with bool) func() {
	var h emf.Handler
	observer := func(context.Context, notice.Notice) {}
	m, err := emf.New(&emf.Options{Service: "payments", Out: io.Discard})
	require.NoError(t, err)
	if with {
		observer = m.Observe
	}
	engine, err := idem.New(memstore.New(), &idem.Options{Observer: observer})
	require.NoError(t, err)
	h = handler(func(ctx context.Context, payload []byte) ([]byte, error) {
		return idem.Do(ctx, engine, charge.Key("acme", string(payload)), 1, func(context.Context, int) ([]byte, error) { return nil, nil })
	})
	if with {
		h = m.Wrap(h)
	}
	n := 0
	ctx := invocation(t.Context(), "c6af9ac6-7b61-11e6-9a41-93e8deadbeef")
	return func() {
		n++
		_, err := h.Invoke(ctx, strconv.AppendInt(nil, int64(n/2), 10))
		require.NoError(t, err)
	}
}

func TestMetricsAllocateLittle(t *testing.T) {
	with, without := testing.AllocsPerRun(500, invocations(t, true)), testing.AllocsPerRun(500, invocations(t, false))
	t.Logf("%v allocations with metrics, %v without", with, without)
	require.LessOrEqual(t, with-without, float64(maxAllocs))
}

func BenchmarkInvocation(b *testing.B) {
	for name, with := range map[string]bool{"metrics": true, "none": false} {
		b.Run(name, func(b *testing.B) {
			invoke := invocations(b, with)
			b.ReportAllocs()
			for b.Loop() {
				invoke()
			}
		})
	}
}
