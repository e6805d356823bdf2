package idem_test

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

// A reference that was replaced does not come back over the last one said: neither if the
// write that replaced the last one had landed, nor if it lands late.
func TestAReplacedReferenceDoesNotComeBack(t *testing.T) {
	for name, tc := range map[string]struct {
		fault func(held **idemtest.Call) idemtest.Fault
		again bool
	}{
		"reply lost, said again":      {func(**idemtest.Call) idemtest.Fault { return idemtest.LoseReply }, true},
		"request delayed, said again": {idemtest.Hold, true},
		"reply lost, at the end":      {func(**idemtest.Call) idemtest.Fault { return idemtest.LoseReply }, false},
		"request delayed, at the end": {idemtest.Hold, false},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := newRig(t, nil), unsafe.Key("t", "k")
			var held *idemtest.Call
			late := func() {
				if held != nil {
					require.Error(t, held.Do(t.Context()))
				}
			}
			_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				r.faults.Next(idemtest.RecordReference, tc.fault(&held))
				require.ErrorIs(t, idem.SetReference(ctx, "pay_B"), idem.ErrStoreUnavailable)
				if !tc.again {
					r.faults.Always(idemtest.Refuse, idemtest.RecordReference)
					require.ErrorIs(t, idem.SetReference(ctx, "pay_A"), idem.ErrStoreUnavailable)
					return n, errPlain
				}
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				require.Equal(t, "pay_A", r.record(t, key).Ref)
				late()
				require.Equal(t, "pay_A", r.record(t, key).Ref)
				require.NoError(t, idem.SetReference(ctx, "pay_A"), "no longer in doubt")
				return n, errPlain
			})
			require.Error(t, err)
			late()
			rec := r.record(t, key)
			require.Equal(t, idem.Unknown, rec.State)
			require.Equal(t, "pay_A", rec.Ref)
		})
	}
}

// The same with the begin mark of a step that does not begin.
func TestAMarkWithoutAnswerDoesNotKeepItsReference(t *testing.T) {
	for name, fault := range map[string]func(held **idemtest.Call) idemtest.Fault{
		"reply lost":      func(**idemtest.Call) idemtest.Fault { return idemtest.LoseReply },
		"request delayed": idemtest.Hold,
	} {
		t.Run(name, func(t *testing.T) {
			r, key := newRig(t, nil), unsafe.Key("t", "k")
			var held *idemtest.Call
			_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				r.faults.Next(idemtest.RecordStep, fault(&held), idemtest.Refuse)
				err := idem.StepEffect(ctx, "charge", func(context.Context) error { panic("it must not run") },
					&idem.EffectConfig{Semantics: idem.AtMostOnce, Reference: "pay_B"})
				require.ErrorIs(t, err, idem.ErrStoreUnavailable)
				require.NoError(t, idem.SetReference(ctx, "pay_A"))
				if held != nil {
					require.NoError(t, held.Do(t.Context()), "it is over no reference")
				}
				return n, err
			})
			require.Error(t, err)
			require.Equal(t, idem.Unknown, r.record(t, key).State)
			require.Equal(t, "pay_A", r.record(t, key).Ref)
		})
	}
}

// A mark says a reference that is in doubt, although the record had it.
func TestAMarkSaysAReferenceInDoubt(t *testing.T) {
	r, key := newRig(t, nil), unsafe.Key("t", "k")
	_, err := idem.Do(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (int, error) {
		require.NoError(t, idem.SetReference(ctx, "pay_A"))
		r.faults.Next(idemtest.RecordReference, idemtest.LoseReply)
		require.ErrorIs(t, idem.SetReference(ctx, "pay_B"), idem.ErrStoreUnavailable)
		return n, idem.StepEffect(ctx, "charge", func(context.Context) error {
			require.Equal(t, "pay_A", r.record(t, key).Ref)
			return nil
		}, &idem.EffectConfig{Semantics: idem.AtMostOnce, Reference: "pay_A"})
	})
	require.NoError(t, err)
	require.Equal(t, "pay_A", r.record(t, key).Ref)
}
