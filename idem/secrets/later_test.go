package secrets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/secrets"
)

// What is accepted for later is found by its worker and by its status id, whichever secret it is
// under: the message names the record as it lies.
func TestWhatIsAcceptedIsFoundInARotation(t *testing.T) {
	r := newRig(t)
	a, b := r.process(secrets.New(secretA, secretB)), r.process(secrets.New(secretB, secretA))
	var ids []string
	accept := func(p *process, value string) string {
		t.Helper()
		res, err := later.Accept[string](t.Context(), p.engine, p.op.Key("t", value), "input", func(_ context.Context, id string) error {
			ids = append(ids, id)
			return nil
		})
		require.NoError(t, err)
		require.Equal(t, idem.Pending, res.Outcome.RecordState)
		return res.Outcome.StatusID
	}
	status := map[string]string{"former": accept(a, "former"), "current": accept(b, "current")}
	for value, id := range status {
		require.Equal(t, id, accept(a, value))
		require.Equal(t, id, accept(b, value))
	}
	require.Len(t, ids, 2)

	// One that follows a mark, and one over what may have been executed before it was
	// released under the former secret.
	errBusy := errors.New("busy")
	b.faults.Next(idemtest.Acquire, func(context.Context, *idemtest.Call) error { return errBusy })
	_, err := b.charge("followed")
	require.Error(t, err)
	status["followed"] = accept(a, "followed")
	_, err = idem.Do(t.Context(), a.engine, a.op.Key("t", "released"), "input", func(context.Context, string) (string, error) { return "", errBusy })
	require.ErrorIs(t, err, errBusy)
	status["released"] = accept(b, "released")
	require.Len(t, ids, 4)
	require.Equal(t, b.op.Key("t", "followed").ID(), ids[2])
	require.Equal(t, a.op.Key("t", "released").ID(), ids[3])

	for i, id := range ids {
		for _, p := range []*process{b, a} {
			res, err := later.Work(t.Context(), p.engine, p.op, id, func(_ context.Context, in string) (string, error) {
				r.ran.Add(1)
				return "done of " + in, nil
			})
			require.NoError(t, err)
			require.Equal(t, "done of input", res.Value)
		}
		require.EqualValues(t, i+1, r.ran.Load())
	}
	for value, id := range status {
		for _, p := range []*process{b, a} {
			out, err := later.StatusOf(t.Context(), p.engine, p.op, "t", id)
			require.NoError(t, err, value)
			require.Equal(t, idem.Completed, out.RecordState)
		}
	}
}
