package queuepoller

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestConcurrencyIsBounded(t *testing.T) {
	for _, most := range []int{2, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(standardARN)
			q.send(messages(100)...)
			var mu sync.Mutex
			running, peak := 0, 0
			f := functionFunc(func(fakeEvent) (string, error) {
				mu.Lock()
				running++
				peak = max(peak, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				running--
				return "null", nil
			})
			open(t, q, f, Options{BatchSize: 1, MaxConcurrency: most})
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, most, peak)
			require.Len(t, q.gone(), 100)
		})
	}
}

func TestErrorsSlowDownAndSuccessesSpeedUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(standardARN)
		q.send(messages(2000)...)
		var mu sync.Mutex
		failing, began := true, []time.Duration(nil)
		start := time.Now()
		f := functionFunc(func(fakeEvent) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			began = append(began, time.Since(start))
			if failing {
				return "", errors.New("down")
			}
			return "null", nil
		})
		p := open(t, q, f, Options{BatchSize: 1, MaxConcurrency: 2})
		time.Sleep(31 * time.Second)
		mu.Lock()
		failing = false
		seen := len(began)
		require.Less(t, seen, 15, "a broken function is not fed the whole queue")
		gaps := map[time.Duration]bool{}
		for i := 1; i < seen; i++ {
			gaps[began[i]-began[i-1]] = true
		}
		mu.Unlock()
		for _, pause := range []time.Duration{100, 200, 400, 800, 1600, 3200, 5000} {
			require.True(t, gaps[pause*time.Millisecond], "a pause of %v ms", int64(pause))
		}
		time.Sleep(6 * time.Second)
		synctest.Wait()
		require.Len(t, q.gone(), 2000-seen)
		p.limit.mu.Lock()
		defer p.limit.mu.Unlock()
		require.Equal(t, 2, p.limit.allowed)
		require.Zero(t, p.limit.pause)
	})
}

// The guide: with ReportBatchItemFailures failing invocations do not scale the
// polling down.
func TestErrorsDoNotSlowDownWithReports(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, w := newFakeQueue(standardARN), &watch{}
		q.send(messages(500)...)
		f := functionFunc(func(fakeEvent) (string, error) { return "", errors.New("down") })
		open(t, q, f, Options{BatchSize: 1, ReportBatchItemFailures: true, Observer: w.observer()})
		synctest.Wait()
		require.Len(t, w.deliveries(), 500, "at once")
		require.Empty(t, q.gone())
	})
}

type closedFunction struct{}

func (closedFunction) Invoke(context.Context, []byte, *runtime.InvokeOptions) (runtime.Result, error) {
	return runtime.Result{}, runtime.ErrClosed
}

func TestFunctionThatCannotBeInvoked(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q, w := newFakeQueue(standardARN), &watch{}
		q.send(messages(100)...)
		open(t, q, closedFunction{}, Options{BatchSize: 1, MaxConcurrency: 2, ReportBatchItemFailures: true, Observer: w.observer()})
		synctest.Wait()
		require.Empty(t, q.gone())
		d := w.deliveries()
		require.Less(t, len(d), 5, "that slows down with reports, too")
		require.ErrorIs(t, d[0].Err, runtime.ErrClosed)
		require.ErrorIs(t, d[0].Reason, runtime.ErrClosed)
		require.Len(t, d[0].Returned, 1)
	})
}
