package idemhttp

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkHTTP is one request of 1 KB JSON with a response of the same size over
// the in-memory store: the first one with its key, and its replay.
func BenchmarkHTTP(b *testing.B) {
	body := fmt.Appendf(nil, `{"amount":4999,"currency":"EUR","items":[%s{}]}`,
		bytes.Repeat([]byte(`{"sku":"A-1","quantity":2,"price":1250},`), 24))
	given := created()
	given.Body = body
	b.Run("first", func(b *testing.B) {
		c, n := newContract(b, memory()), 0
		next := counting(&n, given)
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			r := payment(func(r *Request) { r.Body = body })
			r.Header["idempotency-key"] = []string{"benchmark-key-of-" + strconv.Itoa(i)}
			if _, err := c.Serve(context.Background(), r, next); err != nil {
				b.Fatal(err)
			}
		}
		require.Equal(b, b.N, n)
	})
	b.Run("replay", func(b *testing.B) {
		c, n := newContract(b, memory()), 0
		next := counting(&n, given)
		r := payment(func(r *Request) { r.Body = body })
		serve(b, c, r, next)
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.Serve(context.Background(), r, next); err != nil {
				b.Fatal(err)
			}
		}
		require.Equal(b, 1, n)
	})
	b.Run("codec", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			stored, err := encode(given)
			if err == nil {
				_, err = decode(stored)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("fingerprint", func(b *testing.B) {
		c := newContract(b, memory())
		r := payment(func(r *Request) { r.Body = body })
		b.ReportAllocs()
		for b.Loop() {
			if _, err := c.fingerprint(r); err != nil {
				b.Fatal(err)
			}
		}
	})
}
