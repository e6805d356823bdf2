package dynamostore

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// gcm is a sealer with one key, which can fail.
type gcm struct {
	cipher.AEAD
	sealing, opening atomic.Pointer[error]
	readying         atomic.Pointer[error]
	seals            atomic.Int32
}

func newGCM(tb testing.TB, key byte) *gcm {
	tb.Helper()
	block, err := aes.NewCipher(append(make([]byte, 31), key))
	require.NoError(tb, err)
	aead, err := cipher.NewGCMWithRandomNonce(block)
	require.NoError(tb, err)
	return &gcm{AEAD: aead}
}

func (g *gcm) Ready(context.Context) error {
	if err := g.readying.Load(); err != nil {
		return *err
	}
	return nil
}

func (g *gcm) Seal(_ context.Context, plain, bound []byte) ([]byte, error) {
	g.seals.Add(1)
	if err := g.sealing.Load(); err != nil {
		return nil, *err
	}
	return g.AEAD.Seal(nil, nil, plain, bound), nil
}

func (g *gcm) Open(_ context.Context, sealed, bound []byte) ([]byte, error) {
	if err := g.opening.Load(); err != nil {
		return nil, *err
	}
	return g.AEAD.Open(nil, nil, sealed, bound)
}

type wrong struct{ more int }

func (wrong) Ready(context.Context) error { return nil }

func (w wrong) Seal(_ context.Context, plain, _ []byte) ([]byte, error) {
	if w.more == 0 {
		panic("a " + string(plain))
	}
	return make([]byte, len(plain)+w.more), nil
}

func (wrong) Open(context.Context, []byte, []byte) ([]byte, error) { panic("open") }
func (w wrong) Overhead() int {
	if w.more < -4 {
		return w.more
	}
	return 28
}

// padded seals at the largest overhead.
type padded struct{ *gcm }

const padding = MaxSealOverhead - 28

func (p padded) Overhead() int { return MaxSealOverhead }

func (p padded) Seal(ctx context.Context, plain, bound []byte) ([]byte, error) {
	sealed, err := p.gcm.Seal(ctx, plain, bound)
	return append(make([]byte, padding), sealed...), err
}

func (p padded) Open(ctx context.Context, sealed, bound []byte) ([]byte, error) {
	return p.gcm.Open(ctx, sealed[padding:], bound)
}

func sealing(s Sealer) *Options {
	o := patient
	o.Sealer = s
	return &o
}

// on is another store on the fixture's table.
func (f *fixture) on(tb testing.TB, o *Options) *Store {
	tb.Helper()
	s, err := New(f.client, f.table, o)
	require.NoError(tb, err)
	return s
}
