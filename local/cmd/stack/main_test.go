package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestMisuseIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"unknown command":   {[]string{"tour"}, `unknown command "tour"; there are: up, invoke, records, logs, token, reset`},
		"argument":          {[]string{"records", "all"}, `unexpected argument "all"`},
		"unknown flag":      {[]string{"-twice"}, "not defined: -twice"},
		"both dashes":       {[]string{"--twice"}, "not defined: -twice"},
		"nothing to do":     {[]string{"-once", "--no-tour"}, "leave nothing to do"},
		"no event":          {[]string{"invoke"}, "-event is missing"},
		"no times":          {[]string{"invoke", "-event", "s3", "-times", "0"}, "at least 1"},
		"too many":          {[]string{"invoke", "-event", "s3", "-parallel", "1000"}, "at most 200"},
		"unknown function":  {[]string{"invoke", "-event", "apigw-v2-jwt", "-function", "refunds"}, "there are: " + functionNames()},
		"nobody's event":    {[]string{"invoke", "-event", "kinesis"}, "name one with -function"},
		"empty tenant":      {[]string{"token", "-tenant", ""}, "-tenant is empty"},
		"unknown state":     {[]string{"records", "-state", "nonsense"}, `-state is "nonsense"; there are: pending in_progress`},
		"negative limit":    {[]string{"records", "-limit", "-3"}, "use 0 for all"},
		"flags not numbers": {[]string{"-port", "http"}, "invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			err := dispatch(t.Context(), c.args, io.Discard, io.Discard)
			require.ErrorContains(t, err, c.want)
			require.IsType(t, usageError{}, err)
		})
	}
	err := dispatch(t.Context(), []string{"invoke", "-event", "nothing.json"}, io.Discard, io.Discard)
	require.ErrorContains(t, err, "no file")
	require.ErrorContains(t, err, "apigw-v2-jwt", "it lists the samples")
}

func TestHelpNamesTheCommands(t *testing.T) {
	var out bytes.Buffer
	require.Error(t, dispatch(t.Context(), []string{"-help"}, io.Discard, &out))
	for _, c := range commands() {
		require.Contains(t, out.String(), c.name)
	}
	require.Contains(t, out.String(), "-once")
}

func TestEventsFindTheirFunction(t *testing.T) {
	takers := map[string]string{}
	for _, name := range samples.Names() {
		event, err := samples.Get(name)
		require.NoError(t, err)
		if f, err := functionFor(event); err == nil {
			takers[name] = f
		}
	}
	require.Equal(t, payments, takers["apigw-v2-jwt"])
	require.Equal(t, payments, takers["apigw-v2-base64"])
	require.Equal(t, orders, takers["sqs-standard"])
	require.Equal(t, orders, takers["sqs-fifo"])
	for _, name := range []string{"apigw-v1-none", "furl-none", "alb-multi", "kinesis", "dynamodb-stream", "async-direct"} {
		require.Empty(t, takers[name], name)
	}
}

func payload(s string) runtime.Result { return runtime.Result{Payload: []byte(s)} }

