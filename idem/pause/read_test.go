package pause_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/pause"
	"github.com/idem-go/idempotency/idem/protocol"
)

type readFault = func(context.Context, func(context.Context) (protocol.Paused, error)) (protocol.Paused, error)

func failing(err error) readFault {
	return func(context.Context, func(context.Context) (protocol.Paused, error)) (protocol.Paused, error) {
		return protocol.Paused{}, err
	}
}

func slow(d time.Duration) readFault {
	return func(ctx context.Context, read func(context.Context) (protocol.Paused, error)) (protocol.Paused, error) {
		select {
		case <-time.After(d):
			return read(ctx)
		case <-ctx.Done():
			return hanging(ctx, nil)
		}
	}
}

func hanging(ctx context.Context, _ func(context.Context) (protocol.Paused, error)) (protocol.Paused, error) {
	<-ctx.Done()
	return protocol.Paused{}, &protocol.StoreError{Op: "ReadPaused", Down: true, Err: ctx.Err()}
}

var (
	down   = failing(&protocol.StoreError{Op: "ReadPaused", Down: true, Err: errPlain})
	denied = failing(&protocol.StoreError{Op: "ReadPaused", Err: errPlain})
	// The item is throttled, and the table may work.
	throttled = failing(&protocol.StoreError{Op: "ReadPaused", Down: true, Throttled: true, Err: errPlain})
	foul      = failing(errPlain)
)

// While it cannot be read what is paused, nothing executes and replays go on. It is asked once a second.
func TestNothingExecutesWhileItIsNotKnownWhatIsPaused(t *testing.T) {
	for name, fault := range map[string]readFault{"down": down, "denied": denied, "hanging": hanging, "foul": foul} {
		for _, op := range []idem.Operation{export, move, charge} {
			t.Run(name, func(t *testing.T) {
				test(t, func(t *testing.T, r *rig) {
					r.runs(op, "acme", "done")
					time.Sleep(pause.Within)
					r.fault, r.reads = fault, 0
					r.took()
					for n := range 20 {
						ran, err := r.do(op, "acme", fmt.Sprint(n), nil)
						require.False(t, ran)
						require.ErrorIs(t, err, idem.ErrStoreUnavailable)
						require.ErrorContains(t, err, "ReadPaused")
						require.Equal(t, []notice.Kind{notice.StoreUnavailable}, r.took())
						r.replays(t, op, "acme", "done")
						r.took()
						time.Sleep(100 * time.Millisecond)
					}
					require.LessOrEqual(t, r.reads, 3)
					require.GreaterOrEqual(t, r.reads, 2)
					r.fault = nil
					time.Sleep(time.Second)
					r.runs(op, "acme", "new")
				})
			})
		}
	}
}

// What was paused stays so while it cannot be read again, also where an operation fails open. That runs if
// the store is down and it is not known to be paused, as it declares.
func TestAnOperationThatFailsOpenDoesNotRunInAPause(t *testing.T) {
	for name, fault := range map[string]readFault{"down": down, "hanging": hanging} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T, r *rig) {
				r.pause("export", "acme")
				r.isPaused(mail, "acme", "a")
				r.fault = fault
				r.faults.Always(idemtest.Refuse)
				for n := range 10 {
					time.Sleep(time.Duration(n) * pause.Within / 3)
					ran, err := r.do(mail, "acme", fmt.Sprint(n), nil)
					require.False(t, ran)
					require.Error(t, err)
					r.runs(mail, "globex", fmt.Sprint(n))
					r.refused(t, export, "globex", fmt.Sprint(n), idem.ErrStoreUnavailable)
				}
				// The store is back, and what is paused cannot be read by this process.
				r.fault = denied
				r.faults.Heal()
				time.Sleep(time.Minute)
				r.refused(t, mail, "globex", "new", idem.ErrStoreUnavailable)
			})
		})
	}
}

// An operation that fails open runs under its claim if only the read of what is paused finds the store down.
func TestWhatFailsOpenIsClaimedWhileItIsNotKnownWhatIsPaused(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		r.runs(mail, "acme", "0")
		for _, fault := range []readFault{down, hanging} {
			time.Sleep(24 * time.Hour)
			r.fault = fault
			r.took()
			r.runs(mail, "acme", fmt.Sprint(len(r.table.Records())))
			require.Equal(t, []notice.Kind{notice.Claimed, notice.Executed, notice.Completed}, r.took())
		}
		require.Len(t, r.table.Records(), 3)
	})
}

