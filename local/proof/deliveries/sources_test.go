package deliveries

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// asynchronous are the sources whose events Lambda takes asynchronously, and what each sends.
var asynchronous = map[string]func(n int) any{
	"sns": func(n int) any {
		return events.SNSEvent{Records: []events.SNSEventRecord{{EventSource: "aws:sns", SNS: events.SNSEntity{
			MessageID: fmt.Sprint("message-", n), TopicArn: "arn:aws:sns:eu-central-1:111122223333:orders", Message: body(n),
		}}}}
	},
	"eventbridge": func(n int) any {
		return events.EventBridgeEvent{
			ID: fmt.Sprint("event-", n), Source: "shop", DetailType: "OrderPlaced", Time: time.Unix(1_800_000_000, 0).UTC(),
			Detail: json.RawMessage(body(n)),
		}
	},
	"async": func(n int) any { return json.RawMessage(body(n)) },
}

// Lambda's retries of an asynchronous invocation bear its request id. They run what
// may run, replay what is known, and leave alone what is unknown.
func TestAsynchronousRetries(t *testing.T) {
	t.Parallel()
	for source, event := range asynchronous {
		for name, c := range map[string]struct {
			once  bool // not repeatable
			fates []string
			// results and runs that are wanted, and the last result's error; acknowledged
			// says that queue-like sources want no retry.
			results, runs, effects int
			last                   string
			acknowledged           bool
		}{
			"fails and then succeeds": {fates: []string{"error before", "not executed", "ok"}, results: 3, runs: 3, effects: 1},
			"fails after its effect":  {fates: []string{"error after", "ok"}, results: 2, runs: 2, effects: 1},
			"panics after its effect": {fates: []string{"panic after", "ok"}, results: 2, runs: 2, effects: 1},
			"is killed":               {fates: []string{"hang", "ok"}, results: 2, runs: 2, effects: 1},
			"unknown": {once: true, fates: []string{"error after"}, results: 3, runs: 1, effects: 1,
				last: "OutcomeUnknownError"},
			"unknown after a kill": {once: true, fates: []string{"hang"}, results: 3, runs: 1, last: "OutcomeUnknownError"},
			"nothing took effect":  {once: true, fates: []string{"not executed", "ok"}, results: 2, runs: 2, effects: 1},
			"fails permanently": {fates: []string{"permanent"}, results: 3, runs: 1, last: "Declined",
				acknowledged: true},
		} {
			t.Run(source+"/"+name, func(t *testing.T) {
				t.Parallel()
				env := []string{"ORDERS_SOURCE=" + source, "ORDERS_REPEATABLE=1"}
				if c.once {
					env[1] = "ORDERS_REPEATABLE=0"
				}
				// A quarter of it is all that a claim may take.
				timeout := time.Minute
				if slices.Contains(c.fates, "hang") {
					timeout = 16 * time.Second
				}
				s := newSetup(t, runtime.Function{MaxInstances: 1, Timeout: timeout}, func(n, run int) string {
					if n == 0 {
						return "ok"
					}
					return c.fates[min(run, len(c.fates))-1]
				}, env...)
				s.warmUp(event(0))
				payload, err := json.Marshal(event(1))
				require.NoError(t, err)
				// By then the lease of an attempt that was killed is over, also where the kill
				// came late and the lease was renewed until then.
				delay := lease + 2*margin
				id := &runtime.InvokeOptions{RequestID: "7c6d6b2e-0000-4000-8000-00000000000a"}
				attempt := func() runtime.Result {
					result, err := s.pool.Invoke(t.Context(), payload, id)
					require.NoError(t, err)
					return result
				}
				results := []runtime.Result{attempt()}
				for results[len(results)-1].Error != nil && len(results) < 3 {
					<-time.After(delay)
					results = append(results, attempt())
				}
				want, last := c.results, c.last
				if c.acknowledged && source != "async" {
					want, last = 1, ""
				}
				require.Len(t, results, want, "%+v", results)
				end := results[want-1]
				if last == "" {
					require.Nil(t, end.Error)
				} else {
					require.NotNil(t, end.Error)
					require.Equal(t, last, end.Error.Type)
				}
				for _, r := range results[:want-1] {
					require.NotNil(t, r.Error)
				}

				// Lambda's queue hands the event over once more.
				again := attempt()
				require.Equal(t, end.Error == nil, again.Error == nil)
				require.Equal(t, string(end.Payload), string(again.Payload))
				require.Len(t, s.recorder.Of(1), c.runs)
				require.Equal(t, c.effects, s.effects()[1])
			})
		}
	}
}

// warmUp invokes until the function has its connections and DynamoDB answers in time.
func (s *setup) warmUp(event any) {
	payload, err := json.Marshal(event)
	require.NoError(s.t, err)
	for range 20 {
		result, err := s.pool.Invoke(s.t.Context(), payload, nil)
		require.NoError(s.t, err)
		if result.Error == nil && !strings.Contains(string(result.Payload), "itemIdentifier") {
			return
		}
		s.t.Logf("not warm yet: %s", result.Payload)
	}
	require.FailNow(s.t, "the function does not get warm")
}
