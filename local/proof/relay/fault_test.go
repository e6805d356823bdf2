package relay

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// road is the way from the relay to the queue server. It looks into batches.
type road struct {
	URL string
	to  *httputil.ReverseProxy

	mu sync.Mutex
	// refuse picks the entries of a batch that the queue is not given and the relay
	// is told have failed; by message id.
	refuse func(id string) bool
	// taken is called when the queue has taken a batch, before the relay hears of it.
	taken func()
	// before is called before the queue gets a batch; false loses it.
	before func() bool
	// sent counts what the queue was given, by message id.
	sent map[string]int
}

func newRoad(t *testing.T, queue string) *road {
	target, err := url.Parse(queue)
	require.NoError(t, err)
	r := &road{
		to: &httputil.ReverseProxy{
			Rewrite: func(p *httputil.ProxyRequest) { p.SetURL(target) },
			// A killed relay does not wait for its answer.
			ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
		},
		sent: map[string]int{},
	}
	srv := httptest.NewServer(http.HandlerFunc(r.handle))
	t.Cleanup(srv.Close)
	r.URL = srv.URL
	return r
}

// set changes the faults.
func (r *road) set(f func(*road)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refuse, r.taken, r.before = nil, nil, nil
	f(r)
}

// deliveries are the ids that the queue was given, and how often.
func (r *road) deliveries() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	all := map[string]int{}
	for id, n := range r.sent {
		all[id] = n
	}
	return all
}

type batch struct {
	QueueURL string           `json:"QueueUrl"`
	Entries  []map[string]any `json:"Entries"`
}

func idOf(entry map[string]any) string {
	attributes, _ := entry["MessageAttributes"].(map[string]any)
	id, _ := attributes[outbox.AttributeID].(map[string]any)
	s, _ := id["StringValue"].(string)
	return s
}

func (r *road) handle(w http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	var b batch
	if err == nil {
		err = json.Unmarshal(body, &b)
	}
	if err != nil {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	refuse, taken, before := r.refuse, r.taken, r.before
	r.mu.Unlock()
	if before != nil && !before() {
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	var failed, passed []map[string]any
	for _, e := range b.Entries {
		if refuse != nil && refuse(idOf(e)) {
			failed = append(failed, map[string]any{"Id": e["Id"], "SenderFault": false, "Code": "InternalError", "Message": "not now"})
		} else {
			passed = append(passed, e)
		}
	}
	answer := map[string]any{"Successful": []any{}}
	if len(passed) > 0 {
		b.Entries = passed
		body, _ = json.Marshal(b) // it was JSON
		req.Body, req.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		req.Header.Set("Content-Length", strconv.Itoa(len(body)))
		got := httptest.NewRecorder()
		r.to.ServeHTTP(got, req)
		if got.Code != http.StatusOK || json.Unmarshal(got.Body.Bytes(), &answer) != nil {
			w.WriteHeader(got.Code)
			_, _ = w.Write(got.Body.Bytes())
			return
		}
		r.mu.Lock()
		for _, e := range passed {
			r.sent[idOf(e)]++
		}
		r.mu.Unlock()
		if taken != nil {
			taken()
		}
	}
	more, _ := answer["Failed"].([]any)
	for _, f := range failed {
		more = append(more, f)
	}
	answer["Failed"] = more
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	_ = json.NewEncoder(w).Encode(answer)
}