// A process that has never read what is paused executes nothing, whatever fails.
func TestAProcessThatKnowsNothingExecutesNothing(t *testing.T) {
	for _, fault := range []readFault{down, throttled, hanging, slow(650 * time.Millisecond)} {
		test(t, func(t *testing.T, r *rig) {
			r.pause("export", "")
			r.fault = fault
			for range 3 {
				r.refused(t, mail, "acme", "a", idem.ErrStoreUnavailable)
				time.Sleep(2 * time.Second)
			}
			r.fault = nil
			r.isPaused(mail, "acme", "a")
			r.fault = fault
			time.Sleep(time.Hour)
			r.isPaused(mail, "acme", "a")
		})
	}
}

// The first read of a process opens its connection, and gets almost all the time of a claim.
func TestAColdStartHasTimeToRead(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		r.pause("export", "")
		r.fault = slow(500 * time.Millisecond)
		r.isPaused(mail, "acme", "a")
		r.start(t, r.table, idem.Options{})
		r.fault = hanging
		r.refused(t, charge, "acme", "a", idem.ErrStoreUnavailable)
		time.Sleep(time.Second)
		r.fault = slow(500 * time.Millisecond)
		r.runs(charge, "acme", "a")
	})
}

// What is paused is known as of the beginning of the read: the table may have answered at once.
func TestASlowReadIsAsOldAsItsBeginning(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		r.fault = func(ctx context.Context, read func(context.Context) (protocol.Paused, error)) (protocol.Paused, error) {
			got, err := read(ctx)
			time.Sleep(300 * time.Millisecond)
			return got, err
		}
		began := time.Now()
		go func() {
			time.Sleep(time.Millisecond)
			r.pause("export", "")
		}()
		r.runs(export, "acme", "a")
		time.Sleep(time.Until(began.Add(pause.Within + time.Millisecond)))
		r.isPaused(export, "acme", "b")
	})
}

// While the store hangs, one call a second waits for it, and few do however long they may.
func TestFewCallsWaitForAStoreThatHangs(t *testing.T) {
	for _, budget := range []time.Duration{0, time.Second, 3 * time.Second, 5 * time.Second, 10 * time.Second} {
		testWith(t, idem.Options{ClaimBudget: budget}, func(t *testing.T, r *rig) {
			r.runs(charge, "acme", "a")
			time.Sleep(pause.Within)
			r.fault = hanging
			var waited atomic.Int32
			call := func(n int) {
				began := time.Now()
				r.refused(t, charge, "acme", fmt.Sprint(n), idem.ErrStoreUnavailable)
				if time.Since(began) > 0 {
					waited.Add(1)
				}
			}
			call(0)
			r.reads = 0
			var all sync.WaitGroup
			for n := range 3000 { // in 30 s
				time.Sleep(10 * time.Millisecond)
				all.Go(func() { call(n) })
			}
			all.Wait()
			if budget > 0 {
				require.Less(t, waited.Load(), int32(300), budget)
				return
			}
			require.InDelta(t, 30, waited.Load(), 2)
			require.InDelta(t, 30, r.reads, 2)

			// What failed long ago is no answer while it is tried again.
			time.Sleep(time.Minute)
			r.fault = slow(100 * time.Millisecond)
			for n := range 10 {
				all.Go(func() { r.runs(charge, "acme", fmt.Sprint("after ", n)) })
			}
			all.Wait()
		})
	}
}

// Calls at once make one read, for which the others wait as long as they may.
func TestCallsAtOnceMakeOneRead(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		r.fault = func(ctx context.Context, read func(context.Context) (protocol.Paused, error)) (protocol.Paused, error) {
			time.Sleep(100 * time.Millisecond)
			return read(ctx)
		}
		for range 3 {
			r.reads = 0
			var all sync.WaitGroup
			for n := range 50 {
				all.Go(func() { _, _ = r.do(export, "acme", fmt.Sprint(n), nil) })
			}
			all.Wait()
			require.Equal(t, 1, r.reads)
			time.Sleep(pause.Within)
		}
		require.Len(t, r.table.Records(), 50)
	})
}

// A caller who leaves, or comes with too little time, does not make others fail.
func TestACallWithoutTimeSaysNothingOfTheStore(t *testing.T) {
	for name, left := range map[string]time.Duration{"leaves": 0, "has little time": 300 * time.Millisecond,
		"has less than others": 1500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T, r *rig) {
				ctx, cancel := context.WithCancel(t.Context())
				if left > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), left)
				}
				defer cancel()
				r.fault = func(ctx context.Context, read func(context.Context) (protocol.Paused, error)) (protocol.Paused, error) {
					if left == 0 {
						cancel()
					}
					return hanging(ctx, read)
				}
				op := export
				op.MinTime = time.Millisecond
				_, err := idem.Do(ctx, r.engine, op.Key("acme", "a"), 1, nothing)
				require.Error(t, err)
				r.fault = slow(200 * time.Millisecond)
				r.runs(op, "acme", "a")
			})
		})
	}
}
