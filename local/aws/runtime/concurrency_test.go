package runtime_test

import (
	"fmt"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestTwentyAtOnceInOneProcess(t *testing.T) {
	const n = 20
	pool := start(t, runtime.Function{MaxInstances: 1, Concurrency: n, Timeout: time.Minute}, nil)
	file := filepath.Join(t.TempDir(), "go")
	callers := goInvokes(pool, n, `{"do":"until","say":"`+file+`"}`)
	flight := waitInFlight(t, pool, n)
	require.Equal(t, []int{flight[0].PID}, pool.PIDs(), "callers that come while it starts wait for it")
	touch(t, file)
	cold := 0
	for _, caller := range callers {
		result := <-caller
		require.NoError(t, result.err)
		require.Equal(t, flight[0].PID, answer[who](t, result.Result).PID)
		if result.ColdStart {
			cold++
		}
	}
	require.Equal(t, 1, cold)

	// And again, warm, many times over: every caller gets its own answer.
	callers = nil
	for i := range 5 * n {
		callers = append(callers, goInvoke(pool, fmt.Sprintf(`{"do":"echo","say":"%d"}`, i)))
	}
	for i, caller := range callers {
		require.JSONEq(t, fmt.Sprintf(`{"do":"echo","say":"%d"}`, i), string((<-caller).Payload))
	}
	require.Equal(t, 6*n+1, answer[who](t, invoke(t, pool, `{"do":"who"}`)).Calls)
}

// Two at once of one at a time can only be in two processes; one more has to wait.
func TestConcurrencyTimesInstancesIsTheLimit(t *testing.T) {
	for _, concurrency := range []int{1, 2} {
		pool := start(t, runtime.Function{MaxInstances: 2, Concurrency: concurrency, Timeout: time.Minute}, nil)
		file := filepath.Join(t.TempDir(), "go")
		var callers []<-chan invoked
		for i := range 2 * concurrency {
			callers = append(callers, goInvoke(pool, `{"do":"until","say":"`+file+`"}`))
			waitInFlight(t, pool, i+1)
		}
		require.Len(t, pool.PIDs(), 2)
		ids := map[string]int{}
		for _, flight := range pool.InFlight() {
			ids[flight.RequestID] = flight.PID
		}
		require.Len(t, ids, 2*concurrency)
		requireFull(t, pool)
		callers = append(callers, goInvoke(pool, `{"do":"who"}`))
		touch(t, file)
		for _, caller := range callers {
			require.Nil(t, (<-caller).Error)
		}
	}
}

// As on Lambda Managed Instances, a time-out is the invocation's, not the
// process's.
func TestTimeoutOfOneOfSeveral(t *testing.T) {
	const timeout = time.Second
	pool := start(t, runtime.Function{MaxInstances: 1, Concurrency: 2, Timeout: timeout}, nil)
	file := filepath.Join(t.TempDir(), "go")
	late := invoke(t, pool, `{"do":"until","say":"`+file+`"}`)
	require.Equal(t, runtime.TypeTimedOut, late.Error.Type)
	require.False(t, late.Killed)
	require.Empty(t, pool.InFlight())
	require.Len(t, pool.PIDs(), 1, "the process runs on")

	neighbour := invoke(t, pool, `{"do":"who"}`)
	require.Equal(t, late.PID, neighbour.PID)
	require.Equal(t, 2, answer[who](t, neighbour).Calls)

	// The late one still occupies a worker: with a second one at work it is full.
	second := filepath.Join(t.TempDir(), "second")
	caller := goInvoke(pool, `{"do":"until","say":"`+second+`"}`)
	waitInFlight(t, pool, 1)
	requireFull(t, pool)

	// Its answer comes after all, is dropped, and frees the worker.
	touch(t, file)
	require.Nil(t, invoke(t, pool, `{"do":"who"}`).Error, "the worker is back")
	touch(t, second)
	result := <-caller
	require.NoError(t, result.err)
	require.Equal(t, late.PID, result.PID)
	require.Len(t, pool.PIDs(), 1)
}

func TestProcessWhoseWorkersAreAllLateEnds(t *testing.T) {
	pool := start(t, runtime.Function{MaxInstances: 1, Concurrency: 3, Timeout: 300 * time.Millisecond}, nil)
	pid := 0
	for _, caller := range goInvokes(pool, 3, `{"do":"hang"}`) {
		result := <-caller
		require.Equal(t, runtime.TypeTimedOut, result.Error.Type)
		pid = result.PID
	}
	next := invoke(t, pool, `{"do":"who"}`)
	require.NotEqual(t, pid, next.PID)
	require.True(t, next.ColdStart)
	require.False(t, alive(pid))
}

func TestPanicOfOneOfSeveral(t *testing.T) {
	pool := start(t, runtime.Function{MaxInstances: 2, Concurrency: 2, Timeout: time.Minute}, nil)
	file := filepath.Join(t.TempDir(), "go")
	neighbour := goInvoke(pool, `{"do":"until","say":"`+file+`"}`)
	pid := waitInFlight(t, pool, 1)[0].PID
	panicked := invoke(t, pool, `{"do":"panic"}`)
	require.Equal(t, pid, panicked.PID)
	require.Equal(t, "index out of luck", panicked.Error.Message)

	fresh := invoke(t, pool, `{"do":"who"}`)
	require.Nil(t, fresh.Error)
	require.NotEqual(t, pid, fresh.PID, "one that is on its way out gets no more work")
	touch(t, file)
	require.Equal(t, pid, answer[who](t, (<-neighbour).Result).PID, "the neighbour runs to its end")
	waitFor(t, func() bool { return !alive(pid) }, "then the process exits")
}

func TestExitOfOneOfSeveral(t *testing.T) {
	pool := start(t, runtime.Function{MaxInstances: 1, Concurrency: 2, Timeout: time.Minute}, nil)
	neighbour := goInvoke(pool, `{"do":"hang"}`)
	waitInFlight(t, pool, 1)
	result := invoke(t, pool, `{"do":"exit","size":7}`)
	require.Equal(t, runtime.TypeExit, result.Error.Type)
	require.Equal(t, runtime.TypeExit, (<-neighbour).Error.Type)
	require.Nil(t, invoke(t, pool, `{"do":"who"}`).Error)
}

func TestManagedInstanceLearnsItsConcurrency(t *testing.T) {
	pool := start(t, runtime.Function{Concurrency: 2}, nil)
	seen := string(invoke(t, pool, `{"do":"context"}`).Payload)
	require.Contains(t, seen, `"AWS_LAMBDA_MAX_CONCURRENCY=2"`)
	require.Contains(t, seen, `"AWS_LAMBDA_INITIALIZATION_TYPE=lambda-managed-instances"`)
}
