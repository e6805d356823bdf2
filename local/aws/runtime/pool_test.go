package runtime_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

type who struct {
	PID   int `json:"pid"`
	Calls int `json:"calls"`
}

func TestEcho(t *testing.T) {
	pool := start(t, runtime.Function{}, nil)
	require.Empty(t, pool.PIDs(), "processes start when they are needed")

	event := `{"do":"echo","say":"grüße, 世界","n":9007199254740993}`
	first := invoke(t, pool, event)
	require.Nil(t, first.Error)
	require.JSONEq(t, event, string(first.Payload))
	require.Contains(t, string(first.Payload), "9007199254740993")
	require.True(t, first.ColdStart)
	require.False(t, first.Killed)
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, first.RequestID)

	second := invoke(t, pool, event)
	require.False(t, second.ColdStart)
	require.Equal(t, first.PID, second.PID)
	require.NotEqual(t, first.RequestID, second.RequestID)
	require.Equal(t, []int{first.PID}, pool.PIDs())
}

func TestFunctionErrors(t *testing.T) {
	pool := start(t, runtime.Function{}, nil)
	for event, want := range map[string]struct {
		kind, message string
		ends          bool // the process
	}{
		`{"do":"error"}`:         {"declined", "card declined: insufficient_funds", false},
		`{"do":"stream"}`:        {"errorString", "source went away", false},
		`{"do":"panic"}`:         {"errorString", "index out of luck", true},
		`{"do":"exit"}`:          {runtime.TypeExit, "Error: Runtime exited without providing a reason", true},
		`{"do":"exit","size":7}`: {runtime.TypeExit, "Error: Runtime exited with error: exit status 7", true},
	} {
		failed := invoke(t, pool, event)
		require.Equal(t, want.kind, failed.Error.Type, event)
		message := strings.TrimPrefix(failed.Error.Message, "RequestId: "+failed.RequestID+" ")
		require.Equal(t, want.message, message)
		require.EqualError(t, failed.Error, want.kind+": "+failed.Error.Message)
		var payload runtime.FunctionError
		require.NoError(t, json.Unmarshal(failed.Payload, &payload))
		require.Equal(t, *failed.Error, payload)
		require.Equal(t, want.message == "index out of luck", strings.Contains(string(failed.Error.StackTrace), "handle"))
		require.False(t, failed.Killed, "it was not a signal")
		after := invoke(t, pool, `{"do":"who"}`)
		require.Equal(t, want.ends, after.ColdStart, event)
		require.Equal(t, want.ends, failed.PID != after.PID, event)
	}
}

func TestInitsThatFail(t *testing.T) {
	for name, c := range map[string]struct {
		init                 string
		concurrency, callers int
		kind, says           string
	}{
		"it exits":  {"exit", 1, 1, runtime.TypeExit, "Runtime exited with error: exit status 3"},
		"it panics": {"panic", 1, 1, runtime.TypeExit, "Runtime exited with error: exit status 2"},
		"it hangs":  {"hang", 1, 1, runtime.TypeTimedOut, "Init timed out after 0.05 seconds"},
		"several":   {"exit", 4, 8, runtime.TypeExit, "exit status 3"},
	} {
		t.Run(name, func(t *testing.T) {
			var opts runtime.Options
			if c.init == "hang" {
				opts.InitTimeout = 50 * time.Millisecond
			}
			pool := start(t, runtime.Function{MaxInstances: 1, Concurrency: c.concurrency, Env: []string{"FN_INIT=" + c.init}},
				&opts)
			for range 2 {
				for _, caller := range goInvokes(pool, c.callers, `{"do":"who"}`) {
					result := <-caller
					require.NoError(t, result.err)
					require.Equal(t, c.kind, result.Error.Type)
					require.Contains(t, result.Error.Message, c.says)
					require.Equal(t, c.init == "hang", result.Killed)
					require.True(t, c.callers > 1 || result.ColdStart)
					require.Equal(t, c.init != "hang", len(said(t, pool, result.PID)) > 0, "the reason is in the output")
				}
			}
			require.Empty(t, pool.PIDs())
		})
	}
}

