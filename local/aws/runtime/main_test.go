package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestMain(m *testing.M) {
	testmain.Run(m, testmain.Role{Env: "RUNTIME_TEST_PARENT", Main: beParent})
}

// function is the compiled testdata/fn.
func function(t *testing.T) string { return testmain.Program(t, "./testdata/fn") }

// beParent runs a pool with one instance at work and one that is frozen until it
// is killed. It prints where their Runtime APIs listen, and their process ids.
func beParent(path string) error {
	pool, err := runtime.Start(context.Background(), runtime.Function{Path: path, Timeout: time.Minute},
		&runtime.Options{Freeze: true})
	if err != nil {
		return err
	}
	instances := map[string]int{}
	for range 2 {
		result, err := pool.Invoke(context.Background(), []byte(`{"do":"context"}`), nil)
		if err != nil {
			return err
		}
		instances[addressIn(result)] = result.PID
		if len(instances) == 1 {
			go pool.Invoke(context.Background(), []byte(`{"do":"hang"}`), nil)
		}
		for len(pool.InFlight()) == 0 {
			<-time.After(time.Millisecond)
		}
	}
	said, _ := json.Marshal(instances)
	fmt.Println(os.Getpid(), string(said))
	select {}
}

var runtimeAPI = regexp.MustCompile(`AWS_LAMBDA_RUNTIME_API=([0-9.:]+)`)

// addressIn is where the Runtime API of the instance listens that answered with its
// environment.
func addressIn(result runtime.Result) string {
	m := runtimeAPI.FindSubmatch(result.Payload)
	if m == nil {
		return "no address in the environment"
	}
	return string(m[1])
}

// start opens a pool that the test's end closes.
func start(t *testing.T, fn runtime.Function, opts *runtime.Options) *runtime.Pool {
	t.Helper()
	if fn.Path == "" {
		fn.Path = function(t)
	}
	out := &childtest.Output{}
	o := runtime.Options{Output: out}
	if opts != nil {
		o = *opts
		o.Output = out
	}
	pool, err := runtime.Start(context.Background(), fn, &o)
	require.NoError(t, err)
	outputs.Store(pool, out)
	t.Cleanup(pool.Close)
	return pool
}

// outputs are what functions have written, by pool.
var outputs sync.Map

// said is what a process has written so far, line by line.
func said(t *testing.T, pool *runtime.Pool, pid int) (lines []string) {
	t.Helper()
	found, ok := outputs.Load(pool)
	require.True(t, ok)
	for line := range strings.Lines(found.(*childtest.Output).String()) {
		if _, text, mine := strings.Cut(line, fmt.Sprintf("[%d] ", pid)); mine {
			lines = append(lines, strings.TrimSuffix(text, "\n"))
		}
	}
	return lines
}

// requireFull: another invocation would have to wait.
func requireFull(t *testing.T, pool *runtime.Pool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	_, err := pool.Invoke(ctx, []byte(`{"do":"who"}`), nil)
	require.ErrorContains(t, err, "no instance became free")
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

func invoke(t *testing.T, pool *runtime.Pool, event string) runtime.Result {
	t.Helper()
	result, err := pool.Invoke(context.Background(), []byte(event), nil)
	require.NoError(t, err)
	return result
}

func answer[T any](t *testing.T, result runtime.Result) T {
	t.Helper()
	require.Nil(t, result.Error)
	var v T
	require.NoError(t, json.Unmarshal(result.Payload, &v), "%s", result.Payload)
	return v
}

// goInvoke invokes in the background and delivers the result.
func goInvoke(pool *runtime.Pool, event string) <-chan invoked {
	done := make(chan invoked, 1)
	go func() {
		result, err := pool.Invoke(context.Background(), []byte(event), nil)
		done <- invoked{result, err}
	}()
	return done
}

// goInvokes does so a number of times at once.
func goInvokes(pool *runtime.Pool, n int, event string) (all []<-chan invoked) {
	for range n {
		all = append(all, goInvoke(pool, event))
	}
	return all
}

type invoked struct {
	runtime.Result
	err error
}

// waitFor polls a condition; the limit is only there to end a broken test.
func waitFor(t *testing.T, condition func() bool, what string) {
	t.Helper()
	require.Eventually(t, condition, 30*time.Second, 2*time.Millisecond, what)
}

func waitInFlight(t *testing.T, pool *runtime.Pool, n int) []runtime.InFlight {
	t.Helper()
	waitFor(t, func() bool { return len(pool.InFlight()) == n }, "invocations in flight")
	return pool.InFlight()
}

func touch(t *testing.T, file string) {
	t.Helper()
	require.NoError(t, os.WriteFile(file, nil, 0o600))
}
