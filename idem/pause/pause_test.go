package pause_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/pause"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var (
	charge = idem.Operation{Name: "charge"}
	export = idem.Operation{Name: "export", Repeat: idem.Repeatable}
	move   = idem.Operation{Name: "export", Repeat: idem.Repeatable, Mode: idem.Atomic}
	mail   = idem.Operation{Name: "export", Repeat: idem.Repeatable, OnStoreFailure: idem.FailOpen}

	errPlain = errors.New("plain")
	why      = reconcile.Change{Actor: "alice", Reason: "the provider charges twice"}
)

func nothing(context.Context, int) (string, error) { return "", nil }

// rig is a table with an operator, and a process over it. It is in a synctest bubble.
type rig struct {
	*testing.T
	table   *memstore.Store
	records *reconcile.Reconciler
	process
}

// process is one that runs operations.
type process struct {
	engine *idem.Engine
	faults *idemtest.Faults
	mu     sync.Mutex
	kinds  []notice.Kind
	reads  int
	// fault is around the next reads of what is paused.
	fault func(ctx context.Context, read func(context.Context) (protocol.Paused, error)) (protocol.Paused, error)
	table *memstore.Store
}

func (p *process) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	p.mu.Lock()
	p.reads++
	fault := p.fault
	p.mu.Unlock()
	if fault != nil {
		return fault(ctx, p.table.ReadPaused)
	}
	return p.table.ReadPaused(ctx)
}

func (p *process) start(t *testing.T, table *memstore.Store, o idem.Options) {
	p.table, p.faults = table, idemtest.NewFaults(table)
	pauses, err := pause.New(p)
	require.NoError(t, err)
	o.Pauses = pauses
	o.Observer = func(_ context.Context, n notice.Notice) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.kinds = append(p.kinds, n.Kind)
	}
	p.engine, err = idem.New(p.faults, &o)
	require.NoError(t, err)
}

// do runs the operation in the process. It returns whether the handler ran.
func (p *process) do(op idem.Operation, tenant, value string, end error) (ran bool, err error) {
	_, err = idem.Do(context.Background(), p.engine, op.Key(tenant, value), 1, func(context.Context, int) (string, error) {
		ran = true
		return "done", end
	})
	return ran, err
}

// took are the kinds of notices since the last time.
func (p *process) took() []notice.Kind {
	p.mu.Lock()
	defer p.mu.Unlock()
	kinds := p.kinds
	p.kinds = nil
	return kinds
}

func test(t *testing.T, play func(t *testing.T, r *rig)) { testWith(t, idem.Options{}, play) }

func testWith(t *testing.T, o idem.Options, play func(t *testing.T, r *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		r := &rig{T: t, table: memstore.New()}
		var err error
		r.records, err = reconcile.New(r.table, nil)
		require.NoError(t, err)
		r.start(t, r.table, o)
		play(t, r)
	})
}

func (r *rig) pause(operation, tenant string) {
	r.Helper()
	require.NoError(r, r.records.Pause(r.Context(), operation, tenant, time.Time{}, why))
}

func (r *rig) runs(op idem.Operation, tenant, value string) {
	r.Helper()
	ran, err := r.do(op, tenant, value, nil)
	require.NoError(r, err)
	require.True(r, ran)
}

// refused requires that the call gets the error, and runs nothing.
func (p *process) refused(t *testing.T, op idem.Operation, tenant, value string, want error) {
	t.Helper()
	ran, err := p.do(op, tenant, value, nil)
	require.False(t, ran)
	require.ErrorIs(t, err, want)
}

// replays requires that the call is answered, and runs nothing.
func (p *process) replays(t *testing.T, op idem.Operation, tenant, value string) {
	p.refused(t, op, tenant, value, nil)
}

// starts starts another process.
func (r *rig) starts(o idem.Options) *process {
	p := new(process)
	p.start(r.T, r.table, o)
	return p
}

