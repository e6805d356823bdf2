package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
)

// What may be added, as time per unit of fingerprint and codec, which every call needs
// anyway, and as allocations.
const (
	maxEngineShare, maxEngineAllocs = 1.0, 30 // by the engine, beyond fingerprint and codec
	maxHTTPShare, maxHTTPAllocs     = 1.0, 59 // by the HTTP contract, beyond the engine
	// By metrics and a log line of each notice, beyond the engine: 15 µs, where fingerprint and
	// codec take 23 µs of processor time.
	maxToldShare, maxToldAllocs = 0.65, 20
)

// order is about 1 KB of JSON.
type order struct {
	ID       string            `json:"id"`
	Customer string            `json:"customer"`
	Amount   int64             `json:"amount"`
	Currency string            `json:"currency"`
	Lines    []line            `json:"lines"`
	Notes    map[string]string `json:"notes"`
}

type line struct {
	SKU      string `json:"sku"`
	Quantity int    `json:"quantity"`
	Price    int64  `json:"price"`
}

func sample() order {
	o := order{
		ID: "ord_01J9ZQ8N3V", Customer: "cus_7f3a", Amount: 129900, Currency: "EUR",
		Notes: map[string]string{"gift": strings.Repeat("Happy birthday! ", 12), "door": "ring twice"},
	}
	for i := range 13 {
		o.Lines = append(o.Lines, line{SKU: "sku-" + strconv.Itoa(1000+i), Quantity: i + 1, Price: 999})
	}
	return o
}

var work = idem.Operation{Name: "bench", Repeat: idem.Repeatable}

// memoryBench compares the engine over memory with what every call must do anyway,
// and the HTTP contract with the engine alone, which gets key, fingerprint and
// response ready-made.
func memoryBench() error {
	fmt.Printf("over memory, %d bytes of JSON in and out, median of %d rounds\n", len(newFixture().body), rounds)
	fmt.Printf("  %-8s %-8s %12s %12s %12s %7s  %s %s\n", "path", "added by", "fp and codec", "without", "with", "adds",
		"95 % interval", "allocs")
	var errs []error
	for _, replay := range []bool{false, true} {
		name := map[bool]string{false: "first", true: "replay"}[replay]
		times, allocs := measure(replay, alone, do, observed, execute, serve)
		add := func(what string, from, to int, maxShare float64, maxAllocs int64) {
			var shares []float64
			for i, all := range times[0] {
				shares = append(shares, (times[to][i]-times[from][i])/all)
			}
			low, high := interval(shares)
			more := allocs[to] - allocs[from]
			fmt.Printf("  %-8s %-8s %9.1f µs %9.1f µs %9.1f µs %6.2fx   %.2f to %.2f %+7d\n", name, what,
				middle(times[0])/1e3, middle(times[from])/1e3, middle(times[to])/1e3, middle(shares), low, high, more)
			switch {
			case slices.ContainsFunc(times, func(ts []float64) bool { return slices.Contains(ts, 0) }):
				errs = append(errs, fmt.Errorf("%s: a benchmark did not run", name))
			case low > maxShare:
				errs = append(errs, fmt.Errorf("%s: the %s takes %.2f to %.2f times the time of fingerprint and codec, at most "+
					"%.2f is allowed", name, what, low, high, maxShare))
			case more > maxAllocs:
				errs = append(errs, fmt.Errorf("%s: the %s makes %d allocations more, at most %d are allowed",
					name, what, more, maxAllocs))
			}
		}
		add("engine", 0, 1, maxEngineShare, maxEngineAllocs)
		add("HTTP", 3, 4, maxHTTPShare, maxHTTPAllocs)
		add("EMF, log", 1, 2, maxToldShare, maxToldAllocs)
	}
	return errors.Join(errs...)
}

// measure returns the sides' times in each round and their allocations; they take turns.
func measure(replay bool, sides ...side) (times [][]float64, allocs []int64) {
	times, allocs = make([][]float64, len(sides)), make([]int64, len(sides))
	for range rounds {
		for i, s := range sides {
			r := testing.Benchmark(func(b *testing.B) { s.play(b, replay) })
			times[i], allocs[i] = append(times[i], float64(r.NsPerOp())), r.AllocsPerOp()
		}
	}
	return times, allocs
}

func middle(xs []float64) float64 {
	return slices.Sorted(slices.Values(xs))[len(xs)/2]
}

// side is one call with a key, whose outcome is there already if replay is set.
type side func(f *fixture, key string, replay bool) error

// play makes calls with a fresh key each, or with one key whose outcome is there.
func (s side) play(b *testing.B, replay bool) {
	b.ReportAllocs()
	f, n := newFixture(), 0
	call := func(replay bool) {
		if err := s(f, strconv.Itoa(firstKey+n), replay); err != nil {
			b.Fatal(err)
		}
	}
	if replay {
		call(false)
	}
	want := 1
	for b.Loop() {
		call(replay)
		if !replay {
			n++
			want = n
		}
	}
	if f.ran != want {
		b.Fatalf("the handler ran %d times, not %d", f.ran, want)
	}
}