func TestTimeoutKills(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: 250 * time.Millisecond}, nil)
	warm := invoke(t, pool, `{"do":"who"}`)

	began := time.Now()
	result := invoke(t, pool, `{"do":"hang"}`)
	require.GreaterOrEqual(t, time.Since(began), 250*time.Millisecond)
	require.Equal(t, warm.PID, result.PID)
	require.Equal(t, runtime.TypeTimedOut, result.Error.Type)
	require.Equal(t, "RequestId: "+result.RequestID+" Error: Task timed out after 0.25 seconds", result.Error.Message)
	require.True(t, result.Killed)
	require.Empty(t, pool.PIDs(), "it has ended when the caller hears of it")
	require.Empty(t, pool.InFlight())
	require.Equal(t, []string{"hanging"}, said(t, pool, result.PID), "output survives the process")
	require.True(t, invoke(t, pool, `{"do":"who"}`).ColdStart)
}

// The deadline counts from the thaw, however long the freeze was.
func TestDeadlineIsTheKillTime(t *testing.T) {
	const timeout = 5 * time.Second
	for _, freeze := range []bool{false, true} {
		pool := start(t, runtime.Function{Timeout: timeout}, &runtime.Options{Freeze: freeze})
		require.Nil(t, invoke(t, pool, `{"do":"who"}`).Error)
		before := time.Now()
		seen := answer[struct {
			DeadlineMs int64 `json:"deadlineMs"`
			NowMs      int64 `json:"nowMs"`
		}](t, invoke(t, pool, `{"do":"deadline"}`))
		require.GreaterOrEqual(t, seen.DeadlineMs, before.Add(timeout).UnixMilli())
		require.LessOrEqual(t, seen.DeadlineMs, seen.NowMs+timeout.Milliseconds(),
			"the time-out runs from handing over, so less than all of it is left in the handler")
	}
}

func TestAnswerSizes(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute}, nil)
	full := invoke(t, pool, fmt.Sprintf(`{"do":"big","size":%d}`, runtime.MaxResponseBytes))
	require.Nil(t, full.Error)
	require.Equal(t, `"`+strings.Repeat("x", runtime.MaxResponseBytes-2)+`"`, string(full.Payload))

	over := invoke(t, pool, fmt.Sprintf(`{"do":"big","size":%d}`, runtime.MaxResponseBytes+1))
	require.Equal(t, runtime.TypeResponseTooLarge, over.Error.Type)
	require.Contains(t, over.Error.Message, "6291556 bytes")
	waitFor(t, func() bool { return !alive(over.PID) && len(pool.PIDs()) == 0 }, "aws-lambda-go exits then")
	require.Contains(t, strings.Join(said(t, pool, over.PID), "\n"), "unexpected status code: 413")
	require.Nil(t, invoke(t, pool, `{"do":"who"}`).Error)
}

func TestEventSizes(t *testing.T) {
	pool := start(t, runtime.Function{Timeout: time.Minute}, nil)
	frame := `{"do":"echo","say":""}`
	event := `{"do":"echo","say":"` + strings.Repeat("y", runtime.MaxEventBytes-len(frame)) + `"}`
	require.Len(t, event, runtime.MaxEventBytes)
	require.Equal(t, event, string(invoke(t, pool, event).Payload))

	_, err := pool.Invoke(context.Background(), []byte(event+" "), nil)
	require.EqualError(t, err, "runtime: the event has 6291457 bytes, Lambda takes at most 6291456")
}

