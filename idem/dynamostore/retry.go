package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// leastAttempt is the least time that a try gets. With less, most tries would end
	// without an answer.
	leastAttempt = 50 * time.Millisecond
	// firstBackoff is the longest first pause, maxBackoff the longest of all.
	firstBackoff = 25 * time.Millisecond
	maxBackoff   = time.Second
)

// What a retry takes out of the quota, and what a call that needed none puts into it: under
// a load that lasts there are a fifth more requests than calls. The first is the SDK's
// (retry.DefaultRetryCost), and so is the second (retry.DefaultNoRetryIncrement).
const (
	retryCost = 5
	noRetry   = 1
)

// retrier is the time that calls get, the table they are for, and the quota of retries
// that claims and reads share; nil means none.
type retrier struct {
	attempt, budget time.Duration
	table           string
	quota           *ratelimit.TokenRateLimit
}

// call is one call of a store's method, over all its tries and requests.
type call struct {
	*retrier
	ctx    context.Context
	cancel context.CancelFunc
	op     string
	// maybe is set once a write was sent that got no definite answer, down once a try
	// found DynamoDB down, and up once one was answered or could not be sent.
	maybe, down, up bool
	// throttled is set once a try was answered with too many requests.
	throttled bool
	// sparing is set if retries come out of the quota.
	sparing bool
}

// begin gives the call a deadline if it has none.
func (r *retrier) begin(ctx context.Context, op string) *call {
	c := &call{retrier: r, ctx: ctx, op: op}
	if _, ok := ctx.Deadline(); !ok {
		c.ctx, c.cancel = context.WithTimeout(ctx, r.budget)
	}
	return c
}

// beginSparing begins a call whose retries come out of the quota where DynamoDB is down: a claim
// or a read. Without them it fails closed, and nothing has run. Writes of what has run, or of what may have
// landed, are repeated while they have time: no other process knows what is in them.
func (r *retrier) beginSparing(ctx context.Context, op string) *call {
	c := r.begin(ctx, op)
	c.sparing = r.quota != nil
	return c
}

// retry takes a retry out of the quota, to be put back if it succeeds. It returns false if
// none is left.
func (c *call) retry() (putBack func() error, ok bool) {
	if !c.sparing || protocol.IgnoresRetryQuota(c.ctx) {
		return nil, true
	}
	putBack, err := c.quota.GetToken(context.WithoutCancel(c.ctx), retryCost)
	return putBack, err == nil
}

// succeeded puts into the quota what an answer is worth.
func (c *call) succeeded(putBack func() error) {
	c.up = true
	switch {
	case putBack != nil:
		_ = putBack() // never fails
	case c.sparing:
		_ = c.quota.AddTokens(noRetry) // never fails
	}
}

// share is the call with a part of its time, to be ended by its cancel function.
func (c *call) share(part float64) (*call, context.CancelFunc) {
	own := *c
	deadline, _ := c.ctx.Deadline()
	var cancel context.CancelFunc
	own.ctx, cancel = context.WithTimeout(c.ctx, time.Duration(part*float64(time.Until(deadline))))
	return &own, cancel
}

func (c *call) end() {
	if c.cancel != nil {
		c.cancel()
	}
}

// do sends a request until it gets a definite answer or the call's time is up.
// It returns nil, the *types.ConditionalCheckFailedException itself, or a
// *idem.StoreError. The call keeps whether a write may have been applied.
func (c *call) do(write bool, timeout time.Duration, send func(context.Context) error) error {
	return c.doSized(write, timeout, 0, send)
}

