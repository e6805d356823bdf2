package pause_test

import (
	"context"
	"fmt"
	"sync"
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
)

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
