package runtime

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"sync"
	"time"

	smithyrand "github.com/aws/smithy-go/rand"
)

// Error types as Lambda reports them.
const (
	// TypeTimedOut: there was no answer by the deadline, or the init took too long.
	// The process was killed, unless it may have several invocations.
	TypeTimedOut = "Sandbox.Timedout"
	// TypeExit: the process ended without an answer.
	TypeExit = "Runtime.ExitError"
	// TypeResponseTooLarge: the answer was over the limit.
	TypeResponseTooLarge = "Function.ResponseSizeTooLarge"
	// TypeInvalidEntrypoint: the process could not be started.
	TypeInvalidEntrypoint = "Runtime.InvalidEntrypoint"
)

// Result is the outcome of one invocation.
type Result struct {
	RequestID string
	// Payload is the function's answer or, with Error, the JSON of the error,
	// as Lambda's Invoke would return it.
	Payload []byte
	// Error is nil unless the function failed.
	Error *FunctionError
	// Killed reports that a signal ended the process before it had answered: that of the
	// time-out, of Kill, or another one.
	Killed bool
	// PID is the process that worked on it, 0 if none could be started.
	PID int
	// ColdStart reports that the process was started for this invocation.
	ColdStart bool
}

// FunctionError is an error that the function posted, or that Lambda reports in
// its place.
type FunctionError struct {
	Type       string          `json:"errorType"`
	Message    string          `json:"errorMessage"`
	StackTrace json.RawMessage `json:"stackTrace,omitempty"`
}

// Error returns type and message.
func (e *FunctionError) Error() string { return e.Type + ": " + e.Message }

// outcome is a result without what the caller knows of its process.
type outcome struct {
	Result
	cut bool // the process was ended, or none could be started, before it had answered
}

// lambdaError is an outcome that the platform reports.
func lambdaError(kind, requestID, format string, args ...any) outcome {
	err := &FunctionError{Type: kind, Message: "RequestId: " + requestID + " Error: " + fmt.Sprintf(format, args...)}
	payload, _ := json.Marshal(err) // two strings cannot fail
	return outcome{Result: Result{Payload: payload, Error: err}}
}

// postedError is an outcome that the function reports.
func postedError(body []byte, headerType string) outcome {
	err := &FunctionError{}
	if json.Unmarshal(body, err) != nil {
		err = &FunctionError{Message: string(body)}
	}
	err.Type = cmp.Or(err.Type, headerType)
	return outcome{Result: Result{Payload: body, Error: err}}
}

// timedOut is the outcome of an invocation whose process is killed for its time-out.
func timedOut(requestID, format string, args ...any) outcome {
	out := lambdaError(TypeTimedOut, requestID, format, args...)
	out.Killed, out.cut = true, true
	return out
}

func exitError(requestID string, state *os.ProcessState) outcome {
	out := lambdaError(TypeExit, requestID, "Runtime exited without providing a reason")
	if state.ExitCode() != 0 {
		out = lambdaError(TypeExit, requestID, "Runtime exited with error: %s", state)
	}
	out.Killed = state.ExitCode() == -1 // ended by a signal
	out.cut = true
	return out
}

// invocation is one event on its way through one instance. deadline is set when a worker takes
// it; the outcome is set once.
type invocation struct {
	id, trace string
	payload   []byte
	deadline  time.Time

	posted   chan struct{} // closed when the process has posted an outcome, in time or not
	answered chan struct{} // closed when the outcome is set

	once    sync.Once
	outcome outcome
}

func newInvocation(payload []byte, opts *InvokeOptions) *invocation {
	return &invocation{
		id: cmp.Or(opts.RequestID, randomUUID()), trace: cmp.Or(opts.Trace, NewTrace()), payload: payload,
		posted: make(chan struct{}), answered: make(chan struct{}),
	}
}

// NewTrace makes the trace header of an invocation. The AWS SDK for Go sends it with each call that a function makes
// in the invocation.
func NewTrace() string {
	return fmt.Sprintf("Root=1-%08x-%s;Parent=%s;Sampled=0", time.Now().Unix(), randomHex(12), randomHex(8))
}

// finish sets the outcome and reports whether it was the first to do so.
func (inv *invocation) finish(out outcome) bool {
	first := false
	inv.once.Do(func() {
		first = true
		inv.outcome = out
		close(inv.answered)
	})
	return first
}

func (inv *invocation) done() bool {
	select {
	case <-inv.answered:
		return true
	default:
		return false
	}
}

// result is for the caller; only after the outcome is set.
func (inv *invocation) result(pid int, cold bool) Result {
	<-inv.answered
	r := inv.outcome.Result
	r.RequestID, r.PID, r.ColdStart = inv.id, pid, cold
	return r
}

func randomHex(n int) string {
	b := make([]byte, n)
	rand.Read(b) // never fails, by its documentation
	return hex.EncodeToString(b)
}

func randomUUID() string {
	id, _ := smithyrand.NewUUID(rand.Reader).GetUUID() // the reader never fails, by its documentation
	return id
}
