package queuepoller

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestBatchesAreWhatAReceiveReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(standardARN)
		q.send(messages(25)...)
		w := open(t, q, "url", answers("null"), Options{})
		synctest.Wait()
		sizes := map[int]int{}
		for _, d := range w.deliveries() {
			sizes[len(d.Messages)]++
			require.Nil(t, d.Reason)
		}
		require.Equal(t, map[int]int{10: 2, 5: 1}, sizes)
		require.Len(t, q.removed(), 25)
	})
}

func TestPollsThatFailAreRepeatedWithPauses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newFakeQueue(standardARN)
		start := time.Now()
		var mu sync.Mutex
		at := map[time.Duration]int{}
		q.receives = func(n int) error {
			mu.Lock()
			defer mu.Unlock()
			if n > 8 {
				return nil
			}
			at[time.Since(start)]++
			return errors.New("connection refused")
		}
		w := open(t, q, "url", answers("null"), Options{MaxConcurrency: 2})
		time.Sleep(time.Minute)
		mu.Lock()
		require.Equal(t, map[time.Duration]int{0: 2, time.Second: 2, 3 * time.Second: 2, 7 * time.Second: 2}, at)
		mu.Unlock()
		require.Len(t, w.trouble(), 8)
		require.Contains(t, w.trouble()[0], "again in 1s: connection refused")
		q.send(message("later"))
		synctest.Wait()
		require.Equal(t, []string{"later"}, q.removed())
	})
}

func TestDeletionsThatFailAreReported(t *testing.T) {
	for name, c := range map[string]struct {
		refused []types.BatchResultErrorEntry
		err     error
		removed []string
		trouble string
	}{
		"one entry": {refused: []types.BatchResultErrorEntry{{Id: aws.String("1"), Code: aws.String("InternalError"),
			Message: aws.String("try again")}}, removed: []string{"0", "2"},
			trouble: "message id-1 from url: InternalError: try again"},
		"the call": {err: errors.New("reset"), trouble: "reset"},
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newFakeQueue(standardARN)
			q.refused, q.failure = c.refused, c.err
			q.send(messages(3)...)
			w := open(t, q, "url", answers("null"), Options{})
			synctest.Wait()
			require.Equal(t, c.removed, q.removed())
			require.Len(t, w.trouble(), 1)
			require.Contains(t, w.trouble()[0], c.trouble)
		})
	}
}

func TestCloseWaitsForWhatWasReceived(t *testing.T) {
	for name, end := range map[string]func(p *Poller, cancel context.CancelFunc){
		"close":   func(p *Poller, _ context.CancelFunc) { p.Close() },
		"context": func(p *Poller, cancel context.CancelFunc) { cancel(); p.Close() },
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newFakeQueue(standardARN)
			q.send(messages(12)...)
			f := answers("null", func() { time.Sleep(5 * time.Second) })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			p, err := Start(ctx, q, "url", f, nil)
			require.NoError(t, err)
			synctest.Wait()
			began := time.Now()
			end(p, cancel)
			require.Equal(t, 5*time.Second, time.Since(began), "the long polls are broken off, the function is not")
			require.Len(t, q.removed(), 12)
			q.send(message("late"))
			time.Sleep(time.Minute)
			require.NotContains(t, q.removed(), "late")
		})
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	for _, most := range []int{2, 3, 50} {
		synctest.Test(t, func(t *testing.T) {
			q := newFakeQueue(standardARN)
			q.send(messages(100)...)
			var mu sync.Mutex
			running, peak := 0, 0
			f := answers("null", func() {
				mu.Lock()
				running++
				peak = max(peak, running)
				mu.Unlock()
				time.Sleep(time.Second)
				mu.Lock()
				defer mu.Unlock()
				running--
			})
			open(t, q, "url", f, Options{BatchSize: 1, MaxConcurrency: most})
			time.Sleep(time.Minute)
			mu.Lock()
			defer mu.Unlock()
			require.Equal(t, most, peak)
			require.Len(t, q.removed(), 100)
		})
	}
}

func TestWhatIsRedelivered(t *testing.T) {
	fails := runtime.Result{Error: &runtime.FunctionError{Message: "no"}}
	const second = `{"batchItemFailures":[{"itemIdentifier":"id-1"}]}`
	for name, c := range map[string]struct {
		function function
		removed  []string
		reason   string
		o        Options
	}{
		"it cannot be invoked": {func() (runtime.Result, error) { return runtime.Result{}, runtime.ErrClosed }, nil,
			"the pool is closed", Options{}},
		"it fails":                    {func() (runtime.Result, error) { return fails, nil }, nil, "no", Options{}},
		"it succeeds":                 {answers("null"), []string{"0", "1", "2"}, "", Options{}},
		"it names one":                {answers(second), []string{"0", "2"}, "reported", Options{}},
		"it names one of whole batch": {answers(second), []string{"0", "1", "2"}, "", Options{WholeBatch: true}},
		"it answers nonsense":         {answers("[]"), nil, "not a batch response", Options{}},
	} {
		inBubble(t, name, func(t *testing.T) {
			q := newFakeQueue(standardARN)
			q.send(messages(3)...)
			w := open(t, q, "url", c.function, c.o)
			synctest.Wait()
			require.Equal(t, c.removed, q.removed())
			d := w.deliveries()
			require.Len(t, d, 1)
			require.Len(t, d[0].Returned, 3-len(c.removed))
			if c.reason == "" {
				require.NoError(t, d[0].Reason)
			} else {
				require.ErrorContains(t, d[0].Reason, c.reason)
			}
		})
	}
}

// Start refuses what Lambda refuses, and what is no queue.
func TestWhatStartRefuses(t *testing.T) {
	good, hidden := newFakeQueue(standardARN), newFakeQueue(standardARN)
	hidden.attributes["VisibilityTimeout"] = ""
	for want, c := range map[string]struct {
		client  Client
		url     string
		options Options
	}{
		"BatchSize -1 is not in [1, 10]":            {good, "url", Options{BatchSize: -1}},
		"not imitated":                              {good, "url", Options{BatchSize: 11}},
		"MaxConcurrency 1 is not in [2, 1000]":      {good, "url", Options{MaxConcurrency: 1}},
		"MaxConcurrency 1001":                       {good, "url", Options{MaxConcurrency: 1001}},
		"is negative":                               {good, "url", Options{FunctionTimeout: -1}},
		"is less than the function's time-out, 31s": {good, "url", Options{FunctionTimeout: 31 * time.Second}},
		"http://q: QueueDoesNotExist":               {noQueue{}, "http://q", Options{}},
		`ARN "what"`:                                {newFakeQueue("what"), "url", Options{}},
		"visibility time-out":                       {hidden, "url", Options{}},
		"required":                                  {good, "", Options{}},
	} {
		_, err := Start(t.Context(), c.client, c.url, answers("null"), &c.options)
		require.ErrorContains(t, err, want)
	}
}

func TestOptionsThatLambdaTakes(t *testing.T) {
	for _, o := range []*Options{
		nil, {BatchSize: 1, MaxConcurrency: 2},
		{BatchSize: 10, MaxConcurrency: 1000, FunctionTimeout: 30 * time.Second},
	} {
		p, err := Start(t.Context(), newFakeQueue(standardARN), "url", answers("null"), o)
		require.NoError(t, err)
		p.Close()
		p.Close()
	}
}

type noQueue struct{ Client }

func (noQueue) GetQueueAttributes(context.Context, *sqs.GetQueueAttributesInput,
	...func(*sqs.Options)) (*sqs.GetQueueAttributesOutput, error) {
	return nil, errors.New("QueueDoesNotExist")
}