func TestSummaries(t *testing.T) {
	for name, c := range map[string]struct {
		d    delivery
		want summary
	}{
		"executed": {delivery{
			Result: payload(`{"statusCode": 201, "headers": {"Content-Type": "application/json"}, "body": "{}"}`),
			lines:  []string{`{"message": "idem: claimed", "attempt": 2}`, `{"message": "idem: completed", "attempt": 2}`},
		}, summary{"201 executed", "2"}},
		"replayed": {delivery{
			Result: payload(`{"statusCode": 201, "headers": {"idempotency-replayed": "true"}, "body": "{}"}`),
			lines:  []string{`{"message": "idem: replayed", "attempt": 1}`},
		}, summary{"201 replayed", "1"}},
		"in flight": {delivery{
			Result: payload(`{"statusCode": 409, "body": "{\"code\": \"idempotency_key_in_progress\"}"}`),
		}, summary{"409 idempotency_key_in_progress", "-"}},
		"function failed": {delivery{Result: runtime.Result{Error: &runtime.FunctionError{Type: "Sandbox.Timedout", Message: "Task timed out"}}}, summary{"function failed: Sandbox.Timedout: Task timed out", "-"}},
		"batch": {delivery{
			Result: payload(`{"batchItemFailures": [{"itemIdentifier": "2"}]}`),
			lines: []string{
				`{"message": "idem: message acknowledged", "reason": "executed", "attempt": 1}`,
				`{"message": "idem: message will be redelivered", "reason": "in_flight", "attempt": 3}`,
			},
		}, summary{"1 × executed, 1 × in_flight (1 redelivered)", "1, 3"}},
		"silent batch": {delivery{Result: payload(`{"batchItemFailures": []}`), lines: []string{"hello"}}, summary{"0 messages redelivered", "-"}},
		"JSON": {delivery{
			Result: payload(`{"receipt": 1}`), lines: []string{`{"message": "idem: replayed", "attempt": 1}`},
		}, summary{"replayed", "1"}},
		"silent": {delivery{Result: payload(`"ok"`)}, summary{"answered", "-"}},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, c.d.summary()) })
	}
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envRunDir, dir)
	const nobody = 1 << 30 // above the largest process id
	require.False(t, alive(nobody))
	require.True(t, alive(os.Getpid()))
	dead := filepath.Join(dir, strconv.Itoa(nobody)+"-1")
	require.NoError(t, os.Mkdir(dead, 0o700))

	older, err := newFolder("")
	require.NoError(t, err)
	require.NoDirExists(t, dead, "it is swept")
	info, err := os.Stat(string(older))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "nobody else reaches the socket")
	newer, err := newFolder("")
	require.NoError(t, err)
	listen := func(f folder, at time.Time) net.Listener {
		l, err := net.Listen("unix", f.path(socketName))
		require.NoError(t, err)
		require.NoError(t, os.Chtimes(f.path(socketName), at, at))
		return l
	}
	now := time.Now()
	defer listen(older, now.Add(-time.Hour)).Close()
	l := listen(newer, now)
	l.(*net.UnixListener).SetUnlinkOnClose(false) // as one that was killed
	found, err := running("")
	require.NoError(t, err)
	require.Equal(t, newer.path(socketName), found)
	require.NoError(t, l.Close())
	found, err = running("")
	require.NoError(t, err)
	require.Equal(t, older.path(socketName), found)
	newer.remove()
	older.remove()
	_, err = running("")
	require.ErrorIs(t, err, errNothingRuns)
}

func TestRecordsForPeople(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	in := func(d time.Duration) time.Time { return now.Add(d) }
	for name, c := range map[string]struct {
		rec  idem.Record
		want string
	}{
		"lease runs":  {idem.Record{State: idem.InProgress, LeaseUntil: in(2500 * time.Millisecond)}, "lease ends in 2.5s"},
		"lease over":  {idem.Record{State: idem.InProgress, LeaseUntil: in(-time.Hour)}, "lease over 1h ago"},
		"kept":        {idem.Record{State: idem.Completed, ExpiresAt: in(23*time.Hour + 59*time.Minute)}, "expires in 23h59m"},
		"expired":     {idem.Record{State: idem.Failed, ExpiresAt: in(-90 * time.Second)}, "expired 1m30s ago"},
		"parked":      {idem.Record{State: idem.Unknown, LeaseUntil: in(-10 * time.Minute)}, "lease over 10m ago"},
		"no end":      {idem.Record{State: idem.Released}, "-"},
		"a long time": {idem.Record{State: idem.Completed, ExpiresAt: in(29 * 24 * time.Hour)}, "expires in 29d0h"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, until(&c.rec, now)) })
	}
	tenant, operation := nameOf("%00#charge%2Frefund#abc")
	require.Equal(t, "(none)", tenant)
	require.Equal(t, "charge/refund", operation)

	var out bytes.Buffer
	(&recordsTask{}).print(&out, []row{
		{id: "acme#charge#x", err: io.ErrUnexpectedEOF},
		{id: "acme#charge#y", rec: &idem.Record{
			State: idem.Unknown, Attempt: 3, UpdatedAt: now, Failure: &idem.Failure{Type: "timeout", Message: "no\nanswer"},
		}},
		{id: "acme#charge#z", rec: &idem.Record{State: idem.Completed, Attempt: 1, Body: protocol.Body{Size: 460800, Parts: 2}, UpdatedAt: now}},
	}, now)
	require.Regexp(t, `acme +charge +UNREADABLE .*unexpected EOF`, out.String())
	require.Regexp(t, `acme +charge +unknown +3 .*timeout: no answer +open`, out.String())
	require.Regexp(t, `acme +charge +completed +1 .*450 KB in 2 parts`, out.String())
}

