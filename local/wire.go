package main

import (
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync/atomic"
)

// wire stands between the functions and DynamoDB and counts what passes.
type wire struct {
	proxy *httputil.ReverseProxy
	calls atomic.Int64
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
	w.proxy.ServeHTTP(rw, r)
}
