package idemlambda

import (
	"bytes"
	"log/slog"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/stretchr/testify/require"
)

// What the environment tells: impossible settings are mistakes, unwise ones are
// logged, each with the value that would do.
func TestSQSSetUpOfTheEnvironment(t *testing.T) {
	names := []string{schema.EnvFunctionTimeout, schema.EnvQueueBatchSize}
	for _, c := range []struct {
		name    string
		env     [2]string
		minTime time.Duration
		keep    time.Duration
		o       SQSOptions
		bad     []string
		warn    string
	}{
		{name: "nothing known"},
		{name: "as recommended", env: [2]string{"30", "10"}},
		{name: "the queue alone", env: [2]string{"", "10"}},
		{name: "the function alone", env: [2]string{"1", ""}},

		{name: "no number", env: [2]string{"30s", ""}, bad: []string{schema.EnvFunctionTimeout, `"30s"`, "from 1 to 900"}},
		{name: "no time", env: [2]string{"0", ""}, bad: []string{schema.EnvFunctionTimeout}},
		{name: "huge batch", env: [2]string{"", "10001"}, bad: []string{schema.EnvQueueBatchSize}},

		{name: "time-out below MinTime", env: [2]string{"2", ""}, minTime: 2 * time.Second,
			bad: []string{"MinTime is 2s", "1.5s at most", "at least 3s", "MinTime to at most 1.5s"}},
		{name: "MinTime beyond Lambda", env: [2]string{"900", ""}, minTime: time.Hour,
			bad: []string{"14m59s at most, so that no message could ever start: set MinTime to at most 14m59s"}},
		{name: "time-out with room for MinTime", env: [2]string{"3", ""}, minTime: 2 * time.Second},

		{name: "batch within the time", env: [2]string{"30", "100"}, minTime: 2 * time.Second},
		{name: "batch just within the time", env: [2]string{"30", "140"}, minTime: 2 * time.Second},
		{name: "batch beyond the time", env: [2]string{"30", "141"}, minTime: 2 * time.Second,
			warn: "a full batch of 141 messages, 10 at a time with a MinTime of 2s each, does not fit into the 29s that a " +
				"time-out of 30s leaves its handlers, and the rest is redelivered unused: set the time-out to 31s, the batch " +
				"size to 140, or Concurrency to 11"},
		{name: "one by one", env: [2]string{"5", "10"}, minTime: time.Second, o: SQSOptions{Concurrency: 1},
			warn: "set the time-out to 11s, the batch size to 4, or Concurrency to 3"},
	} {
		t.Run(c.name, func(t *testing.T) {
			for i, name := range names {
				t.Setenv(name, c.env[i])
			}
			var log bytes.Buffer
			c.o.Logger = slog.New(slog.NewTextHandler(&log, nil))
			op := fulfil
			op.MinTime, op.Retention = c.minTime, c.keep
			start := func() { SQS(newEngine(t, memory()), op, byAttribute, &c.o, work) }
			if c.bad != nil {
				requireConfigPanic(t, start, c.bad...)
				return
			}
			require.NotPanics(t, start)
			if c.warn == "" {
				require.Empty(t, log.String())
			}
			require.Contains(t, log.String(), c.warn)
		})
	}
}

// The values that a message names do.
func TestSQSSetUpAdviceIsGood(t *testing.T) {
	for timeout := 1; timeout <= 900; timeout += 7 {
		for _, least := range []time.Duration{0, time.Millisecond, 900 * time.Millisecond, 3 * time.Second, 4 * time.Minute} {
			for _, n := range []int{1, 7, 10, 99, 10_000} {
				op := fulfil
				op.MinTime, op.Retention = least, SQSRetention
				s := sqsSetup{timeout: timeout, batch: n}
				if s.check(op) != nil {
					s.timeout = timeoutFor(minTime(op))
					require.NoError(t, s.check(op))
					require.Greater(t, s.timeout, timeout)
				}
				if s.warning(op, 10) == "" {
					continue
				}
				fit := int(s.usable() / minTime(op))
				smaller, wider, longer := s, s, s
				smaller.batch = fit * 10
				require.Empty(t, smaller.warning(op, 10))
				require.Empty(t, wider.warning(op, (n+fit-1)/fit))
				longer.timeout = timeoutFor(time.Duration((n+9)/10) * minTime(op))
				require.Empty(t, longer.warning(op, 10))
			}
		}
	}
}

// The stack and the code declare the same.
func TestSQSSetUpOfTheDeclaration(t *testing.T) {
	op := fulfil
	for declared, other := range map[idem.Repeat]idem.Repeat{idem.Repeatable: idem.NotRepeatable,
		idem.NotRepeatable: idem.Repeatable} {
		op.Repeat = declared
		start := func() { SQS(newEngine(t, memory()), op, byAttribute, nil, work) }
		t.Setenv(schema.EnvQueueRepeat, declared.String())
		require.NotPanics(t, start)
		t.Setenv(schema.EnvQueueRepeat, other.String())
		requireConfigPanic(t, start, op.Name, declared.String(), other.String(), schema.EnvQueueRepeat)
	}
}
