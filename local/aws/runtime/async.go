package runtime

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// MaxAsyncEventBytes is Lambda's limit on the event of an asynchronous
// invocation.
const MaxAsyncEventBytes = 1 << 20

// asyncDelays are Lambda's waits before the first and the second retry.
var asyncDelays = []time.Duration{time.Minute, 2 * time.Minute}

// AsyncOptions of an asynchronous invocation; nil means the defaults.
type AsyncOptions struct {
	// RequestID is Lambda's request id, the same for every attempt. Default: a
	// random UUID.
	RequestID string
	// TenantID is the tenant of a function with tenant isolation.
	TenantID string
	// Delays are the waits before the retries, one each. Default: 1 and 2 minutes,
	// as in Lambda. Empty but not nil: no retry.
	Delays []time.Duration
}

// InvokeAsync runs the function as Lambda runs an asynchronous invocation: if it fails in
// any way (error, panic, exit, time-out), the same event is run again under the same request
// id, twice by default. It waits for a free instance each time. It returns the results of
// all attempts; the last one counts. If an attempt could not be made, the error says why,
// and the results are those of the attempts before it.
//
// Unlike Lambda it returns after the last attempt, has no queue and no destinations, and
// does not deliver an event twice by accident: a caller starts a goroutine and examines the
// last result.
//
// Source: AWS Lambda developer guide, "How Lambda handles errors and retries with
// asynchronous invocation".
func (p *Pool) InvokeAsync(ctx context.Context, payload []byte, options *AsyncOptions) ([]Result, error) {
	options = cmp.Or(options, &AsyncOptions{})
	delays := options.Delays
	if delays == nil {
		delays = asyncDelays
	}
	if len(payload) > MaxAsyncEventBytes {
		return nil, fmt.Errorf("runtime: the event has %d bytes, Lambda takes at most %d asynchronously", len(payload),
			MaxAsyncEventBytes)
	}
	invoke := InvokeOptions{RequestID: cmp.Or(options.RequestID, randomUUID()), TenantID: options.TenantID}
	var results []Result
	for retry := 0; ; retry++ {
		result, err := p.Invoke(ctx, payload, &invoke)
		if err != nil {
			return results, err
		}
		results = append(results, result)
		if result.Error == nil || retry == len(delays) {
			return results, nil
		}
		select {
		case <-time.After(delays[retry]):
		case <-ctx.Done():
			return results, ctx.Err()
		case <-p.closing:
			return results, ErrClosed
		}
	}
}
