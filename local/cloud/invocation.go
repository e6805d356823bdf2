package cloud

import (
	"context"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// InvokeOf is before the function's name in the source of an invocation by Invoke of Lambda.
const InvokeOf = "Invoke of "

// Invocation is a request to an API, a batch that a function was given, or an Invoke of Lambda. Those by schedules are
// left out.
type Invocation struct {
	// Source is the method and path of a request, or what has invoked the function: a queue, a table's stream, or
	// [InvokeOf] with its name.
	Source string
	// Function is its name; empty if the API has answered a request without it.
	Function string
	// Result is the function's.
	Result runtime.Result
	// Status and Header of the answer to a request; Status is 0 if there was none, as the client has left, and for what
	// else invokes functions.
	Status int
	Header http.Header
	// Calls to DynamoDB.
	Calls int
	// Records are the ids of the records that these calls named.
	Records []string
	// Took is the time until the answer.
	Took time.Duration

	pool *runtime.Pool // that has its process
	made []string      // calls to DynamoDB, without retries
}

// note keeps the records of a call.
func (i *Invocation) note(body []byte) {
	for _, id := range recordsIn(body) {
		if !slices.Contains(i.Records, id) {
			i.Records = append(i.Records, id)
		}
	}
}

type sourceKey struct{}

// from is the context of what invokes a function.
func from(ctx context.Context, source string) context.Context {
	return context.WithValue(ctx, sourceKey{}, source)
}

// request is one to an API, with the invocation that has answered it.
type request struct{ ended atomic.Pointer[Invocation] }

func (f *front) begin(function string, pool *runtime.Pool) (trace string, inv *Invocation) {
	trace, inv = runtime.NewTrace(), &Invocation{Function: function, pool: pool}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.invocations[trace] = inv
	return trace, inv
}

// end ends it: calls that come later belong to none.
func (f *front) end(trace string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.invocations, trace)
}

// invoked reports an invocation. Nothing waits for that.
func (r *Running) invoked(inv Invocation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.options.Invoked != nil && !r.closed {
		r.reports.Go(func() { r.options.Invoked(inv) })
	}
}

// observed reports the requests to an API after their answers.
func (r *Running) observed(api http.Handler) http.Handler {
	if r.options.Invoked == nil {
		return api
	}
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		begun, answer, in := time.Now(), &answer{ResponseWriter: w}, &request{}
		api.ServeHTTP(answer, req.WithContext(context.WithValue(req.Context(), sourceKey{}, in)))
		inv := Invocation{}
		if ended := in.ended.Load(); ended != nil {
			inv = *ended
		}
		inv.Source, inv.Status, inv.Header = req.Method+" "+req.URL.Path, answer.status, w.Header()
		inv.Took = time.Since(begun)
		r.invoked(inv)
	})
}

// answer remembers the status.
type answer struct {
	http.ResponseWriter
	status int
}

func (a *answer) WriteHeader(status int) {
	a.status = status
	a.ResponseWriter.WriteHeader(status)
}

func (a *answer) Write(p []byte) (int, error) {
	if a.status == 0 {
		a.status = http.StatusOK
	}
	return a.ResponseWriter.Write(p)
}