func (r *rig) isPaused(op idem.Operation, tenant, value string) *idem.PausedError {
	r.Helper()
	ran, err := r.do(op, tenant, value, nil)
	require.False(r, ran)
	require.ErrorIs(r, err, idem.ErrPaused)
	require.NotErrorIs(r, err, idem.ErrStoreUnavailable)
	paused, ok := errors.AsType[*idem.PausedError](err)
	require.True(r, ok)
	return paused
}

// Each process sees a pause within the time, and that it is over.
func TestAPauseIsSeenWithinItsTime(t *testing.T) {
	for name, op := range map[string]idem.Operation{
		"reserved": export, "atomic": move, "failing open": mail, "once": {Name: "export"},
	} {
		t.Run(name, func(t *testing.T) {
			test(t, func(t *testing.T, r *rig) {
				n := 0
				key := func() string { n++; return fmt.Sprint(n) }
				r.runs(op, "acme", key())
				r.pause("export", "")
				r.runs(op, "acme", key())
				require.Equal(t, 1, r.reads)
				time.Sleep(pause.Within)
				r.isPaused(op, "acme", key())
				r.isPaused(op, idem.SingleTenant, key())

				// A process that starts now begins nothing.
				r.starts(idem.Options{}).refused(t, op, "acme", key(), idem.ErrPaused)

				require.NoError(t, r.records.Resume(t.Context(), "export", "", why))
				r.isPaused(op, "acme", key())
				time.Sleep(pause.Within)
				r.runs(op, "acme", key())
				r.runs(op, "acme", "3") // which was paused
			})
		})
	}
}

// A pause that has an end ends by itself, also in a process that cannot read any more.
func TestAPauseEndsByItself(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		require.NoError(t, r.records.Pause(t.Context(), "export", "", time.Now().Add(time.Hour), why))
		for _, m := range []struct{ after, retry time.Duration }{{0, 5 * time.Minute}, {20 * time.Minute, 20 * time.Minute},
			{25 * time.Minute, 15 * time.Minute}, {15*time.Minute - time.Millisecond, time.Second}} {
			time.Sleep(m.after)
			require.Equal(t, m.retry, r.isPaused(export, "acme", "a").RetryAfter)
		}
		time.Sleep(time.Second)
		r.runs(export, "acme", "a")
	})
}

// A call that is paused twice waits for the pause that lasts for longer, whichever was made first.
func TestTheLongerOneOfTwoPausesCounts(t *testing.T) {
	for _, order := range [][]string{{"short", "long"}, {"long", "short"}} {
		test(t, func(t *testing.T, r *rig) {
			for _, name := range order {
				if name == "long" {
					r.pause("export", "")
					continue
				}
				require.NoError(t, r.records.Pause(t.Context(), "export", "acme", time.Now().Add(time.Minute), why))
			}
			require.Equal(t, 5*time.Minute, r.isPaused(export, "acme", "a").RetryAfter)
		})
	}
}

// A tenant's pause is no other's, and an operation's no other's.
func TestAPauseIsATenantsAndAnOperationsOwn(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		r.pause("export", "acme")
		r.pause("charge", "")
		r.isPaused(export, "acme", "a")
		for _, tenant := range []string{"globex", idem.SingleTenant, "acme2", "ACME"} {
			r.runs(export, tenant, "a")
			r.isPaused(charge, tenant, "a")
		}
		r.runs(idem.Operation{Name: "exports"}, "acme", "a")
		require.Equal(t, 1, r.reads, "one read for all")
		require.NoError(t, r.records.Resume(t.Context(), "export", "acme", why))
		time.Sleep(pause.Within)
		r.runs(export, "acme", "a")
		r.isPaused(charge, "acme", "a")
	})
}

