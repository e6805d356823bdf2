package dynamostore

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
)

// The input of accepted work is encrypted too, small and large. A worker that cannot read it runs
// nothing and changes nothing; what cannot be encrypted is not accepted.
func TestTheInputOfAcceptedWorkIsSealed(t *testing.T) {
	t.Parallel()
	g := newGCM(t, 1)
	f := open(t, sealing(g))
	op := idem.Operation{Name: "statement"}
	on := func(o *Options) *idem.Engine {
		e, err := idem.New(f.on(t, o), nil)
		require.NoError(t, err)
		return e
	}
	engine, plain, other := on(sealing(g)), on(&patient), on(sealing(newGCM(t, 2)))
	small := "iban:DE02120300000000202051/EUR"
	large := strings.Repeat(small+", ", 3000) + string(bytes.ToValidUTF8(noise(20<<10), []byte("?")))
	ran := 0
	work := func(e *idem.Engine, id string) (string, error) {
		res, err := later.Work(t.Context(), e, op, id, func(_ context.Context, in string) (string, error) { ran++; return "of " + in[:4], nil })
		return res.Value, err
	}
	for value, input := range map[string]string{"small": small, "large": large} {
		key := op.Key("acme", value)
		broken := errors.New("no key")
		g.sealing.Store(&broken)
		_, err := later.Accept[string](t.Context(), engine, key, input, nil)
		require.Error(t, err)
		rec, err := f.Get(t.Context(), key.ID())
		require.NoError(t, err)
		require.Nil(t, rec)
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
	_, err := idem.Do(t.Context(), engine, key, small, func(context.Context, string) (string, error) { return "", idem.NotExecuted(errBusy) })
	require.ErrorIs(t, err, errBusy)
	before := f.raw(t, key.ID())
	_, err = later.Accept[string](t.Context(), plain, key, small, nil)
	require.ErrorContains(t, err, "Options.Sealer")
	require.Equal(t, before, f.raw(t, key.ID()))
}
