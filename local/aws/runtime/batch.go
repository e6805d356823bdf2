package runtime

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
)

// BatchItemFailures reads a function's answer to a batch of an event source mapping with
// ReportBatchItemFailures: the ids of the items that have failed, each once. An empty answer, and
// one without a list, mean success. After an error the whole batch counts as failed: the answer is
// not JSON of this form, or names an id that is not of this batch.
//
// Source: AWS Lambda developer guide, "Handling errors for an SQS event source in Lambda" and
// "Configuring partial batch response with DynamoDB and Lambda". They do not mention JSON of another
// form. It counts as a failure, since nothing is lost then.
func BatchItemFailures(answer []byte, ids []string) (failed []string, err error) {
	if len(bytes.TrimSpace(answer)) == 0 {
		return nil, nil
	}
	// Maps, because struct fields match names in any case.
	var response map[string]json.RawMessage
	if err := json.Unmarshal(answer, &response); err != nil {
		return nil, fmt.Errorf("the answer is not a batch response: %w", err)
	}
	var items []map[string]any
	if list, ok := response["batchItemFailures"]; ok {
		if err := json.Unmarshal(list, &items); err != nil {
			return nil, fmt.Errorf("batchItemFailures: %w", err)
		}
	}
	for i, item := range items {
		id, ok := item["itemIdentifier"].(string)
		switch {
		case !ok || id == "" || !slices.Contains(ids, id):
			return nil, fmt.Errorf("batchItemFailures[%d]: itemIdentifier %v is not of this batch", i, item["itemIdentifier"])
		case !slices.Contains(failed, id):
			failed = append(failed, id)
		}
	}
	return failed, nil
}