// What is known of a key is answered as without a pause. What would execute does not, whatever the record is.
func TestWhatIsKnownIsAnswered(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		short := export
		short.Retention = time.Second
		r.runs(export, "acme", "done")
		r.runs(short, "acme", "expired")
		for _, c := range []struct {
			op    idem.Operation
			value string
			end   error
		}{{export, "failed", idem.Permanent(errPlain)}, {charge, "unknown", errPlain}, {export, "released", errPlain}} {
			_, err := r.do(c.op, "acme", c.value, c.end)
			require.ErrorIs(t, err, errPlain)
		}
		dead := r.starts(idem.Options{})
		defer func() { // its goroutine ends
			dead.faults.Heal()
			time.Sleep(time.Minute)
		}()
		for _, op := range []idem.Operation{export, charge} {
			dead.faults.Always(idemtest.LoseRequest, idemtest.Finish)
			_, err := dead.do(op, "acme", "lapsed", nil)
			require.NoError(t, err)
		}
		time.Sleep(time.Minute) // the leases are over
		live := r.starts(idem.Options{})
		end, ended := make(chan struct{}), make(chan error, 1)
		release := sync.OnceFunc(func() { close(end) })
		defer release()
		began := make(chan struct{})
		go func() {
			_, err := idem.Do(context.Background(), live.engine, export.Key("acme", "runs"), 1,
				func(context.Context, int) (string, error) { close(began); <-end; return "", nil })
			ended <- err
		}()
		<-began
		r.pause("export", "")
		r.pause("charge", "")
		time.Sleep(pause.Within)
		before := len(r.table.Records())
		for _, op := range []idem.Operation{export, move} {
			r.replays(t, op, "acme", "done")
			_, err := r.do(op, "acme", "failed", nil)
			require.ErrorContains(t, err, "plain")
			r.refused(t, op, "acme", "runs", idem.ErrInFlight)
			_, err = idem.Do(t.Context(), r.engine, op.Key("acme", "done"), 2, func(context.Context, int) (string, error) {
				t.Error("it runs")
				return "", nil
			})
			require.ErrorIs(t, err, idem.ErrKeyReused)
			for _, value := range []string{"new", "expired", "released", "lapsed"} {
				r.faults.Reset()
				r.isPaused(op, "acme", value)
				require.Equal(t, []idemtest.Method{idemtest.Get}, r.faults.Calls(), value)
			}
		}
		r.refused(t, charge, "acme", "unknown", idem.ErrOutcomeUnknown)
		r.refused(t, charge, "acme", "lapsed", idem.ErrOutcomeUnknown) // it is parked
		require.Len(t, r.table.Records(), before)
		release()
		require.NoError(t, <-ended, "what runs goes on to its end")
		r.replays(t, export, "acme", "runs")
	})
}

// A handler in atomic mode that has begun commits, also if its commit meets another record.
func TestACommitLandsInAPause(t *testing.T) {
	for _, meets := range []bool{false, true} {
		test(t, func(t *testing.T, r *rig) {
			_, err := idem.Do(t.Context(), r.engine, move.Key("acme", "a"), 1, func(context.Context, int) (string, error) {
				if meets {
					_, err := r.do(export, "acme", "a", errPlain)
					require.ErrorIs(t, err, errPlain)
				}
				r.pause("export", "")
				time.Sleep(2 * pause.Within)
				r.isPaused(export, "acme", "b")
				return "", nil
			})
			require.NoError(t, err)
			require.Len(t, r.table.Records(), 1)
		})
	}
}

// So does one that waits for another call's attempt before it commits.
func TestACommitThatWaitsLandsInAPause(t *testing.T) {
	testWith(t, idem.Options{Wait: time.Minute, FinishBudget: 2 * time.Minute}, func(t *testing.T, r *rig) {
		other := r.starts(idem.Options{})
		_, err := idem.Do(t.Context(), r.engine, move.Key("acme", "a"), 1, func(context.Context, int) (string, error) {
			go func() {
				_, _ = idem.Do(context.Background(), other.engine, export.Key("acme", "a"), 1,
					func(context.Context, int) (string, error) { time.Sleep(20 * time.Second); return "", errPlain })
			}()
			synctest.Wait()
			r.pause("export", "")
			time.Sleep(time.Second)
			return "", nil
		})
		require.NoError(t, err)
		require.Equal(t, idem.Completed, r.table.Records()[0].State)
		r.isPaused(export, "acme", "b")
	})
}

