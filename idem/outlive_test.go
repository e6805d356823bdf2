package idem_test

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// A goroutine that outlives its handler asks what it likes of the context while the commit
// finds another record, or undoes: nothing is read while it is written.
func TestAGoroutineThatOutlivesItsHandlerRacesWithNothing(t *testing.T) {
	for name, ask := range map[string]func(context.Context){
		"reference": func(ctx context.Context) { _ = idem.SetReference(ctx, "pay_1") },
		"info":      func(ctx context.Context) { _, _ = idem.InfoOf(ctx) },
		"token":     func(ctx context.Context) { _ = idem.Token(ctx) },
		"abort":     func(ctx context.Context) { _ = idem.Abort(ctx, errPlain) },
		"step": func(ctx context.Context) {
			_, _ = idem.Step(ctx, "late", func(context.Context) (int, error) { return 1, nil }, nil)
		},
	} {
		for _, op := range []idem.Operation{atomically, safe} {
			t.Run(fmt.Sprint(name, "/", op.Mode), func(t *testing.T) {
				r, key := newBankRig(t), op.Key("t", "k")
				var all sync.WaitGroup
				var asked atomic.Int32
				var once sync.Once
				begin, over := make(chan struct{}), make(chan struct{})
				// Each call to the store waits until something was asked since what comes before it.
				beside := func(ctx context.Context, c *idemtest.Call) error {
					once.Do(func() { close(begin) })
					for n := asked.Load() + 2; asked.Load() < n; {
						runtime.Gosched()
					}
					return c.Do(ctx)
				}
				_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
					if op.Mode == idem.Atomic {
						released(t, r.elsewhere(t), safe.Key("t", "k"))
					} else {
						_, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { return 1, nil },
							&idem.StepConfig[int]{Compensate: func(context.Context, int) error { return nil }})
						require.NoError(t, err)
					}
					r.faults.Always(beside, idemtest.Finish, idemtest.RecordStep)
					all.Go(func() {
						<-begin
						for {
							select {
							case <-over:
								return
							default:
								ask(ctx)
								asked.Add(1)
							}
						}
					})
					return pay(effect{n: 1, refuse: idem.Permanent(errPlain)}, nil)(ctx, n)
				})
				close(over)
				all.Wait()
				require.ErrorIs(t, err, errPlain)
				require.Equal(t, idem.Failed, r.state(t, key))
			})
		}
	}
}

// A reference that waits for another one when its handler returns is not said any more: the
// attempt's end does not wait for it.
func TestAReferenceThatComesAfterTheHandlerIsRefused(t *testing.T) {
	r, key := newRig(t, nil), safe.Key("t", "k")
	inside, goOn := make(chan struct{}), make(chan struct{})
	r.faults.Next(idemtest.RecordReference, func(ctx context.Context, c *idemtest.Call) error {
		close(inside)
		<-goOn
		return c.Do(ctx)
	})
	var all sync.WaitGroup
	var late error
	_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
		all.Go(func() { _ = idem.SetReference(ctx, "pay_1") })
		<-inside
		all.Go(func() { late = idem.SetReference(ctx, "pay_2") })
		for stacks := make([]byte, 1<<20); ; runtime.Gosched() {
			for _, g := range bytes.Split(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
				if bytes.Contains(g, []byte("[sync.Mutex.Lock")) && bytes.Contains(g, []byte("idem.SetReference(")) {
					return n, nil // it waits
				}
			}
		}
	})
	require.NoError(t, err)
	close(goOn)
	all.Wait()
	var mistake *idem.ConfigError
	require.ErrorAs(t, late, &mistake)
	require.Equal(t, "pay_1", r.record(t, key).Ref)
	require.Equal(t, 1, r.count(idemtest.RecordReference))
}
