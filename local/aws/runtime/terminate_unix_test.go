//go:build unix

package runtime_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

func said(t *testing.T, pool *runtime.Pool, pid int) []string {
	t.Helper()
	output, err := pool.Output(pid)
	require.NoError(t, err)
	return output.Stdout
}

func TestSIGTERMAtClose(t *testing.T) {
	for env, want := range map[string][]string{"": nil, "stay": {"terminating"}, "exit": {"terminating"}} {
		for _, freeze := range []bool{false, true} {
			pool := start(t, runtime.Function{Env: []string{"FN_SIGTERM=" + env}}, &runtime.Options{Freeze: freeze})
			pid := invoke(t, pool, `{"do":"who"}`).PID
			pool.Close()
			require.False(t, alive(pid), "also one that stays in spite of SIGTERM")
			require.Equal(t, want, said(t, pool, pid), "FN_SIGTERM=%s freeze=%v", env, freeze)
		}
	}
}

func TestSIGTERMAtTimeout(t *testing.T) {
	for _, env := range []string{"stay", "exit"} {
		pool := start(t, runtime.Function{Timeout: 250 * time.Millisecond, Env: []string{"FN_SIGTERM=" + env}}, nil)
		result := invoke(t, pool, `{"do":"hang"}`)
		require.Equal(t, runtime.TypeTimedOut, result.Error.Type)
		require.Equal(t, []string{"hanging", "terminating"}, said(t, pool, result.PID))
		require.Empty(t, pool.Instances())
		require.True(t, invoke(t, pool, `{"do":"who"}`).ColdStart)
	}
}

// A crash gives no warning.
func TestKillSendsNoSIGTERM(t *testing.T) {
	pool := start(t, runtime.Function{Env: []string{"FN_SIGTERM=stay"}}, nil)
	pid := invoke(t, pool, `{"do":"who"}`).PID
	require.NoError(t, pool.Kill(pid))
	require.Empty(t, said(t, pool, pid))
}

// What Close cut short is ErrClosed, also if the process ended by itself.
func TestCloseWithExitOnSIGTERM(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute, Env: []string{"FN_SIGTERM=exit"}}, nil)
	caller := goInvoke(pool, `{"do":"hang"}`)
	waitInFlight(t, pool, 1)
	pool.Close()
	require.ErrorIs(t, (<-caller).err, runtime.ErrClosed)
}

func TestIdleInstancesEnd(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute, Env: []string{"FN_SIGTERM=exit"}},
		&runtime.Options{IdleTimeout: 20 * time.Millisecond})
	first := invoke(t, pool, `{"do":"who"}`)
	waitFor(t, func() bool { return len(pool.Instances()) == 0 }, "the unused instance ends")
	require.Equal(t, []string{"terminating"}, said(t, pool, first.PID))
	require.True(t, invoke(t, pool, `{"do":"who"}`).ColdStart)

	caller := goInvoke(pool, `{"do":"hang"}`) // longer than the idle time-out
	waitInFlight(t, pool, 1)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	<-ctx.Done()
	require.Len(t, pool.InFlight(), 1, "one at work is not idle")
	pool.Close()
	require.ErrorIs(t, (<-caller).err, runtime.ErrClosed)
}