func TestWhatTheFunctionSees(t *testing.T) {
	pool := start(t, runtime.Function{
		Name: "charge-card",
		Env:  []string{"TABLE=payments", "AWS_ACCESS_KEY_ID=abc", "AWS_REGION=eu-central-1"},
	}, nil)
	t.Setenv("SECRET_OF_THE_PARENT", "x")
	result, err := pool.Invoke(context.Background(), []byte(`{"do":"context"}`),
		&runtime.InvokeOptions{RequestID: "async-retry-1"})
	require.NoError(t, err)
	require.Equal(t, "async-retry-1", result.RequestID)
	seen := answer[struct {
		LC struct {
			AwsRequestID, InvokedFunctionArn string
		} `json:"lc"`
		Env   []string `json:"env"`
		Trace string   `json:"trace"`
	}](t, result)
	require.Equal(t, "async-retry-1", seen.LC.AwsRequestID)
	require.Equal(t, "arn:aws:lambda:us-east-1:000000000000:function:charge-card", seen.LC.InvokedFunctionArn)
	require.Regexp(t, `^Root=1-[0-9a-f]{8}-[0-9a-f]{24};Parent=[0-9a-f]{16};Sampled=0$`, seen.Trace)

	env := map[string]string{}
	for _, entry := range seen.Env {
		name, value, _ := strings.Cut(entry, "=")
		env[name] = value
	}
	for name, want := range map[string]string{
		"AWS_LAMBDA_FUNCTION_NAME": "charge-card", "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
		"AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128", "AWS_LAMBDA_LOG_GROUP_NAME": "/aws/lambda/charge-card",
		"AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand", "AWS_REGION": "eu-central-1", "AWS_DEFAULT_REGION": "us-east-1",
		"_HANDLER": "bootstrap", "TZ": ":UTC", "TABLE": "payments", "AWS_ACCESS_KEY_ID": "abc",
		"LAMBDA_TASK_ROOT": filepath.Dir(function(t)), "PATH": os.Getenv("PATH"),
	} {
		require.Equal(t, want, env[name], name)
	}
	require.Regexp(t, regexp.MustCompile(`^\d{4}/\d\d/\d\d/\[\$LATEST\][0-9a-f]{32}$`), env["AWS_LAMBDA_LOG_STREAM_NAME"])
	require.Regexp(t, `^127\.0\.0\.1:\d+$`, env["AWS_LAMBDA_RUNTIME_API"])
	require.NotContains(t, env, "SECRET_OF_THE_PARENT")
	require.DirExists(t, env["TMPDIR"])
	pool.Close()
	require.NoDirExists(t, env["TMPDIR"])
}

func TestBadInput(t *testing.T) {
	folder := t.TempDir()
	plain := filepath.Join(folder, "plain")
	require.NoError(t, os.WriteFile(plain, []byte("not a program"), 0o600))
	for _, c := range []struct {
		fn   runtime.Function
		opts *runtime.Options
		want string
	}{
		{runtime.Function{}, nil, "Function.Path is empty"},
		{runtime.Function{Path: filepath.Join(folder, "none")}, nil, "build it first"},
		{runtime.Function{Path: folder}, nil, "is not a file"},
		{runtime.Function{Path: function(t), Name: "a b"}, nil, `Function.Name "a b"`},
		{runtime.Function{Path: function(t), Timeout: -1}, nil, "Function.Timeout"},
		{runtime.Function{Path: function(t), Timeout: time.Hour}, nil, "Function.Timeout"},
		{runtime.Function{Path: function(t), MaxInstances: -1}, nil, "Function.MaxInstances"},
		{runtime.Function{Path: function(t), Env: []string{"NOVALUE"}}, nil, "not NAME=value"},
		{runtime.Function{Path: function(t), Env: []string{"AWS_LAMBDA_RUNTIME_API=x"}}, nil, "the pool does"},
		{runtime.Function{Path: function(t), Env: []string{"AWS_LAMBDA_MAX_CONCURRENCY=4"}}, nil, "use Function.Concurrency"},
		{runtime.Function{Path: function(t), Concurrency: -1}, nil, "Function.Concurrency"},
		{runtime.Function{Path: function(t), Concurrency: 1601}, nil, "Function.Concurrency"},
		{runtime.Function{Path: function(t), Concurrency: 2}, &runtime.Options{Freeze: true}, "Options.Freeze"},
	} {
		_, err := runtime.Start(context.Background(), c.fn, c.opts)
		require.ErrorContains(t, err, c.want)
	}

	pool := start(t, runtime.Function{}, nil)
	for _, event := range []string{"", "{", "nonsense"} {
		_, err := pool.Invoke(context.Background(), []byte(event), nil)
		require.ErrorContains(t, err, "the event is not JSON")
	}
	broken := start(t, runtime.Function{Path: plain}, nil)
	result := invoke(t, broken, `{}`)
	require.Equal(t, runtime.TypeInvalidEntrypoint, result.Error.Type)
	require.Zero(t, result.PID)
	left, err := filepath.Glob(filepath.Join(os.TempDir(), "lambda-plain-*"))
	require.NoError(t, err)
	require.Empty(t, left)
}
