package runtime

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/idem-go/idempotency/local/aws/iam"
)

const (
	apiPrefix = "/2018-06-01/runtime"

	headerRequestID  = "Lambda-Runtime-Aws-Request-Id"
	headerDeadline   = "Lambda-Runtime-Deadline-Ms"
	headerARN        = "Lambda-Runtime-Invoked-Function-Arn"
	headerTrace      = "Lambda-Runtime-Trace-Id"
	headerErrorType  = "Lambda-Runtime-Function-Error-Type"
	trailerErrorBody = "Lambda-Runtime-Function-Error-Body"

	// MaxEventBytes is Lambda's limit on the event of a synchronous invocation.
	MaxEventBytes = 6 << 20
	// MaxResponseBytes is Lambda's limit on the answer.
	MaxResponseBytes = 6<<20 + 100
)

// api is the Runtime API of one instance.
func (i *instance) api() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+apiPrefix+"/invocation/next", i.serveNext)
	mux.HandleFunc("POST "+apiPrefix+"/invocation/{id}/response", i.serveResponse)
	mux.HandleFunc("POST "+apiPrefix+"/invocation/{id}/error", i.serveError)
	return mux
}

// serveNext waits for an event. By this request the process says that it is ready, and that
// the invocation before is over.
func (i *instance) serveNext(w http.ResponseWriter, r *http.Request) {
	i.mu.Lock()
	if len(i.working) >= i.pool.function.Concurrency {
		i.mu.Unlock()
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the invocation before has no answer yet")
		return
	}
	i.polls++
	polls := i.polls
	i.mu.Unlock()
	if polls == 1 {
		close(i.first)
	}
	// Each worker's first poll follows no invocation. The worker is not known, but only the
	// number of workers that are back matters.
	if polls > i.pool.function.Concurrency {
		select {
		case i.polled <- struct{}{}:
		default:
		}
	}
	select {
	case <-r.Context().Done():
		i.leave()
	case h := <-i.inbox:
		if r.Context().Err() != nil {
			h.taken <- false // the worker went away at the same time
			i.leave()
			return
		}
		inv := h.invocation
		i.mu.Lock()
		inv.deadline = time.Now().Add(i.pool.function.Timeout)
		i.working = append(i.working, inv)
		i.mu.Unlock()
		h.taken <- true
		header := w.Header()
		header.Set("Content-Type", "application/json")
		header.Set("Content-Length", strconv.Itoa(len(inv.payload)))
		header.Set(headerRequestID, inv.id)
		header.Set(headerDeadline, strconv.FormatInt(inv.deadline.UnixMilli(), 10))
		header.Set(headerARN, iam.ARN("lambda", "function:"+i.pool.function.Name))
		header.Set(headerTrace, inv.trace)
		w.Write(inv.payload) // a process that has ended by now is noticed by its exit
	}
}

func (i *instance) serveResponse(w http.ResponseWriter, r *http.Request) {
	inv := i.open(w, r)
	if inv == nil {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxResponseBytes))
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); tooLarge {
		i.answer(inv, lambdaError(TypeResponseTooLarge, inv.id,
			"Response payload size exceeded maximum allowed payload size (%d bytes).", MaxResponseBytes))
		refuse(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "the response is too large")
		return
	}
	if err != nil {
		return // the process went away while it was writing; its exit tells
	}
	out := outcome{Result: Result{Payload: body}}
	// A reader that fails while the body is sent is reported behind the body.
	if kind := r.Trailer.Get(headerErrorType); kind != "" {
		report, err := base64.StdEncoding.DecodeString(r.Trailer.Get(trailerErrorBody))
		if err != nil {
			refuse(w, http.StatusBadRequest, "InvalidTrailer", "the error body is not base64")
			return
		}
		out = postedError(report, kind)
	}
	accept(w, i.answer(inv, out))
}

func (i *instance) serveError(w http.ResponseWriter, r *http.Request) {
	inv := i.open(w, r)
	if inv == nil {
		return
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, MaxResponseBytes))
	if err != nil {
		refuse(w, http.StatusRequestEntityTooLarge, "RequestEntityTooLarge", "the error is too large")
		return
	}
	accept(w, i.answer(inv, postedError(body, r.Header.Get(headerErrorType))))
}

// open finds the invocation that the request is about, or refuses. A repeated delivery can
// give several the same id: open returns the oldest, since they have the same event.
func (i *instance) open(w http.ResponseWriter, r *http.Request) *invocation {
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, inv := range i.working {
		if inv.id == r.PathValue("id") {
			return inv
		}
	}
	refuse(w, http.StatusBadRequest, "InvalidRequestID", "this instance does not work on that request")
	return nil
}

func accept(w http.ResponseWriter, first bool) {
	if !first {
		refuse(w, http.StatusForbidden, "InvalidStateTransition", "the invocation has its outcome already")
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusAccepted)
	io.WriteString(w, `{"status":"OK"}`)
}

func refuse(w http.ResponseWriter, status int, kind, message string) {
	body, _ := json.Marshal(FunctionError{Type: kind, Message: message}) // strings cannot fail
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(body)
}
