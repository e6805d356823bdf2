package runtime_test

import (
	"encoding/json"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

func listens(address string) bool {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err == nil {
		conn.Close()
	}
	return err == nil
}

func TestNothingIsLeft(t *testing.T) {
	for name, end := range map[string]func(*testing.T, *runtime.Pool, int){
		"after Close":      func(_ *testing.T, p *runtime.Pool, _ int) { p.Close() },
		"after a crash":    func(t *testing.T, p *runtime.Pool, _ int) { invoke(t, p, `{"do":"exit","size":2}`) },
		"after a panic":    func(t *testing.T, p *runtime.Pool, _ int) { invoke(t, p, `{"do":"panic"}`) },
		"after a time-out": func(t *testing.T, p *runtime.Pool, _ int) { invoke(t, p, `{"do":"hang"}`) },
		"after an answer too large": func(t *testing.T, p *runtime.Pool, _ int) {
			invoke(t, p, `{"do":"big","size":7000000}`)
		},
		"after a kill": func(t *testing.T, p *runtime.Pool, pid int) { require.NoError(t, p.Kill(pid)) },
		"after a kill from anywhere": func(t *testing.T, _ *runtime.Pool, pid int) {
			require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		},
	} {
		t.Run(name, func(t *testing.T) {
			pool := start(t, runtime.Function{Timeout: time.Second}, &runtime.Options{Freeze: true})
			result := invoke(t, pool, `{"do":"context"}`)
			port := addressIn(result)
			require.True(t, listens(port))
			require.True(t, alive(result.PID))
			require.True(t, childtest.Standing(t, result.PID), "it is frozen")
			end(t, pool, result.PID)
			waitFor(t, func() bool { return len(pool.PIDs()) == 0 }, "the instance has ended")
			require.False(t, alive(result.PID))
			require.False(t, listens(port))
		})
	}
}

// A parent that is killed cannot close its pool; the kernel ends its children:
// the one at work and the one that is frozen.
func TestNothingIsLeftOfAKilledParent(t *testing.T) {
	const role = "RUNTIME_TEST_PARENT"
	parent, _, said := childtest.Rerun(t, role, role+"="+function(t), "TMPDIR="+t.TempDir())
	instances := map[string]int{} // by address
	require.NoError(t, json.Unmarshal([]byte(said), &instances))
	require.Len(t, instances, 2)
	for address, pid := range instances {
		require.True(t, listens(address))
		require.True(t, alive(pid))
	}

	require.NoError(t, parent.Process.Kill())
	parent.Wait() // an error, since it was killed
	for address, pid := range instances {
		waitFor(t, func() bool { return !alive(pid) }, "the child follows")
		require.False(t, listens(address))
	}
}
