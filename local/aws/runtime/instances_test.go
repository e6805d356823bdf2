package runtime_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestKillInFlight(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute}, nil)
	caller := goInvoke(pool, `{"do":"hang","say":"payment 17"}`)
	flight := waitInFlight(t, pool, 1)[0]
	require.Contains(t, string(flight.Payload), "payment 17", "the tour finds the process by the event")

	require.NoError(t, pool.Kill(flight.PID))
	require.Empty(t, pool.PIDs(), "it has ended when Kill returns")
	result := <-caller
	require.NoError(t, result.err)
	require.Equal(t, flight.RequestID, result.RequestID)
	require.Equal(t, flight.PID, result.PID)
	require.True(t, result.Killed)
	require.Equal(t, runtime.TypeExit, result.Error.Type)
	require.Equal(t, "RequestId: "+flight.RequestID+" Error: Runtime exited with error: signal: killed",
		result.Error.Message)

	next := invoke(t, pool, `{"do":"who"}`)
	require.Nil(t, next.Error)
	require.True(t, next.ColdStart)

	require.ErrorContains(t, pool.Kill(flight.PID),
		fmt.Sprintf("no instance of fn with pid %d; there are [%d]", flight.PID, next.PID))
}

func TestKillWhileIdle(t *testing.T) {
	pool := start(t, runtime.Function{}, nil)
	for range 5 {
		idle := invoke(t, pool, `{"do":"who"}`)
		require.NoError(t, pool.Kill(idle.PID))
		next := invoke(t, pool, `{"do":"who"}`)
		require.Nil(t, next.Error, "an idle process that died is no failure")
		require.True(t, next.ColdStart)
		require.NoError(t, pool.Kill(next.PID))
	}
}

func TestCallerThatGoesAway(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute}, nil)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := pool.Invoke(ctx, []byte(`{"do":"hang"}`), nil)
		ended <- err
	}()
	flight := waitInFlight(t, pool, 1)[0]
	cancel()
	require.ErrorIs(t, <-ended, context.Canceled)
	require.Equal(t, flight.RequestID, waitInFlight(t, pool, 1)[0].RequestID, "the function runs on")
}

func TestOutputIsApartPerInstance(t *testing.T) {
	pool := start(t, runtime.Function{Name: "talker", MaxInstances: 2, Timeout: time.Minute}, nil)
	hanging := goInvoke(pool, `{"do":"hang"}`)
	other := waitInFlight(t, pool, 1)[0].PID
	pid := invoke(t, pool, `{"do":"say","say":"mine"}`).PID
	require.NotEqual(t, other, pid)
	pool.Close() // all of the output is read by then
	require.ElementsMatch(t, []string{"out mine", "err mine"}, said(t, pool, pid))
	require.Equal(t, []string{"hanging"}, said(t, pool, other))
	require.ErrorIs(t, (<-hanging).err, runtime.ErrClosed)
}

func TestClose(t *testing.T) {
	pool := start(t, runtime.Function{MaxInstances: 2, Timeout: time.Minute}, nil)
	running := goInvokes(pool, 5, `{"do":"hang"}`)
	busy := waitInFlight(t, pool, 2)
	pool.Close()
	for _, done := range running {
		require.ErrorIs(t, (<-done).err, runtime.ErrClosed, "in flight or waiting")
	}
	require.Empty(t, pool.PIDs())
	for _, flight := range busy {
		require.False(t, alive(flight.PID))
	}
	_, err := pool.Invoke(context.Background(), []byte(`{}`), nil)
	require.ErrorIs(t, err, runtime.ErrClosed)
	pool.Close()
}

func TestEndOfContextCloses(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	pool, err := runtime.Start(ctx, runtime.Function{Path: function(t)}, nil)
	require.NoError(t, err)
	pid := invoke(t, pool, `{"do":"who"}`).PID
	cancel()
	pool.Close() // waits for the closing that is under way
	require.False(t, alive(pid))
}

// Closing races with callers, starts and kills; nothing may be left, nor hang.
func TestCloseWhileBusy(t *testing.T) {
	for range 3 {
		pool := start(t, runtime.Function{MaxInstances: 3, Timeout: time.Minute}, nil)
		const callers = 8
		ends := make(chan error, callers)
		for range callers {
			go func() {
				for {
					if _, err := pool.Invoke(context.Background(), []byte(`{"do":"who"}`), nil); err != nil {
						ends <- err
						return
					}
				}
			}()
		}
		waitFor(t, func() bool { return len(pool.PIDs()) > 0 }, "a first instance")
		pool.Close()
		for range callers {
			require.ErrorIs(t, <-ends, runtime.ErrClosed)
		}
		require.Empty(t, pool.PIDs())
	}
}

func alive(pid int) bool { return !childtest.Ended(pid) }

func TestTimeoutKillsAStoppedProcess(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: 100 * time.Millisecond}, nil)
	pid := invoke(t, pool, `{"do":"who"}`).PID
	childtest.Stop(t, pid)
	result := invoke(t, pool, `{"do":"who"}`)
	require.Equal(t, runtime.TypeTimedOut, result.Error.Type)
	require.False(t, alive(pid))
}

// What the function has started goes with it.
func TestGrandchildrenGoToo(t *testing.T) {
	childtest.NeedProc(t)
	pool := start(t, runtime.Function{Timeout: time.Minute}, nil)
	pid := answer[int](t, invoke(t, pool, `{"do":"child"}`))
	require.True(t, alive(pid))
	pool.Close()
	waitFor(t, func() bool { return !alive(pid) }, "the function's own child ends")
}

func TestFreezeBetweenInvocations(t *testing.T) {
	childtest.NeedProc(t)
	pool := start(t, runtime.Function{Timeout: time.Minute}, &runtime.Options{Freeze: true})
	file := filepath.Join(t.TempDir(), "ticks")
	ticks := func() string {
		data, err := os.ReadFile(file)
		require.NoError(t, err)
		return string(data)
	}
	pid := invoke(t, pool, `{"do":"tick","say":"`+file+`"}`).PID
	for range 20 {
		require.True(t, childtest.Standing(t, pid), "it stands still when its caller has the answer")
		require.Equal(t, ticks(), ticks())
		next := invoke(t, pool, `{"do":"ticks"}`)
		require.Nil(t, next.Error)
		require.Equal(t, pid, next.PID)
	}

	caller := goInvoke(pool, `{"do":"hang"}`)
	waitInFlight(t, pool, 1)
	at := ticks()
	waitFor(t, func() bool { return ticks() != at }, "what was left behind runs on during an invocation")
	require.NoError(t, pool.Kill(pid))
	require.True(t, (<-caller).Killed)
}

// Two callers one after the other at full speed, with the freeze in between.
func TestFreezeAtFullSpeed(t *testing.T) {
	childtest.NeedProc(t)
	pool := start(t, runtime.Function{MaxInstances: 2, Timeout: time.Minute}, &runtime.Options{Freeze: true})
	done := make(chan error, 4)
	for caller := range 4 {
		go func() {
			for i := range 25 {
				event := fmt.Sprintf(`{"do":"echo","say":"%d of %d"}`, i, caller)
				result := <-goInvoke(pool, event)
				if result.err != nil || result.Error != nil || string(result.Payload) != event {
					done <- fmt.Errorf("%s: %+v", event, result)
					return
				}
			}
			done <- nil
		}()
	}
	for range 4 {
		require.NoError(t, <-done)
	}
	for _, pid := range pool.PIDs() {
		require.True(t, childtest.Standing(t, pid))
	}
}
