package main

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// The last lines of an invocation may still be in the pipe when its answer has come. These
// are how long to wait for the first line, and how many checks without a new one end the
// wait.
const (
	logPatience = time.Second
	logLook     = 5 * time.Millisecond
	logQuiet    = 4
)

// outcomeOf is the result of delivering a batch of messages, in few words.
func (s *stack) outcomeOf(ctx context.Context, res runtime.Result) string {
	if res.Error != nil {
		return "function failed: " + shorten(res.Error.Error(), 80)
	}
	return messagesOf(s.logged(ctx, res.RequestID), res.Payload)
}

// logged are the lines that a function has written about a request.
func (s *stack) logged(ctx context.Context, request string) (lines []string) {
	ctx, cancel := context.WithTimeout(ctx, logPatience)
	defer cancel()
	for quiet := 0; quiet < logQuiet; {
		found := s.logs.about(request)
		if quiet++; len(found) > len(lines) || len(found) == 0 {
			lines, quiet = found, 0
		}
		select {
		case <-ctx.Done():
			return lines
		case <-time.After(logLook):
		}
	}
	return lines
}

// messagesOf counts the messages of a batch by the reasons that the function has logged.
func messagesOf(lines []string, payload []byte) string {
	count := map[string]int{}
	for _, raw := range lines {
		var l struct{ Reason string }
		if json.Unmarshal([]byte(raw), &l) == nil && l.Reason != "" {
			count[l.Reason]++
		}
	}
	var batch struct {
		Failures []json.RawMessage `json:"batchItemFailures"`
	}
	_ = json.Unmarshal(payload, &batch) // not a batch: no failures
	if len(count) == 0 {
		return fmt.Sprintf("%d messages redelivered", len(batch.Failures))
	}
	for reason, n := range count {
		if len(count) == 1 && n == 1 {
			return reason // of a batch of one
		}
	}
	return fmt.Sprintf("%s (%d redelivered)", listed(count), len(batch.Failures))
}

// listed lists the counts, the most frequent first.
func listed(count map[string]int) string {
	names := slices.SortedFunc(maps.Keys(count), func(a, b string) int {
		return cmp.Or(cmp.Compare(count[b], count[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(names))
	for i, name := range names {
		parts[i] = fmt.Sprintf("%d × %s", count[name], name)
	}
	return strings.Join(parts, ", ")
}
