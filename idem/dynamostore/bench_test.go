package dynamostore

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"
)

// BenchmarkOwnCost is what the store itself costs a call: the client does
// nothing.
func BenchmarkOwnCost(b *testing.B) {
	s, err := New(fake(func(context.Context, any) (item, error) { return nil, nil }), "table", nil)
	require.NoError(b, err)
	ctx, c := context.Background(), claim("t#op#key", "o1")
	done := completion("t#op#key", "o1", jsonResult(1<<10))
	it := encode(full())
	for name, do := range map[string]func() error{
		"claim":    func() error { return s.Acquire(ctx, base, c) },
		"complete": func() error { return s.Finish(ctx, base, done) },
		"decode":   func() error { _, err := decode(it); return err },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if err := do(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
