package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/cloud"
)

// digestShown is how much of a key's digest a line has.
const digestShown = 8

// requestLine is a line about an invocation: what has invoked it, the answer, the record with its state now, the calls
// to DynamoDB, the time.
func requestLine(ctx context.Context, stores []*dynamostore.AdminStore, inv cloud.Invocation) string {
	parts := []string{inv.Source}
	switch {
	case inv.Status > 0:
		answer := fmt.Sprint(inv.Status)
		if inv.Header.Get("Idempotency-Replayed") == "true" {
			answer += " replayed"
		}
		if code := codeOf(inv); code != "" {
			answer += " " + code
		}
		parts = append(parts, answer)
	case strings.Contains(inv.Source, " /"):
		parts = append(parts, "the client has left")
	case strings.HasPrefix(inv.Source, cloud.InvokeOf) && inv.Result.Error == nil:
		parts = append(parts, "done") // whatever the answer is
	default:
		parts = append(parts, batchPart(inv.Result))
	}
	for _, id := range inv.Records {
		parts = append(parts, shortID(id)+stateNow(ctx, stores, id))
	}
	if inv.Function != "" {
		calls := "calls"
		if inv.Calls == 1 {
			calls = "call"
		}
		parts = append(parts, fmt.Sprintf("%d %s", inv.Calls, calls))
	}
	return strings.Join(append(parts, inv.Took.Round(100*time.Microsecond).String()), "  ")
}

// codeOf is the code of a refusal, in either form of idemhttp; empty for any other answer.
func codeOf(inv cloud.Invocation) string {
	var answer struct{ Body string }
	var refusal struct {
		idemhttp.StripeError
		Code idemhttp.Code
	}
	if json.Unmarshal(inv.Result.Payload, &answer) != nil || json.Unmarshal([]byte(answer.Body), &refusal) != nil {
		return ""
	}
	if inv.Header.Get("Content-Type") == idemhttp.ProblemMediaType {
		return string(refusal.Code)
	}
	return string(refusal.Error.Code)
}

// batchPart says what became of a batch.
func batchPart(result runtime.Result) string {
	if result.Error != nil {
		return "returned: " + result.Error.Error()
	}
	var answer struct{ BatchItemFailures []json.RawMessage }
	if err := json.Unmarshal(result.Payload, &answer); err != nil {
		return "returned: " + err.Error()
	}
	if n := len(answer.BatchItemFailures); n > 0 {
		return fmt.Sprintf("%d returned", n)
	}
	return "done"
}

// shortID is a record's id with the beginning of the digest.
func shortID(id string) string {
	at := strings.LastIndex(id, "#")
	if len(id)-at-1 <= digestShown {
		return id
	}
	return id[:at+1+digestShown] + "…"
}

// reads is how often a record is read on a busy machine, whose store gives no answer in time.
const reads = 5

// stateNow is the state of a record now; empty if it is not there.
func stateNow[S protocol.Store](ctx context.Context, stores []S, id string) string {
	for _, store := range stores {
		rec, err := store.Get(ctx, id)
		for n := 1; n < reads && errors.Is(err, idem.ErrStoreUnavailable) && ctx.Err() == nil; n++ {
			rec, err = store.Get(ctx, id)
		}
		if err == nil && rec != nil {
			return " " + string(rec.State)
		}
	}
	return ""
}
