package idemlambda

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/stretchr/testify/require"
)

// A handler that ignores its context costs the others nothing but the acknowledgement: they are recorded.
func TestSQSHandlerThatOutlivesItsInvocation(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		runs := map[string]int{}
		var mu sync.Mutex
		h, _ := queueOf(realTime(t, memory()), fulfil, func(_ context.Context, o order) error {
			mu.Lock()
			runs[o.ID]++
			mu.Unlock()
			if o.ID == "hangs" {
				time.Sleep(time.Hour)
			}
			return nil
		})
		event := batchOf(messageOf("m1", "k1", `{"id":"quick"}`), messageOf("m2", "k2", `{"id":"hangs"}`))
		answered := make(chan struct{})
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		go func() {
			_, _ = h(ctx, event)
			close(answered)
		}()
		<-ctx.Done() // the function is killed here, and the batch is redelivered
		next, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		res, err := h(next, batchOf(event.Records[0]))
		require.NoError(t, err)
		require.Empty(t, named(res))
		<-answered
		require.Equal(t, map[string]int{"quick": 1, "hangs": 1}, runs)
	})
}

// What the wrapper adds to a message in addition to the engine's own: no more than this.
func TestSQSAllocations(t *testing.T) {
	engine := newEngine(t, memory())
	op := fulfil
	op.Retention = SQSRetention
	h := SQS(engine, op, byAttribute, nil, func(context.Context, []byte) error { return nil })
	next := 0
	key := func() string { next++; return fmt.Sprint("k", next) }
	ms := make([]events.SQSMessage, 10)
	batch := testing.AllocsPerRun(100, func() {
		for i := range ms {
			ms[i] = messageOf("m", key(), `{}`)
		}
		_, _ = h(context.Background(), batchOf(ms...))
	})
	alone := testing.AllocsPerRun(1000, func() {
		m := messageOf("m", key(), `{}`)
		_, _ = engine.Execute(context.Background(), idem.Call{
			Key:         op.Key(idem.SingleTenant, *m.MessageAttributes[SQSKeyAttribute].StringValue),
			Fingerprint: fingerprint.Bytes([]byte(m.Body)),
			Run:         func(context.Context) idem.Answer { return idem.Answer{} },
		})
	})
	t.Logf("a message: %.1f allocations, of them %.1f the engine's", batch/10, alone)
	require.Less(t, batch/10-alone, 30.0)
}

// Groups of a standard queue spread messages fairly, and order nothing.
func TestSQSGroupsOfAStandardQueue(t *testing.T) {
	h, seen := queueOf(newEngine(t, memory()), fulfil, work)
	ms := []events.SQSMessage{messageOf("m1", "k1", `{"do":"fail"}`), messageOf("m2", "k2", `{}`)}
	for i := range ms {
		ms[i].Attributes[sqsGroup] = "g"
	}
	require.Equal(t, []string{"m1"}, deliver(t, h, ms...))

	// Without an ARN the groups tell: order is kept rather than broken.
	for i := range ms {
		ms[i].EventSourceARN = ""
	}
	require.Equal(t, []string{"m1", "m2"}, deliver(t, h, ms...))
	require.Equal(t, ReasonBlocked, seen.outcomes["m2"].Reason)
}

// What the environment tells: impossible settings are mistakes, unwise ones are
// logged, each with the value that would do.
func TestSQSSetUpOfTheEnvironment(t *testing.T) {
	names := []string{schema.EnvFunctionTimeout, schema.EnvQueueBatchSize}
	for _, c := range []struct {
		name    string
		env     [2]string
		minTime time.Duration
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
			op.MinTime = c.minTime
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

// By the message's id a redrive is another message: that is what its documentation warns of.
func TestSQSMessageIDDoesNotSurviveARedrive(t *testing.T) {
	runs := 0
	h := SQS(newEngine(t, memory()), fulfil, SQSMessageID(idem.SingleTenant), nil, func(context.Context, order) error {
		runs++
		return nil
	})
	for _, id := range []string{"m1", "m1", "redriven"} {
		deliver(t, h, messageOf(id, "k1", `{}`))
	}
	require.Equal(t, 2, runs)
}
