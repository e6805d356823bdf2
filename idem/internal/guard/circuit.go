package guard

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// circuitFailures is how many calls in a row must find the store down to open the circuit.
	circuitFailures = 5
	// circuitPause is how long no further claim or read is sent while the circuit is open.
	circuitPause = time.Second
	// circuitMemory is how long a failure counts: what a process that was frozen, or idle, has
	// found before says nothing.
	circuitMemory = 10 * time.Second
	// leastPatience is the time with which a call that gets no answer says something of the
	// store: a new connection takes a part of it.
	leastPatience = 100 * time.Millisecond
)

// circuit keeps claims and reads from a store that is down. It opens when some calls in a row have
// found the store down. Then one claim or read a second is sent, and the first answer to any call
// closes it. Writes of what has run always pass, and so do reads marked by [protocol.WithoutRetryQuota].
//
// It is our own because of the clock: a pause is over when either clock says so. Libraries go by
// the one that time.Time compares. A closed circuit costs one atomic load.
type circuit struct {
	protocol.Store
	tell   Tell
	failed atomic.Int32 // calls in a row, until it is open

	mu     sync.Mutex
	latest Instant // of the failures
	err    error   // of the latest one
	asked  Instant // when the latest call was let through
}

// Circuit keeps claims and reads from the store while it is down.
func Circuit(s protocol.Store, tell Tell) protocol.Store { return &circuit{Store: s, tell: tell} }

// pass returns an error if the call may not be sent.
func (c *circuit) pass(op string) error {
	if !c.open() {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	now := RightNow()
	ago := now.Since(c.latest)
	if !c.open() || ago >= circuitMemory {
		return nil
	}
	if min(ago, now.Since(c.asked)) >= circuitPause {
		c.asked = now
		return nil
	}
	return &protocol.StoreError{Op: op, Down: true, Err: fmt.Errorf(
		"not sent: %d calls in a row or more have found the store down, the last one %v ago; one a second is sent: %s",
		circuitFailures, max(ago, 0).Round(time.Millisecond), c.err.Error())} // as a text: it says nothing of this call
}

func (c *circuit) open() bool { return c.failed.Load() >= circuitFailures }

// hear notes what the store said to a call of the record that began at the time. It returns err.
func (c *circuit) hear(ctx context.Context, id string, began time.Time, err error) error {
	failed, down := errors.AsType[*protocol.StoreError](err)
	switch {
	case !down && err != nil && !protocol.Answers(err), down && (!failed.Down || failed.Throttled):
		// It may never have been asked, or can be reached: what it cannot take is bounded by its
		// quota of retries.
	case down && timedOut(err) && (errors.Is(ctx.Err(), context.Canceled) || patience(ctx, began) < leastPatience):
		// The caller has left, or there was no time to ask.
	case down:
		if c.failure(err) {
			c.tell(ctx, notice.CircuitOpened, id, notice.Notice{Err: err})
		}
	case c.failed.Load() > 0 && c.failed.Swap(0) >= circuitFailures:
		c.tell(ctx, notice.CircuitClosed, id, notice.Notice{})
	}
	return err
}

// patience is how long a call could wait for its answer.
func patience(ctx context.Context, began time.Time) time.Duration {
	if end, ok := ctx.Deadline(); ok {
		return end.Sub(began)
	}
	return leastPatience
}

func timedOut(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// failure notes that a call has found the store down. It reports whether that opens the circuit.
func (c *circuit) failure(err error) (opened bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := RightNow()
	if c.failed.Load() > 0 && now.Since(c.latest) >= circuitMemory {
		c.failed.Store(0)
	}
	c.latest, c.err = now, err
	return c.failed.Add(1) == circuitFailures
}

func (c *circuit) Acquire(ctx context.Context, now time.Time, w protocol.Claim) error {
	if err := c.pass("Acquire"); err != nil {
		return err
	}
	return c.hear(ctx, w.Record.ID, time.Now(), c.Store.Acquire(ctx, now, w))
}

func (c *circuit) Get(ctx context.Context, id string) (*protocol.Record, error) {
	if !protocol.IgnoresRetryQuota(ctx) {
		if err := c.pass("Get"); err != nil {
			return nil, err
		}
	}
	began := time.Now()
	rec, err := c.Store.Get(ctx, id)
	return rec, c.hear(ctx, id, began, err)
}

func (c *circuit) Withdraw(ctx context.Context, now time.Time, w protocol.Withdrawal) error {
	return c.hear(ctx, w.Claim.Record.ID, time.Now(), c.Store.Withdraw(ctx, now, w))
}

func (c *circuit) Extend(ctx context.Context, now time.Time, e protocol.Extension) error {
	return c.hear(ctx, e.ID, time.Now(), c.Store.Extend(ctx, now, e))
}

func (c *circuit) RecordStep(ctx context.Context, now time.Time, s protocol.StepWrite) error {
	return c.hear(ctx, s.ID, time.Now(), c.Store.RecordStep(ctx, now, s))
}

func (c *circuit) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	return c.hear(ctx, f.ID, time.Now(), c.Store.Finish(ctx, now, f))
}

func (c *circuit) RecordReference(ctx context.Context, now time.Time, r protocol.ReferenceWrite) error {
	return c.hear(ctx, r.ID, time.Now(), c.Store.RecordReference(ctx, now, r))
}

func (c *circuit) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	return c.hear(ctx, s.ID, time.Now(), c.Store.Settle(ctx, now, s))
}

func (c *circuit) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	if rec.Body.Parts == 0 {
		return c.Store.Result(ctx, rec) // nothing is sent for it
	}
	began := time.Now()
	body, err := c.Store.Result(ctx, rec)
	return body, c.hear(ctx, rec.ID, began, err)
}

func (c *circuit) StepResult(ctx context.Context, rec *protocol.Record, name string) ([]byte, error) {
	if rec.Steps[name].Body.Parts == 0 {
		return c.Store.StepResult(ctx, rec, name)
	}
	began := time.Now()
	body, err := c.Store.StepResult(ctx, rec, name)
	return body, c.hear(ctx, rec.ID, began, err)
}
