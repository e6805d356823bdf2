package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
)

// wire is a proxy between the functions and DynamoDB that counts the requests.
type wire struct {
	proxy *httputil.ReverseProxy
	calls atomic.Int64

	watched atomic.Pointer[string]
	writes  atomic.Int64 // to the orders' table, that bear the watched text
}

func newWire(endpoint string) (*wire, error) {
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, err
	}
	return &wire{proxy: &httputil.ReverseProxy{
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
	if text := w.watched.Load(); text != nil && isWrite(r) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			rw.WriteHeader(http.StatusBadGateway) // the function was killed
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
		if bytes.Contains(body, []byte(*text)) && bytes.Contains(body, []byte(`"`+ordersTable+`"`)) {
			w.writes.Add(1)
		}
	}
	w.proxy.ServeHTTP(rw, r)
}

func isWrite(r *http.Request) bool {
	_, action, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	return slices.Contains([]string{"PutItem", "UpdateItem", "DeleteItem", "BatchWriteItem", "TransactWriteItems"}, action)
}

// watch counts the writes to the orders' table from now on that contain the text.
func (w *wire) watch(text string) {
	w.writes.Store(0)
	w.watched.Store(&text)
}
