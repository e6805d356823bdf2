package idemlambda

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// sqsStory is what a function makes of a batch.
type sqsStory struct {
	Response json.RawMessage
	Outcomes []sqsLine
}

type sqsLine struct {
	Message, Record string
	Reason          Reason
	Error           string `json:",omitempty"`
	Attempt         int
	Duplicate       bool
}

// The samples as raw JSON through aws-lambda-go: what the function answers the
// first time, the second time, and with a message that fails.
func TestSQSSamples(t *testing.T) {
	for sample, keys := range map[string]map[string]SQSKeyFunc{
		"sqs-standard": {"attribute": SQSAttribute(idem.SingleTenant, SQSKeyAttribute),
			"pointer": SQSPointer(idem.SingleTenant, "/paymentId"), "message": SQSMessageID(idem.SingleTenant)},
		"sqs-fifo": {"deduplication": SQSDeduplicationID(idem.SingleTenant),
			"pointer": SQSPointer("/currency", "/paymentId")},
	} {
		raw := sourceSample(t, sample)
		for name, key := range keys {
			t.Run(sample+" "+name, func(t *testing.T) {
				var seen told
				broken := ""
				h := lambda.NewHandler(SQS(newEngine(t, memory()), charge, key,
					&SQSOptions{OnOutcome: seen.hook, Logger: quiet, Concurrency: 1},
					func(ctx context.Context, p payment) error {
						m, ok := SQSMessageOf(ctx)
						require.True(t, ok)
						require.Contains(t, m.Body, p.ID)
						if p.ID == broken {
							return errors.New("provider is down")
						}
						return nil
					}))
				tell := func() sqsStory {
					seen.all = nil
					out, err := h.Invoke(t.Context(), raw)
					require.NoError(t, err)
					s := sqsStory{Response: slices.Clone(out)}
					for _, o := range seen.all {
						line := sqsLine{Message: o.Event.MessageId, Record: o.RecordID, Reason: o.Reason, Attempt: o.Attempt,
							Duplicate: o.Duplicate}
						if o.Err != nil {
							line.Error = o.Err.Error()
						}
						s.Outcomes = append(s.Outcomes, line)
					}
					return s
				}
				broken = "pay_7Q2M9X4K"
				first := tell()
				broken = ""
				golden(t, "samples/"+sample+"-"+name+".json", []sqsStory{first, tell(), tell()})
			})
		}
	}
}

// Events that no queue sends: no panic, an answer to each, and every message that
// is not acknowledged is named.
func TestSQSMutatedEvents(t *testing.T) {
	for _, sample := range []string{"sqs-standard", "sqs-fifo"} {
		t.Run(sample, func(t *testing.T) {
			seed := decoded[any](t, sample)
			random := rand.New(rand.NewPCG(3, 4))
			keys := []SQSKeyFunc{
				SQSAttribute(idem.SingleTenant, SQSKeyAttribute), SQSAttribute("priority", "trace"),
				SQSPointer(idem.SingleTenant, "/paymentId"),
				SQSPointer("/currency", "/amount"), SQSDeduplicationID(idem.SingleTenant), SQSMessageID(idem.SingleTenant),
			}
			reasons := map[Reason]int{}
			for range mutations / 2 {
				event := seed
				for range 1 + random.IntN(4) {
					event = mutated(random, event)
				}
				raw, err := json.Marshal(event)
				require.NoError(t, err)
				checkBatch(t, keys[random.IntN(len(keys))], raw, reasons)
			}
			for _, r := range []Reason{ReasonExecuted, ReasonReplayed, ReasonKeyInvalid, ReasonBodyUnreadable} {
				require.Greater(t, reasons[r], mutations/200, r)
			}
			if sample == "sqs-fifo" {
				require.Greater(t, reasons[ReasonBlocked], mutations/200)
			}
		})
	}
}

// checkBatch invokes with an event, if it is one for the handler's type.
func checkBatch(t *testing.T, key SQSKeyFunc, raw []byte, reasons map[Reason]int) {
	t.Helper()
	defer func() {
		if p := recover(); p != nil {
			t.Fatalf("%v with %s", p, raw)
		}
	}()
	var event events.SQSEvent
	if json.Unmarshal(raw, &event) != nil {
		return
	}
	var seen told
	h := SQS(newEngine(t, memory()), fulfil, key, &SQSOptions{OnOutcome: seen.hook, Logger: quiet},
		func(context.Context, payment) error { return nil })
	res, err := h(t.Context(), event)
	require.NoError(t, err)
	require.Len(t, seen.all, len(event.Records))
	names := map[string]bool{}
	for _, out := range seen.all {
		reasons[out.Reason]++
		if !out.Reason.Acknowledges() {
			names[out.Event.MessageId] = true
		}
	}
	require.Len(t, res.BatchItemFailures, len(names))
	for _, f := range res.BatchItemFailures {
		require.True(t, names[f.ItemIdentifier])
	}
	answer, err := json.Marshal(res)
	require.NoError(t, err)
	require.Contains(t, string(answer), `"batchItemFailures":[`)
}