// A call that has waited for another one does not take over what that has left when the pause has begun meanwhile.
func TestAWaiterTakesOverNothingInAPause(t *testing.T) {
	testWith(t, idem.Options{Wait: time.Minute}, func(t *testing.T, r *rig) {
		end := make(chan struct{})
		go func() {
			_, _ = idem.Do(context.Background(), r.engine, export.Key("acme", "a"), 1,
				func(context.Context, int) (string, error) { <-end; return "", errPlain })
		}()
		synctest.Wait()
		other := r.starts(idem.Options{Wait: time.Minute})
		go func() {
			time.Sleep(time.Second)
			r.pause("export", "")
			time.Sleep(2 * pause.Within)
			close(end)
		}()
		other.refused(t, export, "acme", "a", idem.ErrPaused)
	})
}

// Nothing is accepted for later, and a worker begins nothing: what was accepted waits.
func TestAcceptedWorkWaits(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		accept := func(value string) (string, error) {
			key := export.Key("acme", value)
			_, err := later.Accept[string](t.Context(), r.engine, key, 1, func(context.Context, string) error { return nil })
			return key.ID(), err
		}
		ran := 0
		work := func(id string) error {
			_, err := later.Work(t.Context(), r.engine, export, id, func(context.Context, int) (string, error) {
				ran++
				return "", nil
			})
			return err
		}
		id, err := accept("a")
		require.NoError(t, err)
		r.pause("export", "")
		time.Sleep(pause.Within)
		_, err = accept("b")
		require.ErrorIs(t, err, idem.ErrPaused)
		_, err = accept("a")
		require.NoError(t, err, "the same answer as before")
		require.ErrorIs(t, work(id), idem.ErrPaused)
		require.Equal(t, idem.Pending, r.table.Records()[0].State)
		require.NoError(t, r.records.Resume(t.Context(), "export", "", why))
		time.Sleep(pause.Within)
		require.NoError(t, work(id))
		require.Equal(t, 1, ran)
	})
}

// A pause is no fault of the store: it has a notice of its own, and the circuit stays closed.
func TestAPauseIsNoFaultOfTheStore(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		r.pause("export", "")
		for range 10 {
			r.isPaused(export, "acme", "a")
			require.Equal(t, []notice.Kind{notice.Paused}, r.took())
		}
		r.runs(charge, "acme", "a")
	})
}

// In shadow the handler runs, and the pause is what the live mode would have answered.
func TestShadowReportsAPause(t *testing.T) {
	test(t, func(t *testing.T, r *rig) {
		r.pause("export", "")
		shadow := export
		shadow.Shadow = true
		r.runs(shadow, "acme", "a")
		require.Equal(t, []notice.Kind{notice.ShadowRefused}, r.took())
	})
}

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

// Without pauses an engine asks nothing.
func TestWithoutPausesNothingIsAsked(t *testing.T) {
	faults := idemtest.NewFaults(memstore.New())
	e, err := idem.New(faults, nil)
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), e, export.Key("acme", "a"), 1, nothing)
	require.NoError(t, err)
	require.Equal(t, []idemtest.Method{idemtest.Acquire, idemtest.Finish}, faults.Calls())
}

func TestMistakes(t *testing.T) {
	for _, store := range []pause.Store{nil, (*memstore.Store)(nil)} {
		_, err := pause.New(store)
		var mistake *idem.ConfigError
		require.ErrorAs(t, err, &mistake)
		require.ErrorContains(t, err, "the store is nil")
	}
	e, err := idem.New(memstore.New(), &idem.Options{Pauses: (*pause.Pauses)(nil)})
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), e, export.Key("acme", "a"), 1, func(context.Context, int) (string, error) {
		t.Error("it runs")
		return "", nil
	})
	require.ErrorContains(t, err, "Pauses is a nil pointer")
}

func TestMain(m *testing.M) {
	slog.SetDefault(slog.New(slog.DiscardHandler))
	os.Exit(m.Run())
}