// doSized is do for a request of so many bytes: every try has time for them.
func (c *call) doSized(write bool, timeout time.Duration, size int, send func(context.Context) error) error {
	var last error
	var putBack func() error
	for n := 0; ; n++ {
		if err := c.ctx.Err(); err != nil {
			return c.gaveUp(n, err, last)
		}
		now := time.Now()
		ctx, cancel := context.WithDeadline(c.ctx, now.Add(c.slice(now, timeout, size)))
		t := &try{Context: ctx}
		err := send(t)
		cancel()
		if err == nil {
			c.succeeded(putBack)
			return nil
		}
		if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
			c.succeeded(putBack)
			return refused
		}
		if t.unsent() {
			err = &unsent{err}
		}
		v := judge(err)
		c.maybe = c.maybe || write && v.maybe
		c.down, c.up, c.throttled = c.down || v.down, c.up || !v.down, c.throttled || v.throttled
		if !v.again {
			return c.fail(advise(c.table, err))
		}
		last = err
		if v.down {
			var may bool
			if putBack, may = c.retry(); !may {
				return c.gaveUp(n+1, errNoRetries, last)
			}
		}
		if !c.pause(n) {
			if putBack != nil {
				_ = putBack() // never fails
			}
			return c.gaveUp(n+1, c.ctx.Err(), last)
		}
	}
}

// slice is the time for one try: what its bytes need, a second for each MiB, and no
// more than half of what is left besides, so that a try that hangs leaves time for
// another one.
func (c *call) slice(now time.Time, timeout time.Duration, size int) time.Duration {
	deadline, _ := c.ctx.Deadline()
	bytes := time.Duration(size) * time.Second >> 20
	return bytes + max(min(timeout, (deadline.Sub(now)-bytes)/2), leastAttempt)
}

// pause waits before the next try, a random time from a range that doubles, so
// that callers who failed together do not try again together. It returns false
// if no time for a try is left.
func (c *call) pause(n int) bool {
	longest := maxBackoff
	if n < 6 {
		longest = min(longest, firstBackoff<<n)
	}
	deadline, _ := c.ctx.Deadline()
	left := time.Until(deadline) - leastAttempt
	if left <= 0 {
		return false
	}
	// A pause never costs the last try: what is over may be over just now.
	t := time.NewTimer(min(rand.N(longest), left))
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-c.ctx.Done():
		return false
	}
}

// errNoRetries says why a call has not tried again although it had time.
var errNoRetries = errors.New("no retry is left for claims and reads, since many have failed")

func (c *call) fail(err error) error {
	return &protocol.StoreError{Op: c.op, Ambiguous: c.maybe, Down: c.down && !c.up,
		Throttled: c.throttled && !c.up, Err: err}
}

func (c *call) gaveUp(tries int, ended, last error) error {
	if _, early := errors.AsType[*unsent](last); early {
		last = advise(c.table, last)
	}
	switch {
	case last == nil:
		return c.fail(ended)
	case ended == nil:
		return c.fail(fmt.Errorf("no time left after %d tries: %w", tries, last))
	}
	return c.fail(fmt.Errorf("%w after %d tries: %w", ended, tries, last))
}

// try is the context of one try, which knows how far the SDK came with it: whether
// a failure may have left something behind does not follow from the error, since
// credentials are fetched over the network too.
type try struct {
	context.Context
	begun, sent atomic.Bool
}

type tryKey struct{}

func (t *try) Value(key any) any {
	if key == (tryKey{}) {
		return t
	}
	return t.Context.Value(key)
}

// unsent reports whether the SDK is known to have sent nothing. With a client that
// is not the SDK's that is never known.
func (t *try) unsent() bool { return t.begun.Load() && !t.sent.Load() }

// unsent is why a request could not be sent: it was refused before, or there were no
// credentials or no endpoint for it.
type unsent struct{ error }

func (e *unsent) Unwrap() error { return e.error }

// observe makes the SDK tell each try how far it comes.
func observe(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
		if err := s.Initialize.Add(tryBegun, middleware.Before); err != nil {
			return err
		}
		return s.Deserialize.Add(trySent, middleware.After) // the last before the wire
	})
}

var (
	tryBegun = middleware.InitializeMiddlewareFunc("IdemTryBegun",
		func(ctx context.Context, in middleware.InitializeInput,
			next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
			if t, ok := ctx.Value(tryKey{}).(*try); ok {
				t.begun.Store(true)
			}
			return next.HandleInitialize(ctx, in)
		})
	trySent = middleware.DeserializeMiddlewareFunc("IdemTrySent",
		func(ctx context.Context, in middleware.DeserializeInput,
			next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			if t, ok := ctx.Value(tryKey{}).(*try); ok {
				t.sent.Store(true)
			}
			return next.HandleDeserialize(ctx, in)
		})
)
