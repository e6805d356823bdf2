package streampoller

import (
	"encoding/json"
	"fmt"
	"slices"
)

// deliver delivers a batch to the function until all its records are done. It reports false
// if the poller ends before.
func (s *shard) deliver(batch []record) bool {
	for pause := s.Backoff; ; pause = min(2*pause, maxBackoff) {
		done, whole, ended := s.once(batch)
		if ended {
			return false
		}
		s.count(func(st *Stats) { st.Delivered += done })
		if batch = batch[done:]; len(batch) == 0 {
			return true
		}
		if whole && s.BisectBatchOnFunctionError && len(batch) > 1 {
			half := len(batch) / 2
			return s.deliver(batch[:half:half]) && s.deliver(batch[half:])
		}
		if done > 0 {
			pause = s.Backoff // the remaining records have not been tried as often
		}
		if !s.pause(pause) {
			return false
		}
	}
}

// once invokes the function. It returns how many records are done, whether the batch failed
// as a whole, and whether the poller has ended.
func (s *shard) once(batch []record) (done int, whole, ended bool) {
	if s.ctx.Err() != nil {
		return 0, false, true
	}
	s.count(func(st *Stats) { st.Invocations++ })
	answer, err := s.invoke(s.ctx, eventOf(batch))
	if err != nil && s.stops(err) {
		return 0, false, true
	}
	done = len(batch)
	if err == nil && s.ReportBatchItemFailures {
		done, err = checkpoint(answer, batch)
	}
	if err != nil {
		s.Logf("streampoller: shard %s: %d records from %s on: %v", s.id, len(batch), batch[0].sequence, err)
		done, whole = 0, true
	}
	if done < len(batch) {
		s.count(func(st *Stats) { st.Failures++ })
	}
	return done, whole, false
}

// checkpoint reads a function's answer under ReportBatchItemFailures. It returns the index of
// the first record to deliver again, or the length of the batch. After an error the whole
// batch has failed.
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
		return 0, fmt.Errorf("the answer is not a batch response: %w", err)
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
