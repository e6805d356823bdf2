package runtime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

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

// What Close cut short is ErrClosed, also if the process has ended on its own.
func TestCloseWithExitOnSIGTERM(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute, Env: []string{"FN_SIGTERM=exit"}}, nil)
	caller := goInvoke(pool, `{"do":"hang"}`)
	waitInFlight(t, pool, 1)
	pool.Close()
	require.ErrorIs(t, (<-caller).err, runtime.ErrClosed)
}