func TestLogLines(t *testing.T) {
	require.Equal(t, "panic: no", plainLine("panic: no"))
	require.Equal(t, `{"level": "INFO"}`, plainLine(`{"level": "INFO"}`))
	got := plainLine(`{"timestamp": "2026-11-21T12:00:00Z", "level": "WARN", "message": "idem: parked", "elapsed": 1500000, "attempt": 2}`)
	require.Regexp(t, `^\d\d:\d\d:00.000 WARN  idem: parked attempt=2 elapsed=1.5ms$`, got)
}

// TestLogsComeInTheOrderOfTheirTimes, whichever function wrote them; a line without a
// time stays behind the one before it.
func TestLogsComeInTheOrderOfTheirTimes(t *testing.T) {
	s := &stack{logs: newBook()}
	for _, line := range []string{
		`payments[2] {"timestamp": "2026-11-21T12:00:00Z", "message": "first"}`,
		`orders[1] {"timestamp": "2026-11-21T12:00:02Z", "message": "third"}`, "orders[1] beside the third",
		`payments[3] {"timestamp": "2026-11-21T12:00:01Z", "message": "second"}`,
	} {
		name, _, _ := strings.Cut(line, "[")
		_, err := fmt.Fprintln(page{s.logs, name}, line)
		require.NoError(t, err)
	}
	show := func(task logsTask) string {
		var out strings.Builder
		require.NoError(t, task.run(t.Context(), s, &out))
		return out.String()
	}
	require.Regexp(t, `^payments\[2\] .* first\npayments\[3\] .* second\norders\[1\] .* third\norders\[1\] beside the third\n$`, show(logsTask{}))
	require.Regexp(t, `^\(1 before; -lines 0 shows all\)\npayments\[3\] .* second\n`, show(logsTask{Lines: 3}))
	require.Regexp(t, `^orders\[1\] .* third\norders\[1\] beside the third\n$`, show(logsTask{Function: orders}))
	require.Regexp(t, `^payments\[3\] .* second\n$`, show(logsTask{Instance: 3}))
}

func TestLogsAreFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stack{logs: newBook()}
		ctx, cancel := context.WithCancel(t.Context())
		var out strings.Builder
		done := make(chan error)
		go func() { done <- (&logsTask{Function: orders, Follow: true}).run(ctx, s, &out) }()
		for i := range keptLines + 3 {
			fmt.Fprintf(page{s.logs, orders}, "orders[1] %d\n", i)
			fmt.Fprintf(page{s.logs, payments}, "payments[1] %d\n", i)
			if i%1000 == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		cancel()
		require.NoError(t, <-done)
		require.Equal(t, keptLines+3, strings.Count(out.String(), "\n"))
		require.NotContains(t, out.String(), "payments")
		kept, next, _ := s.logs.since(0)
		require.Len(t, kept, keptLines)
		require.Equal(t, 2*(keptLines+3), next)
	})
}
