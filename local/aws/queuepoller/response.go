package queuepoller

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// errReported is why messages that the function has named are redelivered.
var errReported = errors.New("the function reported them as failed")

// verdict says which messages of a batch are redelivered after the function
// was invoked, and why. ids are the batch's message ids.
func (o Options) verdict(result runtime.Result, err error, ids []string) (back []string, why error) {
	switch {
	case err != nil:
		return ids, err
	case result.Error != nil:
		return ids, result.Error
	case !o.ReportBatchItemFailures:
		return nil, nil
	}
	back, err = reported(result.Payload, ids)
	switch {
	case err != nil:
		return ids, fmt.Errorf("the answer is not a report of failed messages, so the whole batch counts as failed: %w", err)
	case len(back) > 0:
		return back, errReported
	}
	return nil, nil
}

// reported reads the ids from an answer. An error means that the whole batch
// has failed. AWS Lambda developer guide, "Handling errors for an SQS event
// source in Lambda", success and failure conditions: an empty or null answer and
// an empty or null list are complete successes; an answer that is not JSON, and
// an itemIdentifier that is empty, null, under another name, or not of this
// batch, are complete failures. The guide does not mention JSON of another form; it counts
// as a failure, since nothing is lost then.
func reported(payload []byte, ids []string) ([]string, error) {
	payload = bytes.TrimSpace(payload)
	if len(payload) == 0 || string(payload) == "null" {
		return nil, nil
	}
	// Maps, because struct fields match names in any case.
	var answer map[string]json.RawMessage
	if err := json.Unmarshal(payload, &answer); err != nil {
		return nil, err
	}
	var items []map[string]json.RawMessage
	if raw, there := answer["batchItemFailures"]; there {
		if err := json.Unmarshal(raw, &items); err != nil {
			return nil, fmt.Errorf("batchItemFailures: %w", err)
		}
	}
	known := make(map[string]bool, len(ids)) // false once named
	for _, id := range ids {
		known[id] = true
	}
	var back []string
	for i, item := range items {
		var id *string
		raw, there := item["itemIdentifier"]
		if !there {
			return nil, fmt.Errorf("batchItemFailures[%d] has no itemIdentifier", i)
		}
		if err := json.Unmarshal(raw, &id); err != nil {
			return nil, fmt.Errorf("batchItemFailures[%d].itemIdentifier: %w", i, err)
		}
		if id == nil || *id == "" {
			return nil, fmt.Errorf("batchItemFailures[%d].itemIdentifier is empty", i)
		}
		fresh, ours := known[*id]
		if !ours {
			return nil, fmt.Errorf("batchItemFailures[%d].itemIdentifier %q is no message of this batch", i, *id)
		}
		if fresh {
			back, known[*id] = append(back, *id), false
		}
	}
	return back, nil
}
