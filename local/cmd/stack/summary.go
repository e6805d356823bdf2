package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

// summary describes the result of one delivery in few words.
type summary struct {
	outcome string
	attempt string // of the operation; "-" if nothing was logged about one
}

// logLine is the library's log line about a call or a message.
type logLine struct {
	Message string `json:"message"`
	Attempt int    `json:"attempt"`
	Reason  string `json:"reason"` // of a queue's message
}

// summary describes an HTTP answer by its status and code, a batch by the log lines about its
// messages, and anything else by the library's last log line.
func (d delivery) summary() summary {
	var lines []logLine
	for _, raw := range d.lines {
		var l logLine
		if json.Unmarshal([]byte(raw), &l) == nil && (strings.HasPrefix(l.Message, "idem: ") || l.Reason != "") {
			lines = append(lines, l)
		}
	}
	st := summary{attempt: attemptsOf(lines)}
	var batch struct {
		Failures []json.RawMessage `json:"batchItemFailures"`
	}
	_ = json.Unmarshal(d.Payload, &batch) // not a batch: no failures
	switch {
	case d.Error != nil:
		st.outcome = "function failed: " + shorten(d.Error.Error(), 80)
	case batch.Failures != nil:
		st.outcome = messagesOf(lines, len(batch.Failures))
	default:
		st.outcome = answerOf(d.Payload, lines)
	}
	return st
}

func attemptsOf(lines []logLine) string {
	var attempts []string
	for _, l := range lines {
		if a := fmt.Sprint(l.Attempt); l.Attempt > 0 && !slices.Contains(attempts, a) {
			attempts = append(attempts, a)
		}
	}
	return cmp.Or(strings.Join(attempts, ", "), "-")
}

// answerOf is for an answer to HTTP, or to a caller of JSON.
func answerOf(payload []byte, lines []logLine) string {
	var answer struct {
		StatusCode int
		Headers    map[string]string
		Body       string
	}
	if json.Unmarshal(payload, &answer) != nil || answer.StatusCode == 0 {
		if len(lines) == 0 {
			return "answered"
		}
		return strings.TrimPrefix(lines[len(lines)-1].Message, "idem: ")
	}
	r := reply{status: answer.StatusCode, body: []byte(answer.Body)}
	for name, value := range answer.Headers {
		r.replayed = r.replayed || http.CanonicalHeaderKey(name) == idemhttp.HeaderReplayed && value == "true"
	}
	return r.say()
}

// messagesOf counts the messages of a batch by their results.
func messagesOf(lines []logLine, back int) string {
	count := map[string]int{}
	for _, l := range lines {
		if l.Reason != "" {
			count[l.Reason]++
		}
	}
	if len(count) == 0 {
		return fmt.Sprintf("%d messages redelivered", back)
	}
	for reason, n := range count {
		if len(count) == 1 && n == 1 {
			return reason // of a batch of one
		}
	}
	return fmt.Sprintf("%s (%d redelivered)", listed(count), back)
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
