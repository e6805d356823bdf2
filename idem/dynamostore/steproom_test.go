package dynamostore

import (
	"context"
	"crypto/sha256"
	"math"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// stepOverhead is what [protocol.StepRoom] counts for a step beside its name, result and
// error.
const stepOverhead = 192

func TestStepsTakeNoMoreThanTheyCount(t *testing.T) {
	digest := sha256.Sum256(nil)
	write := strings.Repeat("W", 26) + ".2147483647"
	large := protocol.Body{Parts: maxParts, Size: resultLimit, Stored: resultLimit, Digest: digest[:], Encoding: encodingZlib}
	for name, s := range map[string]protocol.RecordedStep{
		"begun":        {Begun: true, BegunAt: time.UnixMilli(math.MaxInt64 / 2)},
		"not executed": {NotExecuted: true},
		"failed":       {Failure: &protocol.Failure{Type: "t", Code: "c"}},
		"unavailable":  {Failure: &protocol.Failure{Type: "t", Code: "c"}, Omitted: true, Compensates: true},
		"in parts":     {Body: large, Compensates: true},
		"compressed":   {Body: protocol.Body{Encoding: encodingZlib, Size: resultLimit}, Compensates: true},
	} {
		s.Write = write
		entry := item{"": encodeSteps(map[string]protocol.RecordedStep{"": s})}
		require.LessOrEqual(t, itemSize(entry), stepOverhead, name)
		if s.Body.Size > 0 {
			s.Body.Encoding = encodingZlibSealed
			entry = item{"": encodeSteps(map[string]protocol.RecordedStep{"": s})}
			require.LessOrEqual(t, itemSize(entry), stepOverhead+sealedFields, name)
		}
	}
}

// Results leave the record as it grows: many steps of nearly 1 KB fit, and nothing of
// them stays.
func TestManySteps(t *testing.T) {
	t.Parallel()
	b := openBank(t)
	k := transfer.Key("t", "k")
	const steps = 200
	ran, size := 0, 0
	_, err := idem.Do(t.Context(), b.engine, k, 1, func(ctx context.Context, _ int) (int, error) {
		for n := range steps {
			_, err := idem.Step(ctx, "ship-"+strconv.Itoa(n), func(context.Context) ([]byte, error) { ran++; return noise(700), nil }, nil)
			if err != nil {
				return 0, err
			}
		}
		size = itemSize(b.raw(t, k.ID()))
		return steps, nil
	})
	require.NoError(t, err)
	require.Equal(t, steps, ran)
	require.Less(t, size, 110<<10)
	all, kept := b.parts(t)
	require.Greater(t, all, steps/2)
	require.Zero(t, kept)
}

// Parts of steps expire however their operation ends.
func TestPartsOfStepsExpire(t *testing.T) {
	t.Parallel()
	report := func(ctx context.Context) error {
		_, err := idem.Step(ctx, "report", func(context.Context) ([]byte, error) { return noise(600 << 10), nil }, nil)
		return err
	}
	k := transfer.Key("t", "k")
	for name, end := range map[string]func(t *testing.T, b *bank){
		"completed": func(t *testing.T, b *bank) {
			_, err := idem.Do(t.Context(), b.engine, k, 1, func(ctx context.Context, _ int) (int, error) { return 1, report(ctx) })
			require.NoError(t, err)
		},
		"completed with a transaction, steps not read": func(t *testing.T, b *bank) {
			_, err := idem.Do(t.Context(), b.engine, k, 1, Transact(func(ctx context.Context, tx *Tx, _ int) (int, error) {
				b.move(tx, 0, 1, 30)
				return 1, report(ctx)
			}))
			require.NoError(t, err)
			require.Equal(t, "70", b.balance(t, 0))
		},
		"resolved by a person": func(t *testing.T, b *bank) {
			_, err := idem.Do(t.Context(), b.engine, k, 1, func(ctx context.Context, _ int) (int, error) {
				if err := report(ctx); err != nil {
					return 0, err
				}
				return idem.Step(ctx, "pay", func(context.Context) (int, error) { return 0, errPoor }, &idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			})
			require.Error(t, err)
			require.Equal(t, protocol.Unknown, b.get(t, k.ID()).State)
			r, err := reconcile.New(b.adminStore(t), &reconcile.Options{Now: func() time.Time { return b.now }})
			require.NoError(t, err)
			require.NoError(t, reconcile.Resolve(t.Context(), r, k, 1, reconcile.Change{Actor: "alice", Reason: "the provider says so"}))
		},
		"refused": func(t *testing.T, b *bank) {
			w := protocol.StepWrite{ID: k.ID(), Owner: "nobody", Write: "nobody.1", Name: "report", Result: noise(600 << 10)}
			var conflict *protocol.ConflictError
			require.ErrorAs(t, b.RecordStep(t.Context(), b.now, w), &conflict)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := openBank(t, 100, 0)
			end(t, b)
			all, kept := b.parts(t)
			require.Positive(t, all)
			require.Zero(t, kept)
		})
	}
}