// firstKey is long enough for the HTTP contract.
const firstKey = 1_000_000_000_000_000

const tenant = "acme"

var errReplay = errors.New("a first call was a replay, or a second one was none")

// fixture is what the sides work with.
type fixture struct {
	in       order
	body     []byte // in, as JSON
	fp       idem.Fingerprint
	engine   *idem.Engine
	observed *idem.Engine // as engine, with metrics and log
	metrics  *emf.Metrics
	contract *idemhttp.Contract
	request  *idemhttp.Request
	response *idemhttp.Response
	ran      int
}

// must is for errors that would be the benchmark's own.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

func newFixture() *fixture {
	f := &fixture{in: sample()}
	f.body = must(json.Marshal(f.in))
	f.fp = fingerprint.Bytes(f.body)
	// As an adapter makes it of an HTTP API's event.
	f.request = &idemhttp.Request{
		Method: "POST", Route: "/payments", Path: "/payments",
		Header: map[string][]string{
			"accept": {"*/*"}, "content-type": {"application/json"}, "content-length": {"1000"},
			"host": {"api.example.com"}, "user-agent": {"bench"}, "x-forwarded-for": {"203.0.113.17"},
			"x-forwarded-port": {"443"}, "x-forwarded-proto": {"https"}, "idempotency-key": {""},
		},
		Body:     f.body,
		Identity: idemhttp.Identity{Claims: map[string]string{"sub": tenant}},
	}
	f.response = &idemhttp.Response{
		Status: 201, Body: f.body,
		Headers: map[string]string{"Content-Type": "application/json", "Location": "/payments/ord_01J9ZQ8N3V",
			"Cache-Control": "no-store"},
	}
	f.metrics = must(emf.New(&emf.Options{Service: "bench", Out: io.Discard}))
	log := slog.New(slog.NewJSONHandler(io.Discard, &slog.HandlerOptions{Level: slog.LevelDebug}))
	f.observed = must(idem.New(memstore.New(),
		&idem.Options{Observer: idem.Observers(f.metrics.Observe, idem.LogTo(log))}))
	f.engine = must(idem.New(memstore.New(), nil))
	f.contract = must(idemhttp.New(f.engine, idemhttp.Routes{"POST /payments": work}, idemhttp.Claim("sub"), nil))
	return f
}

// alone does what every call does: fingerprint, encode the result, decode it. A
// replay has the encoded result.
func alone(f *fixture, _ string, replay bool) error {
	must(fingerprint.JSON(must(json.Marshal(f.in)), nil))
	body := f.body
	if !replay {
		f.ran++
		body = must(json.Marshal(f.in))
	}
	var out order
	err := json.Unmarshal(body, &out)
	if err == nil && out.ID != f.in.ID {
		err = errors.New("another result")
	}
	return err
}

// do is a call of a typed function.
func do(f *fixture, key string, _ bool) error { return f.do(f.engine, key) }

// observed is that with metrics and log, and the line of metrics at the end of an invocation.
func observed(f *fixture, key string, _ bool) error {
	return errors.Join(f.do(f.observed, key), f.metrics.Flush(context.Background()))
}

func (f *fixture) do(engine *idem.Engine, key string) error {
	out, err := idem.Do(context.Background(), engine, work.Key(tenant, key),
		f.in, func(_ context.Context, in order) (order, error) {
			f.ran++
			return in, nil
		})
	if err == nil && out.ID != f.in.ID {
		err = errors.New("another result")
	}
	return err
}

// execute is the engine's part of serve.
func execute(f *fixture, key string, replay bool) error {
	out, err := f.engine.Execute(context.Background(),
		idem.Call{Key: work.Key(tenant, key), Fingerprint: f.fp, Run: func(context.Context) idem.Answer {
			f.ran++
			return idem.Answer{Body: f.body}
		}})
	switch {
	case err != nil:
		return err
	case !bytes.Equal(out.Body, f.body):
		return errors.New("another result")
	case out.Replayed != replay:
		return errReplay
	}
	return nil
}

// serve is a request under the HTTP contract.
func serve(f *fixture, key string, replay bool) error {
	f.request.Header["idempotency-key"][0] = key
	res, err := f.contract.Serve(context.Background(), f.request, func(context.Context) (*idemhttp.Response, error) {
		f.ran++
		return f.response, nil
	})
	switch {
	case err != nil:
		return err
	case res.Status != 201 || !bytes.Equal(res.Body, f.body):
		return fmt.Errorf("another response: %+v", res)
	case (res.Headers[idemhttp.HeaderReplayed] == "true") != replay:
		return errReplay
	}
	return nil
}
