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
	names := []string{
		schema.EnvFunctionTimeout, schema.EnvQueueVisibility, schema.EnvQueueBatchSize,
		schema.EnvQueueBatchWindow, schema.EnvQueueMaxReceives,
	}
	for _, c := range []struct {
		name    string
		env     [5]string
		minTime time.Duration
		keep    time.Duration
		o       SQSOptions
		bad     []string
		warn    []string
	}{
		{name: "nothing known"},
		{name: "as recommended", env: [5]string{"30", "185", "10", "5", "5"}},
		{name: "the queue alone", env: [5]string{"", "1", "10", "", "10"}},
		{name: "the function alone", env: [5]string{"1", "", "", "", ""}},

		{name: "no number", env: [5]string{"30s", "", "", "", ""},
			bad: []string{schema.EnvFunctionTimeout, `"30s"`, "from 1 to 900"}},
		{name: "no time", env: [5]string{"0", "", "", "", ""}, bad: []string{schema.EnvFunctionTimeout}},
		{name: "negative", env: [5]string{"", "-1", "", "", ""}, bad: []string{schema.EnvQueueVisibility, "from 0 to 43200"}},
		{name: "huge batch", env: [5]string{"", "", "10001", "", ""}, bad: []string{schema.EnvQueueBatchSize}},
		{name: "long window", env: [5]string{"", "", "", "301", ""}, bad: []string{schema.EnvQueueBatchWindow}},
		{name: "no receives", env: [5]string{"", "", "", "", "0"}, bad: []string{schema.EnvQueueMaxReceives}},

		{name: "visibility below the time-out", env: [5]string{"30", "29", "", "", ""},
			bad: []string{"visibility time-out of 29s", "time-out of 30s", "set it to 180s, and no less than 30s",
				schema.EnvQueueVisibility}},
		{name: "visibility below time-out and window", env: [5]string{"30", "39", "", "10", ""},
			bad: []string{"set it to 190s, and no less than 40s"}},
		{name: "visibility within the margin", env: [5]string{"30", "41", "", "10", ""},
			warn: []string{"41s is less than 6 times", "lease", "set it to 190s"}},
		{name: "visibility below the recommendation", env: [5]string{"30", "189", "", "10", ""},
			warn: []string{"189s", "throttled", "set it to 190s"}},
		{name: "visibility within the service's limit", env: [5]string{"900", "5700", "", "300", ""}},

		{name: "time-out below MinTime", env: [5]string{"2", "", "", "", ""}, minTime: 2 * time.Second,
			bad: []string{"MinTime is 2s", "1.5s at most", "at least 3s", "MinTime to at most 1.5s"}},
		{name: "MinTime beyond Lambda", env: [5]string{"900", "", "", "", ""}, minTime: time.Hour,
			bad: []string{"14m59s at most, so that no message could ever start: set MinTime to at most 14m59s"}},
		{name: "time-out with room for MinTime", env: [5]string{"3", "", "", "", ""}, minTime: 2 * time.Second},

		{name: "large batch without a window", env: [5]string{"", "", "11", "0", ""},
			bad: []string{"batch size of 11", "window to 1s"}},
		{name: "large batch, window not known", env: [5]string{"", "", "11", "", ""}},
		{name: "batch within the time", env: [5]string{"30", "", "100", "", ""}, minTime: 2 * time.Second},
		{name: "batch beyond the time", env: [5]string{"30", "", "141", "", ""}, minTime: 2 * time.Second,
			warn: []string{"full batch of 141", "10 at a time", "29s", "batch size to 140", "Concurrency to 11",
				"time-out to 31s"}},
		{name: "batch just within the time", env: [5]string{"30", "", "140", "", ""}, minTime: 2 * time.Second},
		{name: "one by one", env: [5]string{"5", "", "10", "", ""}, minTime: time.Second, o: SQSOptions{Concurrency: 1},
			warn: []string{"batch size to 4", "Concurrency to 3", "time-out to 11s"}},

		{name: "more deliveries than a queue keeps a message", env: [5]string{"", "43200", "", "", "1000"}},
		{name: "few receives", env: [5]string{"", "", "", "", "4"},
			warn: []string{"after 4 receives", "maxReceiveCount to at least 5"}},
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
			if c.warn == nil {
				require.Empty(t, log.String())
			}
			for _, want := range c.warn {
				require.Contains(t, log.String(), want)
			}
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
				s := sqsSetup{timeout: sqsSetting{value: timeout, known: true}, batch: sqsSetting{value: n, known: true}}
				if s.check(op) != nil {
					s.timeout.value = timeoutFor(minTime(op))
					require.NoError(t, s.check(op))
					require.Greater(t, s.timeout.value, timeout)
				}
				if len(s.warnings(op, 10)) == 0 {
					continue
				}
				fit := int(s.usable() / minTime(op))
				smaller, wider, longer := s, s, s
				smaller.batch.value = fit * 10
				require.Empty(t, smaller.warnings(op, 10))
				require.Empty(t, wider.warnings(op, (n+fit-1)/fit))
				longer.timeout.value = timeoutFor(time.Duration((n+9)/10) * minTime(op))
				require.Empty(t, longer.warnings(op, 10))
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
