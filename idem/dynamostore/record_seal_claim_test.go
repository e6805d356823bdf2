package dynamostore

import (
	"bytes"
	"context"
	"crypto/aes"
	"crypto/cipher"
	"errors"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
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
func (f *fixture) on(o *Options) *Store { return must(New(f.client, f.table, o)) }

// Without a key nothing begins, and what has ended is replayed once there is one.
func TestNothingRunsWhoseResultCannotBeSealed(t *testing.T) {
	t.Parallel()
	g := newGCM(t, 1)
	f := open(t, sealing(g))
	engine := f.engine()
	ran := 0
	run := func() (string, error) {
		return idem.Do(t.Context(), engine,
			idem.Operation{Name: "op", OnStoreFailure: idem.FailOpen, Repeat: idem.Repeatable}.Key("t", "k"), 1,
			func(context.Context, int) (string, error) { ran++; return "done", nil })
	}
	for range 2 {
		broken := errors.New("no key")
		g.readying.Store(&broken)
		_, err := run()
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.ErrorIs(t, err, broken)
		g.readying.Store(nil)
		got, err := run()
		require.NoError(t, err)
		require.Equal(t, "done", got)
	}
	require.Equal(t, 1, ran)
}

// A store without the sealer, or with another key, continues nothing that was begun with it.
func TestNothingSealedIsTakenOverByWhoCannotReadIt(t *testing.T) {
	t.Parallel()
	f := open(t, sealing(newGCM(t, 1)))
	errBusy := errors.New("busy")
	for name, mode := range map[string]idem.Mode{"reserved": idem.Reserved, "atomic": idem.Atomic} {
		for _, stepped := range []bool{false, true} {
			key := idem.Operation{Name: "op", Repeat: idem.Repeatable}.Key("t", name+strconv.FormatBool(stepped))
			ran := 0
			run := func(s *Store, mode idem.Mode, err error) (string, error) {
				t.Helper()
				engine := must(idem.New(s, &unhurried))
				op := idem.Operation{Name: "op", Repeat: idem.Repeatable, Mode: mode}
				return idem.Do(t.Context(), engine, op.Key("t", name+strconv.FormatBool(stepped)), 1,
					func(ctx context.Context, _ int) (string, error) {
						ran++
						if stepped {
							if _, sErr := idem.Step(ctx, "book",
								func(context.Context) (string, error) { return "booked", nil }, nil); sErr != nil {
								return "", sErr
							}
						}
						return "done", err
					})
			}
			_, err := run(f.Store, idem.Reserved, idem.NotExecuted(errBusy))
			require.ErrorIs(t, err, errBusy)
			before := f.raw(t, key.ID())
			require.Equal(t, stepped, hasSteps(before))
			without := f.on(&patient)
			_, err = run(without, mode, nil)
			if mode == idem.Atomic && stepped {
				require.ErrorIs(t, err, idem.ErrOutcomeUnknown,
					"the atomic mode goes on with no recorded steps, whichever store recorded them")
				continue
			}
			require.Error(t, err)
			require.ErrorContains(t, err, "Options.Sealer")
			require.Equal(t, before, f.raw(t, key.ID()))
			if mode == idem.Reserved {
				require.ErrorIs(t, err, idem.ErrRecordUnreadable)
				require.Equal(t, 1, ran)
			}
			if stepped {
				_, err = run(f.on(sealing(newGCM(t, 2))), mode, nil)
				require.ErrorIs(t, err, idem.ErrRecordUnreadable)
				require.Equal(t, before, f.raw(t, key.ID()))
				require.Equal(t, 1, ran)
			}
			got, err := run(f.Store, mode, nil)
			require.NoError(t, err)
			require.Equal(t, "done", got)

			ran = 0
			for _, other := range []*Store{without, f.on(sealing(newGCM(t, 2)))} {
				_, err = run(other, mode, nil)
				require.ErrorIs(t, err, idem.ErrRecordUnreadable)
			}
			got, err = run(f.Store, mode, nil)
			require.NoError(t, err)
			require.Equal(t, "done", got)
			require.Zero(t, ran, "an outcome is replayed or not, and never made again")
		}
	}
}

// A resolution writes no plain result to a record whose results are sealed.
func TestAResolutionIsSealedOrRefused(t *testing.T) {
	t.Parallel()
	f := open(t, sealing(newGCM(t, 1)))
	plain := f.on(&patient)
	ctx := t.Context()
	park := func(id string) *protocol.Record {
		f.claimed(t, id, "o1")
		f.begun(t, id, "o1.1", "ship")
		rec := f.get(t, id)
		require.True(t, rec.Sealed)
		return rec
	}
	settle := func(s *Store, rec *protocol.Record, to protocol.State, result, step []byte) error {
		w := protocol.Settlement{ID: rec.ID, Kind: protocol.EventResolve, Seen: rec.Write, Write: "r.1", Owner: "r",
			Sealed: rec.Sealed, Ending: protocol.Ending{State: to, Result: result}}
		if step != nil {
			w.Steps = []protocol.StepWrite{{Name: "ship", Result: step}}
		}
		return s.Settle(ctx, base, w)
	}
	secret := []byte(`"DE02120300000000202051"`)
	rec := park("t#op#1")
	before := f.raw(t, rec.ID)
	for _, err := range []error{settle(plain, rec, protocol.Completed, secret, nil),
		settle(plain, rec, protocol.Released, nil, secret)} {
		says(t, err, "Options.Sealer")
		require.NotContains(t, err.Error(), "DE02")
	}
	require.Equal(t, before, f.raw(t, rec.ID))
	require.NoError(t, settle(f.Store, rec, protocol.Released, nil, secret))
	require.NoError(t, settle(f.Store, park("t#op#2"), protocol.Completed, secret, nil))
	require.NoError(t, settle(plain, park("t#op#3"), protocol.Completed, nil, nil), "it has no value to seal")
	// A record from before the sealer is one of encrypted results from the first claim with it.
	require.NoError(t, plain.Acquire(ctx, base, claim("t#op#4", "o1")))
	again := claim("t#op#4", "o2")
	again.Seen, again.Record.Attempt = "o1.0", 2
	require.NoError(t, f.Acquire(ctx, base, again))
	require.Error(t, settle(plain, f.get(t, "t#op#4"), protocol.Completed, secret, nil))
	require.NotContains(t, string(f.export(t)), "DE02")
	require.Equal(t, secret, f.resultOf(t, "t#op#2"))
	got, err := f.StepResult(ctx, f.get(t, "t#op#1"), "ship")
	require.NoError(t, err)
	require.Equal(t, secret, got)
}

// The input of accepted work is encrypted too, small and large. A worker that cannot read it runs
// nothing and changes nothing; what cannot be encrypted is not accepted.
func TestTheInputOfAcceptedWorkIsSealed(t *testing.T) {
	t.Parallel()
	g := newGCM(t, 1)
	f := open(t, sealing(g))
	op := idem.Operation{Name: "statement"}
	on := func(o *Options) *idem.Engine { return must(idem.New(f.on(o), nil)) }
	engine, plain, other := on(sealing(g)), on(&patient), on(sealing(newGCM(t, 2)))
	small := "iban:DE02120300000000202051/EUR"
	large := strings.Repeat(small+", ", 3000) + string(bytes.ToValidUTF8(noise(20<<10), []byte("?")))
	ran := 0
	work := func(e *idem.Engine, id string) (string, error) {
		res, err := later.Work(t.Context(), e, op, id,
			func(_ context.Context, in string) (string, error) { ran++; return "of " + in[:4], nil })
		return res.Value, err
	}
	for value, input := range map[string]string{"small": small, "large": large} {
		key := op.Key("acme", value)
		broken := errors.New("no key")
		g.sealing.Store(&broken)
		_, err := later.Accept[string](t.Context(), engine, key, input, nil)
		require.Error(t, err)
		require.Nil(t, f.get(t, key.ID()))
		g.sealing.Store(nil)

		_, err = later.Accept[string](t.Context(), engine, key, input, nil)
		require.NoError(t, err)
		before := f.raw(t, key.ID())
		require.True(t, f.get(t, key.ID()).Sealed)
		for _, e := range []*idem.Engine{plain, other} {
			_, err = work(e, key.ID())
			require.ErrorIs(t, err, idem.ErrRecordUnreadable)
			require.Equal(t, before, f.raw(t, key.ID()))
		}
		require.Zero(t, ran)
		exported := f.export(t)
		for how, text := range writings(small) {
			require.False(t, bytes.Contains(exported, []byte(text)), how)
		}
		got, err := work(engine, key.ID())
		require.NoError(t, err)
		require.Equal(t, "of iban", got)
		require.Equal(t, 1, ran)
		require.Equal(t, protocol.Completed, f.get(t, key.ID()).State)
		ran = 0
	}

	// Nor does a store without the sealer put a plain input over what was released.
	key := op.Key("acme", "once more")
	errBusy := errors.New("busy")
	_, err := idem.Do(t.Context(), engine, key, small,
		func(context.Context, string) (string, error) { return "", idem.NotExecuted(errBusy) })
	require.ErrorIs(t, err, errBusy)
	before := f.raw(t, key.ID())
	_, err = later.Accept[string](t.Context(), plain, key, small, nil)
	require.ErrorContains(t, err, "Options.Sealer")
	require.Equal(t, before, f.raw(t, key.ID()))
}
