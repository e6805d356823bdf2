package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
)

const (
	// maxShare is how much time the engine may take per unit of fingerprint and
	// codec, maxAllocs how many allocations beyond theirs.
	maxShare  = 1.0
	maxAllocs = 40
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

// memoryBench compares the engine over memory with what every call must do
// anyway.
func memoryBench(rounds int) error {
	in := sample()
	raw, err := json.Marshal(in)
	if err != nil {
		return err
	}
	fmt.Printf("engine over memory, %d bytes of JSON in and out, median of %d rounds\n", len(raw), rounds)
	fmt.Printf("  %-10s %14s %14s %7s %9s\n", "", "alone", "with engine", "adds", "allocs")
	return errors.Join(
		compare("first", rounds, in, firstAlone, firstEngine),
		compare("replay", rounds, in, replayAlone, replayEngine),
	)
}

type bench func(*testing.B, order)

func compare(name string, rounds int, in order, alone, engine bench) error {
	var a, e []float64
	var aAllocs, eAllocs int64
	for range rounds {
		r := testing.Benchmark(func(b *testing.B) { alone(b, in) })
		a, aAllocs = append(a, float64(r.NsPerOp())), r.AllocsPerOp()
		r = testing.Benchmark(func(b *testing.B) { engine(b, in) })
		e, eAllocs = append(e, float64(r.NsPerOp())), r.AllocsPerOp()
	}
	base, with := middle(a), middle(e)
	share := (with - base) / base
	fmt.Printf("  %-10s %11.1f µs %11.1f µs %6.2fx %+9d\n", name, base/1e3, with/1e3, share, eAllocs-aAllocs)
	if with == 0 || base == 0 {
		return fmt.Errorf("%s: a benchmark did not run", name)
	}
	if share > maxShare {
		return fmt.Errorf("%s: the engine takes %.2f times the time of fingerprint and codec, at most %.2f is allowed", name, share, maxShare)
	}
	if eAllocs-aAllocs > maxAllocs {
		return fmt.Errorf("%s: the engine makes %d allocations beyond fingerprint and codec, at most %d are allowed", name, eAllocs-aAllocs, maxAllocs)
	}
	return nil
}

func middle(xs []float64) float64 {
	xs = slices.Clone(xs)
	slices.Sort(xs)
	return xs[len(xs)/2]
}

// fingerprint is what every call does before anything else.
func fingerprint(b *testing.B, in order) {
	raw, err := json.Marshal(in)
	if err == nil {
		_, err = idem.FingerprintJSON(raw, nil)
	}
	if err != nil {
		b.Fatal(err)
	}
}

func firstAlone(b *testing.B, in order) {
	b.ReportAllocs()
	for b.Loop() {
		fingerprint(b, in)
		body, err := json.Marshal(in)
		var out order
		if err == nil {
			err = json.Unmarshal(body, &out)
		}
		if err != nil || out.ID != in.ID {
			b.Fatal(err)
		}
	}
}

func firstEngine(b *testing.B, in order) {
	b.ReportAllocs()
	e, err := idem.New(memstore.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	ran, n := 0, 0
	for b.Loop() {
		out, err := idem.Do(b.Context(), e, work.Key("acme", strconv.Itoa(n)), in, func(_ context.Context, in order) (order, error) {
			ran++
			return in, nil
		})
		n++
		if err != nil || out.ID != in.ID {
			b.Fatal(err)
		}
	}
	if ran != n {
		b.Fatalf("%d of %d calls ran", ran, n)
	}
}

func replayAlone(b *testing.B, in order) {
	b.ReportAllocs()
	body, err := json.Marshal(in)
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		fingerprint(b, in)
		var out order
		if err := json.Unmarshal(body, &out); err != nil || out.ID != in.ID {
			b.Fatal(err)
		}
	}
}

func replayEngine(b *testing.B, in order) {
	b.ReportAllocs()
	e, err := idem.New(memstore.New(), nil)
	if err != nil {
		b.Fatal(err)
	}
	ran := 0
	call := func() (order, error) {
		return idem.Do(b.Context(), e, work.Key("acme", "one"), in, func(_ context.Context, in order) (order, error) {
			ran++
			return in, nil
		})
	}
	if _, err := call(); err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if out, err := call(); err != nil || out.ID != in.ID {
			b.Fatal(err)
		}
	}
	if ran != 1 {
		b.Fatalf("the handler ran %d times", ran)
	}
}
