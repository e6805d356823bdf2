package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/internal/child/childtest"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestFreezeBetweenInvocations(t *testing.T) {
	childtest.NeedProc(t)
	pool := start(t, runtime.Function{Timeout: time.Minute}, &runtime.Options{Freeze: true})
	file := filepath.Join(t.TempDir(), "ticks")
	pid := invoke(t, pool, `{"do":"tick","say":"`+file+`"}`).PID
	for range 20 {
		require.True(t, childtest.Standing(t, pid), "it stands still when its caller has the answer")
		require.True(t, pool.Instances()[0].Frozen)
		before, _ := os.ReadFile(file)
		again, _ := os.ReadFile(file)
		require.Equal(t, before, again)
		next := invoke(t, pool, `{"do":"ticks"}`)
		require.Nil(t, next.Error)
		require.Equal(t, pid, next.PID)
	}

	caller := goInvoke(pool, `{"do":"hang"}`)
	waitInFlight(t, pool, 1)
	require.False(t, pool.Instances()[0].Frozen)
	at := answerOfFile(t, file)
	waitFor(t, func() bool { return answerOfFile(t, file) != at }, "what was left behind runs on during an invocation")
	require.NoError(t, pool.Kill(pid))
	require.True(t, (<-caller).Killed)
}

func answerOfFile(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	require.NoError(t, err)
	return string(data)
}

func TestFrozenInstanceEnds(t *testing.T) {
	childtest.NeedProc(t)
	for name, end := range map[string]func(*runtime.Pool, int){
		"Close":  func(p *runtime.Pool, _ int) { p.Close() },
		"Kill":   func(p *runtime.Pool, pid int) { require.NoError(t, p.Kill(pid)) },
		"signal": func(_ *runtime.Pool, pid int) { require.NoError(t, syscall.Kill(pid, syscall.SIGKILL)) },
	} {
		t.Run(name, func(t *testing.T) {
			pool := start(t, runtime.Function{}, &runtime.Options{Freeze: true})
			pid := invoke(t, pool, `{"do":"who"}`).PID
			require.True(t, childtest.Standing(t, pid))
			end(pool, pid)
			waitFor(t, func() bool { return !alive(pid) && len(pool.Instances()) == 0 }, "it is gone")
		})
	}
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
	for _, inst := range pool.Instances() {
		require.True(t, inst.Frozen)
		require.True(t, childtest.Standing(t, inst.PID))
	}
}
