package runtime_test

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// alive reports whether the process runs; a dead one that nobody has waited for
// does not count.
func alive(pid int) bool {
	if syscall.Kill(pid, 0) != nil {
		return false
	}
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return os.IsPermission(err) || !procfs()
	}
	return !strings.Contains(string(stat), ") Z ")
}

func procfs() bool {
	_, err := os.Stat("/proc/self/stat")
	return err == nil
}

func TestStopAndContinue(t *testing.T) {
	if !procfs() {
		t.Skip("only on Linux does Signal wait until the process stands still")
	}
	pool := start(t, runtime.Function{Timeout: time.Minute}, nil)
	pid := invoke(t, pool, `{"do":"who"}`).PID
	require.NoError(t, pool.Signal(pid, syscall.SIGSTOP))
	caller := goInvoke(pool, `{"do":"who"}`)
	waitInFlight(t, pool, 1) // given to a process that does not move
	select {
	case result := <-caller:
		t.Fatalf("answered while stopped: %+v", result)
	default:
	}
	require.NoError(t, pool.Signal(pid, syscall.SIGCONT))
	result := <-caller
	require.NoError(t, result.err)
	require.Equal(t, who{PID: pid, Calls: 2}, answer[who](t, result.Result))
}

func TestTimeoutKillsAStoppedProcess(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: 100 * time.Millisecond}, nil)
	pid := invoke(t, pool, `{"do":"who"}`).PID
	require.NoError(t, pool.Signal(pid, syscall.SIGSTOP))
	result := invoke(t, pool, `{"do":"who"}`)
	require.Equal(t, runtime.TypeTimedOut, result.Error.Type)
	require.False(t, alive(pid))
	require.ErrorContains(t, pool.Signal(pid, syscall.SIGCONT), "no instance")
}

func TestOtherSignals(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute}, nil)
	caller := goInvoke(pool, `{"do":"hang"}`)
	pid := waitInFlight(t, pool, 1)[0].PID
	require.NoError(t, pool.Signal(pid, syscall.SIGKILL))
	result := <-caller
	require.True(t, result.Killed)
	require.Contains(t, result.Error.Message, "signal: killed")
}

// What the function has started goes with it.
func TestGrandchildrenGoToo(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute}, nil)
	pid := answer[int](t, invoke(t, pool, `{"do":"child"}`))
	require.True(t, alive(pid))
	pool.Close()
	waitFor(t, func() bool { return !alive(pid) }, "the function's own child ends")
}
