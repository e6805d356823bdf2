// Package examples calls the API of the examples, for the tour and for the smoke test.
package examples

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/idem"
)

// The operations of the functions.
var (
	Charge    = idem.Operation{Name: "charge", Repeat: idem.Repeatable}
	Refund    = idem.Operation{Name: "refund", Repeat: idem.NotRepeatable}
	Statement = idem.Operation{Name: "statement", Repeat: idem.Repeatable}
	Fulfil    = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable}
)

// Reply is an HTTP answer.
type Reply struct {
	Status   int
	At       string // the path of the status of what was accepted
	Body     []byte
	replayed bool
	err      error // in place of an answer
}

// String describes a reply, such as "201 executed" or "422 idempotency_key_reused".
func (r Reply) String() string {
	if r.err != nil {
		return r.err.Error()
	}
	summary := "executed"
	if r.replayed {
		summary = "replayed"
	}
	var body struct{ State, Code, Message string } // of the library, or the gateway
	_ = json.Unmarshal(r.Body, &body)              // another form has none of them
	switch {
	case r.Status == http.StatusNoContent:
		return fmt.Sprint(r.Status)
	case r.Status == http.StatusAccepted:
		summary = body.State
	case r.Status >= 400:
		summary = body.Code + body.Message
	}
	return fmt.Sprintf("%d %s", r.Status, summary)
}

// Likewise describes a reply that should have the bytes of another one.
func (r Reply) Likewise(other Reply) string {
	if bytes.Equal(r.Body, other.Body) {
		return r.String() + ", same bytes"
	}
	return r.String() + ", OTHER bytes"
}

// Request is one to the API. Without a key it has none.
type Request struct{ Method, URL, Key, Body string }

// tries bounds how often a request is sent.
const tries = 30

// Send sends the request, after authorize has added who sends it. One that was refused because the store was too slow
// is sent again, as by any client, so that the answer is right on a busy machine.
func (r Request) Send(ctx context.Context, client *http.Client,
	authorize func(r *http.Request, body string) error) (got Reply) {
	for try := 1; ; try++ {
		if got = r.once(ctx, client, authorize); got.Status != http.StatusServiceUnavailable || try == tries ||
			smithytime.SleepWithContext(ctx, time.Second) != nil { // the answer's Retry-After
			return got
		}
	}
}

func (r Request) once(ctx context.Context, client *http.Client,
	authorize func(*http.Request, string) error) (got Reply) {
	req, err := http.NewRequestWithContext(ctx, r.Method, r.URL, strings.NewReader(r.Body))
	if err != nil {
		return Reply{err: err}
	}
	req.Header.Set("Content-Type", "application/json")
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	if err := authorize(req, r.Body); err != nil {
		return Reply{err: err}
	}
	res, err := client.Do(req)
	if err != nil {
		return Reply{err: err}
	}
	defer res.Body.Close()
	got = Reply{Status: res.StatusCode, replayed: res.Header.Get("Idempotency-Replayed") == "true"}
	if at, err := res.Location(); err == nil {
		got.At = at.Path
	}
	got.Body, got.err = io.ReadAll(res.Body)
	return got
}
