package dynamostore

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"
)

// wire is a transport that counts the calls by operation and can do with them what networks do.
type wire struct {
	next http.RoundTripper
	mu   sync.Mutex
	ops  []string
	// fault handles the n-th call (from 0) since it was set; nil lets it through.
	fault wireFault
	n     int
}

type wireFault = func(n int, op string, req *http.Request) (*http.Response, error)

func (w *wire) RoundTrip(req *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(req.Header.Get("X-Amz-Target"), ".")
	w.mu.Lock()
	w.ops = append(w.ops, op)
	n, fault := w.n, w.fault
	w.n++
	w.mu.Unlock()
	if fault != nil {
		if resp, err := fault(n, op, req); resp != nil || err != nil {
			return resp, err
		}
	}
	return w.next.RoundTrip(req)
}

func (w *wire) set(fault wireFault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.fault, w.n, w.ops = fault, 0, nil
}

// calls returns the operations since the last set or calls.
func (w *wire) calls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	ops := w.ops
	w.ops = nil
	return ops
}

var errReset = errors.New("read: connection reset by peer")

// loseReply lets the request through and drops its answer.
func (w *wire) loseReply(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	if err == nil {
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
	return nil, errReset
}

func (w *wire) loseRequest(*http.Request) (*http.Response, error) { return nil, errReset }

// stripItem takes the old item out of a failed condition's answer, unless that is a transaction's.
func (w *wire) stripItem(req *http.Request) (*http.Response, error) {
	resp, err := w.next.RoundTrip(req)
	transaction := strings.HasSuffix(req.Header.Get("X-Amz-Target"), "TransactWriteItems")
	if err != nil || resp.StatusCode != http.StatusBadRequest || transaction {
		return resp, err
	}
	_ = resp.Body.Close()
	return answer(http.StatusBadRequest, `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException",`+
		`"message":"The conditional request failed"}`), nil
}

// loseFirst loses the replies to the first calls of each of the operations, or of every one where
// none is named, and returns how many it has lost.
func (w *wire) loseFirst(calls int, ops ...string) (lost map[string]int) {
	var mu sync.Mutex
	lost = map[string]int{}
	w.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		if lost[op] == calls || len(ops) > 0 && !slices.Contains(ops, op) {
			return nil, nil
		}
		lost[op]++
		return w.loseReply(req)
	})
	return lost
}

// loseEveryOther loses every other reply to the operation: a try that comes next gets one.
func (w *wire) loseEveryOther(op string) {
	var calls atomic.Int32
	w.set(func(_ int, called string, req *http.Request) (*http.Response, error) {
		if called != op || calls.Add(1)%2 == 0 {
			return nil, nil
		}
		return w.loseReply(req)
	})
}

// before does something before the first call of one of the operations, and says if it was done.
func (w *wire) before(do func(), ops ...string) (done *atomic.Bool) {
	done = new(atomic.Bool)
	w.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
		if slices.Contains(ops, op) && done.CompareAndSwap(false, true) {
			do()
		}
		return nil, nil
	})
	return done
}

// refuse answers the calls of an operation with an error body, or all calls where none is named.
func (w *wire) refuse(op, body string) {
	w.set(func(_ int, called string, _ *http.Request) (*http.Response, error) {
		if op != "" && op != called {
			return nil, nil
		}
		return answer(http.StatusBadRequest, body), nil
	})
}

// hold loses the requests of an operation and returns the last one, to be sent later.
func (w *wire) hold(t *testing.T, op string, lost func() (*http.Response, error)) (late func()) {
	t.Helper()
	var held *http.Request
	w.set(func(_ int, called string, req *http.Request) (*http.Response, error) {
		if called != op {
			return nil, nil
		}
		held = kept(t, req)
		return lost()
	})
	return func() {
		t.Helper()
		require.NotNil(t, held)
		_, err := w.loseReply(held)
		require.ErrorIs(t, err, errReset)
	}
}

// endAfter ends a call's context with its calls-th request, so that no test waits for time to pass.
func endAfter(calls, n int, cancel context.CancelFunc) {
	if n+1 >= calls {
		cancel()
	}
}

// answer makes an answer as DynamoDB sends it.
func answer(status int, body string) *http.Response {
	return &http.Response{
		StatusCode: status, ProtoMajor: 1, ProtoMinor: 1,
		Header:        http.Header{"Content-Type": {"application/x-amz-json-1.0"}, "X-Amzn-Requestid": {"TEST"}},
		Body:          io.NopCloser(strings.NewReader(body)),
		ContentLength: int64(len(body)),
	}
}

const (
	throttled = `{"__type":"com.amazonaws.dynamodb.v20120810#ProvisionedThroughputExceededException",` +
		`"message":"The level of configured provisioned throughput for the table was exceeded. ` +
		`Consider increasing your provisioning level with the UpdateTable API."}`
	throttling = `{"__type":"com.amazon.coral.availability#ThrottlingException","message":"Rate of requests exceeds ` +
		`the allowed throughput."}`
	requestLimit = `{"__type":"com.amazonaws.dynamodb.v20120810#RequestLimitExceeded","message":"Throughput exceeds ` +
		`the current throughput limit for your account."}`
	conflicting = `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionConflictException","message":"Transaction ` +
		`is ongoing for the item"}`
	internal = `{"__type":"com.amazonaws.dynamodb.v20120810#InternalServerError","message":"Internal server error"}`
	noAccess = `{"__type":"com.amazon.coral.service#AccessDeniedException","Message":"User: ` +
		`arn:aws:sts::111122223333:assumed-role/f is not authorized to perform: dynamodb:PutItem"}`
	invalid = `{"__type":"com.amazon.coral.validate#ValidationException","message":"One or more parameter ` +
		`values were invalid"}`
	noTable = `{"__type":"com.amazonaws.dynamodb.v20120810#ResourceNotFoundException","message":"Requested ` +
		`resource not found"}`
)

// over is a store on a wire that leads nowhere.
func over(w *wire) *Store { return must(New(must(NewClient(aws.Config{}, nowhere(w))), "table", nil)) }

func nowhere(w *wire) *ClientOptions {
	return &ClientOptions{Endpoint: "http://127.0.0.1:1", Transport: w}
}

// bodyOf reads a request's body and puts it back.
func bodyOf(t *testing.T, req *http.Request) string {
	t.Helper()
	b, err := io.ReadAll(req.Body)
	require.NoError(t, err)
	req.Body = io.NopCloser(bytes.NewReader(b))
	return string(b)
}

// kept is a request that can be sent later.
func kept(t *testing.T, req *http.Request) *http.Request {
	t.Helper()
	late := req.Clone(context.WithoutCancel(req.Context()))
	late.GetBody, late.Body = nil, io.NopCloser(strings.NewReader(bodyOf(t, req)))
	return late
}
