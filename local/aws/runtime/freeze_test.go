package runtime_test

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

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
		require.True(t, pool.Instances()[0].Frozen)
		require.Equal(t, ticks(), ticks())
		next := invoke(t, pool, `{"do":"ticks"}`)
		require.Nil(t, next.Error)
		require.Equal(t, pid, next.PID)
	}

	caller := goInvoke(pool, `{"do":"hang"}`)
	waitInFlight(t, pool, 1)
	require.False(t, pool.Instances()[0].Frozen)
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
	for _, inst := range pool.Instances() {
		require.True(t, inst.Frozen)
		require.True(t, childtest.Standing(t, inst.PID))
	}
}
