package main

import (
	"bytes"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// wire is a proxy between the functions and DynamoDB that counts the requests.
type wire struct {
	proxy  *httputil.ReverseProxy
	calls  atomic.Int64
	orders atomic.Int64 // those that are about the orders' table
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
	body, err := io.ReadAll(r.Body)
	if err != nil {
		rw.WriteHeader(http.StatusBadGateway) // the function was killed
		return
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	if bytes.Contains(body, []byte(`"`+ordersTable+`"`)) {
		w.orders.Add(1)
	}
	w.proxy.ServeHTTP(rw, r)
}
