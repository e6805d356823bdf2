package runtime_test

import (
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

// childrenOf lists the live children of a process.
func childrenOf(t *testing.T, parent int) []int {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	require.NoError(t, err)
	var pids []int
	for _, path := range stats {
		raw, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state ppid …; the name may hold anything.
		head, tail, _ := strings.Cut(string(raw), " (")
		fields := strings.Fields(tail[strings.LastIndex(tail, ")")+1:])
		if fields[0] != "Z" && fields[1] == strconv.Itoa(parent) {
			pid, err := strconv.Atoi(head)
			require.NoError(t, err)
			pids = append(pids, pid)
		}
	}
	return pids
}

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
			require.Contains(t, childrenOf(t, os.Getpid()), result.PID)
			require.True(t, childtest.Standing(t, result.PID), "it is frozen")
			end(t, pool, result.PID)
			waitFor(t, func() bool { return len(pool.PIDs()) == 0 }, "the instance is gone")
			require.False(t, slices.Contains(childrenOf(t, os.Getpid()), result.PID))
			require.False(t, listens(port))
		})
	}
}

// A parent that is killed cannot close its pool; the kernel ends its children:
// the one at work and the one that is frozen.
func TestNothingIsLeftOfAKilledParent(t *testing.T) {
	const role = "RUNTIME_TEST_PARENT"
	parent, pid, addresses := childtest.Rerun(t, role, role+"="+function(t), "TMPDIR="+t.TempDir())
	busy, frozen, _ := strings.Cut(addresses, ",")
	require.True(t, listens(busy))
	require.True(t, listens(frozen))
	children := childrenOf(t, pid)
	require.Len(t, children, 2)

	require.NoError(t, parent.Process.Kill())
	parent.Wait() // an error, since it was killed
	for _, child := range children {
		waitFor(t, func() bool { return !alive(child) }, "the child follows")
	}
	require.False(t, listens(busy))
	require.False(t, listens(frozen))
}
