package streampoller

import (
	"encoding/json"
	"fmt"
	"slices"
)

// checkpoint reads a function's answer under ReportBatchItemFailures: the index of
// the first record that is to be delivered again, or the length of the batch. An
// error is an answer that makes the whole batch a failure.
//
// Source: AWS Lambda developer guide, "Configuring partial batch response with
// DynamoDB and Lambda".
func checkpoint(answer []byte, batch []record) (int, error) {
	if len(answer) == 0 || string(answer) == "null" {
		return len(batch), nil
	}
	var response struct {
		Failures []map[string]any `json:"batchItemFailures"`
	}
	if err := json.Unmarshal(answer, &response); err != nil {
		return 0, fmt.Errorf("the answer is no batch response: %w", err)
	}
	first := len(batch)
	for _, f := range response.Failures {
		id, _ := f["itemIdentifier"].(string)
		at := slices.IndexFunc(batch, func(r record) bool { return r.sequence == id })
		if id == "" || at < 0 {
			return 0, fmt.Errorf("itemIdentifier %q is the sequence number of no record of the batch", id)
		}
		first = min(first, at)
	}
	return first, nil
}
