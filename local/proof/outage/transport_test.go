package outage

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"
)

// fault is what the wire does to a request.
type fault int

const (
	pass      fault = iota
	lostReply       // applied, then the connection breaks
	lostAsk         // never arrives, the connection breaks
	hang            // arrives nowhere, and nothing comes back
	throttle        // DynamoDB's own refusal
	broken          // DynamoDB's own 500
)

var errReset = errors.New("read: connection reset by peer")

// withdraw names the one UpdateItem that takes a claim back.
const withdraw = "withdraw"

// transport is the wire, with a fault per DynamoDB operation.
type transport struct {
	mu     sync.Mutex
	faults map[string]fault
	// kept are the requests that were lost, to be delivered late.
	kept []*http.Request
	sent map[string]int
}

func (t *transport) set(f fault, ops ...string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = map[string]fault{}
	for _, op := range ops {
		t.faults[op] = f
	}
}

func (t *transport) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if bytes.Contains(body, []byte(`":new_owner"`)) {
		op = withdraw
	}
	t.mu.Lock()
	f := t.faults[op]
	if f == lostAsk {
		late := r.Clone(r.Context())
		late.Body = io.NopCloser(bytes.NewReader(body))
		t.kept = append(t.kept, late)
	}
	if t.sent == nil {
		t.sent = map[string]int{}
	}
	t.sent[op]++
	t.mu.Unlock()
	switch f {
	case lostReply:
		res, err := http.DefaultTransport.RoundTrip(r)
		if err == nil {
			_, _ = io.Copy(io.Discard, res.Body)
			_ = res.Body.Close()
		}
		return nil, errReset
	case lostAsk:
		return nil, errReset
	case hang:
		<-r.Context().Done()
		return nil, r.Context().Err()
	case throttle:
		return refusal(r, 400, "ThrottlingException", "Rate of requests exceeds the allowed throughput."), nil
	case broken:
		return refusal(r, 500, "InternalServerError", "Internal server error"), nil
	}
	return http.DefaultTransport.RoundTrip(r)
}

// refusal is an error as DynamoDB sends it.
func refusal(r *http.Request, status int, code, message string) *http.Response {
	namespace := "com.amazonaws.dynamodb.v20120810#"
	if code == "ThrottlingException" {
		namespace = "com.amazon.coral.availability#"
	}
	body := `{"__type":"` + namespace + code + `","message":"` + message + `"}`
	return &http.Response{
		Status: http.StatusText(status), StatusCode: status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amzn-Requestid": {"refused"}},
		ContentLength: int64(len(body)), Body: io.NopCloser(strings.NewReader(body)), Request: r,
	}
}

// deliver sends what was lost, late, and returns the statuses.
func (t *transport) deliver() ([]int, error) {
	t.mu.Lock()
	kept := t.kept
	t.kept = nil
	t.mu.Unlock()
	var statuses []int
	for _, r := range kept {
		late, err := http.NewRequest(r.Method, r.URL.String(), r.Body)
		if err != nil {
			return nil, err
		}
		late.Header, late.Host, late.ContentLength = r.Header, r.Host, r.ContentLength
		client := http.Client{Timeout: 10 * time.Second}
		res, err := client.Do(late)
		if err != nil {
			return nil, err
		}
		_ = res.Body.Close()
		statuses = append(statuses, res.StatusCode)
	}
	return statuses, nil
}
