package runtime_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/internal/child/childtest"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

func alive(pid int) bool { return !childtest.Gone(pid) }

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
