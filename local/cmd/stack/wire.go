package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
)

// wire stands between the functions and DynamoDB and counts what passes.
type wire struct {
	proxy *httputil.ReverseProxy
	calls atomic.Int64

	mu     sync.Mutex
	writes map[string]int // requests that write to a watched table, by a text in them
}

func newWire(endpoint string) (*wire, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	return &wire{writes: map[string]int{}, proxy: &httputil.ReverseProxy{
		// The host is part of the signature: it stays what the function signed.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(u)
			r.Out.Host = r.In.Host
		},
		Transport: &http.Transport{MaxIdleConnsPerHost: 64},
		// A killed function breaks its connections; that is the tour's doing.
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}}, nil
}

func (w *wire) ServeHTTP(rw http.ResponseWriter, r *http.Request) {
	w.calls.Add(1)
	if _, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); isWrite(action) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			rw.WriteHeader(http.StatusBadGateway) // the function was killed
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		w.count(body)
	}
	w.proxy.ServeHTTP(rw, r)
}

func isWrite(action string) bool {
	switch action {
	case "PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems":
		return true
	}
	return false
}

func (w *wire) count(body []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for text := range w.writes {
		if bytes.Contains(body, []byte(text)) && bytes.Contains(body, []byte(`"`+ordersTable+`"`)) {
			w.writes[text]++
		}
	}
}

// watch counts the writes to the orders' table from now on that bear the text.
func (w *wire) watch(text string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.writes[text] = 0
}

// written is how many there were.
func (w *wire) written(text string) int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.writes[text]
}
