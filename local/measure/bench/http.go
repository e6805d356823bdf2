package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
)

const (
	// maxHTTPShare is how much time the HTTP contract may take, beyond the engine,
	// per unit of fingerprint and codec; its own of both are part of it.
	maxHTTPShare = 1.0
	// maxHTTPAllocs is how many allocations it may make beyond the engine's: fewer
	// than 60.
	maxHTTPAllocs = 59
)

// httpBench compares requests served under the HTTP contract with the engine
// alone, which gets key, fingerprint and response ready-made.
func httpBench(rounds int) error {
	in := sample()
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	fmt.Printf("HTTP contract over the engine, %d bytes of JSON in and out, median of %d rounds\n", len(raw), rounds)
	fmt.Printf("  %-10s %14s %14s %14s %7s %9s\n", "", "fp and codec", "engine", "with HTTP", "adds", "allocs")
	return errors.Join(
		compareHTTP("first", rounds, in, firstAlone, firstExecute, firstServe),
		compareHTTP("replay", rounds, in, replayAlone, replayExecute, replayServe),
	)
}

func compareHTTP(name string, rounds int, in order, alone, engine, served bench) error {
	var times [3][]float64
	var allocs [3]int64
	for range rounds {
		for i, f := range []bench{alone, engine, served} {
			r := testing.Benchmark(func(b *testing.B) { f(b, in) })
			times[i], allocs[i] = append(times[i], float64(r.NsPerOp())), r.AllocsPerOp()
		}
	}
	base, without, with := middle(times[0]), middle(times[1]), middle(times[2])
	more := allocs[2] - allocs[1]
	share := (with - without) / base
	fmt.Printf("  %-10s %11.1f µs %11.1f µs %11.1f µs %6.2fx %+9d\n", name, base/1e3, without/1e3, with/1e3, share, more)
	switch {
	case base == 0 || without == 0 || with == 0:
		return fmt.Errorf("HTTP %s: a benchmark did not run", name)
	case share > maxHTTPShare:
		return fmt.Errorf("HTTP %s: the contract takes %.2f times the time of fingerprint and codec, at most %.2f is allowed", name, share, maxHTTPShare)
	case more > maxHTTPAllocs:
		return fmt.Errorf("HTTP %s: the contract makes %d allocations beyond the engine's, at most %d are allowed", name, more, maxHTTPAllocs)
	}
	return nil
}

const httpTenant = "acme"

// payment is a request as an adapter makes it of an HTTP API's event.
func payment(body []byte) *idemhttp.Request {
	return &idemhttp.Request{
		Method: "POST", Route: "/payments", Path: "/payments",
		Header: map[string][]string{
			"accept": {"*/*"}, "content-type": {"application/json"}, "content-length": {"1000"},
			"host": {"api.example.com"}, "user-agent": {"bench"}, "x-forwarded-for": {"203.0.113.17"},
			"x-forwarded-port": {"443"}, "x-forwarded-proto": {"https"}, "idempotency-key": {""},
		},
		Body:     body,
		Identity: idemhttp.Identity{Claims: map[string]string{"sub": httpTenant}},
	}
}

func keyOf(n int) string { return "a-key-of-at-least-16-characters-" + strconv.Itoa(n) }

// fixtures are an engine, a contract over it, and a request with its response.
type fixtures struct {
	engine   *idem.Engine
	contract *idemhttp.Contract
	request  *idemhttp.Request
	response *idemhttp.Response
	ran      int
}

func setUp(b *testing.B, in order) *fixtures {
	b.ReportAllocs()
	body, err := json.Marshal(in)
	if err != nil {
		b.Fatal(err)
	}
	f := &fixtures{request: payment(body), response: &idemhttp.Response{
		Status: 201, Body: body,
		Headers: map[string]string{"Content-Type": "application/json", "Location": "/payments/ord_01J9ZQ8N3V", "Cache-Control": "no-store"},
	}}
	if f.engine, err = idem.New(memstore.New(), nil); err == nil {
		f.contract, err = idemhttp.New(f.engine, idemhttp.Routes{"POST /payments": work}, &idemhttp.Options{Tenant: idemhttp.Claim("sub")})
	}
	if err != nil {
		b.Fatal(err)
	}
	return f
}

// serve sends the request with a key, and returns whether it was a replay.
func (f *fixtures) serve(b *testing.B, key string) bool {
	f.request.Header["idempotency-key"][0] = key
	res, err := f.contract.Serve(b.Context(), f.request, func(context.Context) (*idemhttp.Response, error) {
		f.ran++
		return f.response, nil
	})
	if err != nil || res.Status != 201 || !bytes.Equal(res.Body, f.response.Body) {
		b.Fatalf("%+v %v", res, err)
	}
	return res.Headers[idemhttp.HeaderReplayed] == "true"
}

// execute does the engine's part of it.
func (f *fixtures) execute(b *testing.B, key idem.Key, fp idem.Fingerprint) bool {
	out, err := f.engine.Execute(b.Context(), idem.Call{Key: key, Fingerprint: fp, Run: func(context.Context) idem.Answer {
		f.ran++
		return idem.Answer{Body: f.response.Body}
	}})
	if err != nil || !bytes.Equal(out.Body, f.response.Body) {
		b.Fatalf("%+v %v", out, err)
	}
	return out.Replayed
}

func firstServe(b *testing.B, in order) {
	f, n := setUp(b, in), 0
	for b.Loop() {
		if f.serve(b, keyOf(n)) {
			b.Fatal("a first request was a replay")
		}
		n++
	}
	f.requireRan(b, n)
}

func firstExecute(b *testing.B, in order) {
	f, n := setUp(b, in), 0
	fp := idem.FingerprintBytes(f.request.Body)
	for b.Loop() {
		if f.execute(b, work.Key(httpTenant, keyOf(n)), fp) {
			b.Fatal("a first call was a replay")
		}
		n++
	}
	f.requireRan(b, n)
}

func replayServe(b *testing.B, in order) {
	f := setUp(b, in)
	f.serve(b, keyOf(0))
	for b.Loop() {
		if !f.serve(b, keyOf(0)) {
			b.Fatal("a second request was no replay")
		}
	}
	f.requireRan(b, 1)
}

func replayExecute(b *testing.B, in order) {
	f := setUp(b, in)
	fp := idem.FingerprintBytes(f.request.Body)
	f.execute(b, work.Key(httpTenant, keyOf(0)), fp)
	for b.Loop() {
		if !f.execute(b, work.Key(httpTenant, keyOf(0)), fp) {
			b.Fatal("a second call was no replay")
		}
	}
	f.requireRan(b, 1)
}

func (f *fixtures) requireRan(b *testing.B, n int) {
	if f.ran != n {
		b.Fatalf("the handler ran %d times, not %d", f.ran, n)
	}
}
