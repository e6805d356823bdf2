package dynamostore

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

func TestConformanceSealed(t *testing.T) {
	t.Parallel()
	o := sealing(newGCM(t, 1))
	o.SealedOnly = true
	conformance(t, o)
}

// A sealed result is read in its own place, with its own key and unaltered, or not at all.
func TestSealedResultsFailClosed(t *testing.T) {
	t.Parallel()
	f := open(t, sealing(newGCM(t, 1)))
	ctx := t.Context()
	secret := []byte(`{"iban":"DE02120300000000202051"}`)
	record := func(id string) {
		f.claimed(t, id, "o1")
		for n, step := range []string{"book", "ship"} {
			require.NoError(t, f.RecordStep(ctx, base, protocol.StepWrite{
				ID: id, Owner: "o1", Write: "o1." + strconv.Itoa(n+1), Name: step, Result: secret, First: n == 0,
			}))
		}
	}
	complete := func(id string) { f.completed(t, id, secret) }
	binary := func(it item, name string) []byte { return it[name].(*types.AttributeValueMemberB).Value }
	entry := func(it item, step string) item {
		return it[schema.Steps].(*types.AttributeValueMemberM).Value[step].(*types.AttributeValueMemberM).Value
	}
	for name, damage := range map[string]func(id string){
		"altered": func(id string) { f.change(t, id, func(it item) { binary(it, schema.Body)[20] ^= 1 }) },
		"cut": func(id string) {
			f.change(t, id, func(it item) { it[schema.Body] = &types.AttributeValueMemberB{Value: []byte("x")} })
		},
		"of another record": func(id string) {
			complete(id[1:] + "2") // of the same length
			other := f.raw(t, id[1:]+"2")[schema.Body]
			f.change(t, id, func(it item) { it[schema.Body] = other })
		},
		"of a step of the record": func(id string) {
			record(id + "2")
			other := entry(f.raw(t, id+"2"), "book")[schema.Body]
			f.change(t, id, func(it item) { it[schema.Body] = other })
		},
		"said to be compressed": func(id string) {
			f.change(t, id, func(it item) { it[schema.Encoding] = str(encodingZlibSealed) })
		},
		"said to be of more": func(id string) { f.change(t, id, func(it item) { it[schema.Size] = num("34") }) },
		"said to be sealed twice": func(id string) {
			f.change(t, id, func(it item) { it[schema.Encoding] = str("sealed+sealed") })
		},
	} {
		t.Run(name, func(t *testing.T) {
			id := "t#op#" + name
			complete(id)
			damage(id)
			rec, err := f.Get(ctx, id)
			if err == nil {
				_, err = f.Result(ctx, rec)
			}
			require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
			require.NotContains(t, err.Error(), "iban")
		})
	}
	t.Run("steps exchanged", func(t *testing.T) {
		record("t#op#steps")
		f.change(t, "t#op#steps", func(it item) {
			one, two := entry(it, "book"), entry(it, "ship")
			one[schema.Body], two[schema.Body] = two[schema.Body], one[schema.Body]
		})
		for _, step := range []string{"book", "ship"} {
			_, err := f.StepResult(ctx, f.get(t, "t#op#steps"), step)
			require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
		}
	})
	t.Run("another key", func(t *testing.T) {
		complete("t#op#key")
		_, err := f.on(sealing(newGCM(t, 2))).Result(ctx, f.get(t, "t#op#key"))
		require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
	})
	t.Run("a key that cannot be had now", func(t *testing.T) {
		complete("t#op#now")
		g := newGCM(t, 1)
		err := error(&protocol.StoreError{Op: "Decrypt", Err: errors.New("throttled")})
		g.opening.Store(&err)
		_, err = f.on(sealing(g)).Result(ctx, f.get(t, "t#op#now"))
		isStoreError(t, err, false)
		require.NotErrorIs(t, err, protocol.ErrRecordUnreadable)
	})
	t.Run("plain", func(t *testing.T) {
		before := f.on(&patient)
		require.NoError(t, before.Acquire(ctx, base, claim("t#op#plain", "o1")))
		require.NoError(t, before.Finish(ctx, base, completion("t#op#plain", "o1", secret)))
		require.Equal(t, secret, f.resultOf(t, "t#op#plain"))
		o := sealing(newGCM(t, 1))
		o.SealedOnly = true
		_, err := f.on(o).Result(ctx, f.get(t, "t#op#plain"))
		require.ErrorIs(t, err, protocol.ErrRecordUnreadable)
	})
}

// What has run is recorded and never runs again, whatever the sealer does. Its result is added once it can be sealed.
func TestAResultThatCannotBeSealed(t *testing.T) {
	t.Parallel()
	broken := errors.New("no key")
	for name, mode := range map[string]idem.Operation{
		"reserved": {Name: "reserved", Repeat: idem.Repeatable},
		"atomic":   {Name: "atomic", Repeat: idem.Repeatable, Mode: idem.Atomic},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGCM(t, 1)
			f := open(t, sealing(g))
			engine := f.engine()
			ran := 0
			run := func() (string, error) {
				return idem.Do(t.Context(), engine, mode.Key("t", "k"),
					1, func(context.Context, int) (string, error) { ran++; return "done", nil })
			}
			g.sealing.Store(&broken)
			got, err := run()
			require.NoError(t, err)
			require.Equal(t, "done", got)
			require.Equal(t, protocol.Completed, f.get(t, mode.Key("t", "k").ID()).State)

			g.sealing.Store(nil)
			require.NoError(t, engine.Flush(t.Context()))
			got, err = run()
			require.NoError(t, err)
			require.Equal(t, "done", got)
			require.Equal(t, 1, ran)
			require.Equal(t, encodingSealed, f.get(t, mode.Key("t", "k").ID()).Body.Encoding)
		})
	}
}

// A step that cannot be sealed stops its operation, which ends by its declaration: as after any step
// that cannot be recorded, nothing is lost, and nothing goes on as if the step had failed.
func TestAStepThatCannotBeSealed(t *testing.T) {
	t.Parallel()
	broken := errors.New("no key")
	for name, tc := range map[string]struct {
		repeat    idem.Repeat
		semantics idem.StepSemantics
		ran       int
		then      protocol.State
	}{
		"repeatable":     {idem.Repeatable, idem.AtLeastOnce, 2, protocol.Completed},
		"not repeatable": {idem.NotRepeatable, idem.AtLeastOnce, 1, protocol.Unknown},
		"at most once":   {idem.Repeatable, idem.AtMostOnce, 1, protocol.Unknown},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGCM(t, 1)
			f := open(t, sealing(g))
			engine := f.engine()
			k := idem.Operation{Name: "op", Repeat: tc.repeat}.Key("t", "k")
			ran := 0
			run := func() error {
				_, err := idem.Do(t.Context(), engine, k, 1, func(ctx context.Context, _ int) (string, error) {
					return idem.Step(ctx, "book", func(context.Context) (string, error) { ran++; return "booked", nil },
						&idem.StepConfig[string]{Semantics: tc.semantics})
				})
				return err
			}
			g.sealing.Store(&broken)
			require.ErrorIs(t, run(), idem.ErrStoreUnavailable)
			step, there := f.get(t, k.ID()).Steps["book"]
			require.Equal(t, tc.semantics == idem.AtMostOnce, there && step.Begun)
			g.sealing.Store(nil)
			require.Equal(t, tc.then == protocol.Completed, run() == nil)
			require.Equal(t, tc.then, f.get(t, k.ID()).State)
			require.Equal(t, tc.ran, ran)
		})
	}
}

// A sealer that panics or makes more of a result than it says costs the result alone.
func TestASealerThatIsWrong(t *testing.T) {
	t.Parallel()
	for name, s := range map[string]Sealer{"panics": wrong{}, "makes too much": wrong{more: 1000},
		"makes nothing": wrong{more: -4}} {
		t.Run(name, func(t *testing.T) {
			f := open(t, sealing(s))
			f.claimed(t, "k", "o1")
			failed := isStoreError(t, f.Finish(t.Context(), base, completion("k", "o1", []byte("1234"))), false)
			require.True(t, failed.ResultNotStored)
			omitted := completion("k", "o1", []byte("kept"))
			omitted.Write, omitted.Ending.Omitted = "o1.fact", true
			require.NoError(t, f.Finish(t.Context(), base, omitted))
			require.Empty(t, f.resultOf(t, "k"))
		})
	}
}

// A repeated write of a large result goes on where the one before it stopped.
func TestASealedResultIsSealedOnce(t *testing.T) {
	t.Parallel()
	g := newGCM(t, 1)
	f := open(t, sealing(g))
	f.claimed(t, "k", "o1")
	end := completion("k", "o1", noise(600<<10))
	end.Progress = new(protocol.Progress)
	end.Owner = "o2"
	isConflict(t, f.Finish(t.Context(), base, end))
	end.Owner = "o1"
	require.NoError(t, f.Finish(t.Context(), base, end))
	f.wire.calls()
	require.NoError(t, f.Finish(t.Context(), base, end))
	require.Equal(t, []string{"UpdateItem"}, f.wire.calls(), "its parts are stored")
	require.EqualValues(t, 1, g.seals.Load())
}

// What was kept of a result that could not be sealed, or stored, in time is not taken for it later.
func TestTheFactOfASealedResultIsNotTheResult(t *testing.T) {
	t.Parallel()
	broken := errors.New("no key")
	g := newGCM(t, 1)
	f := open(t, sealing(g))
	progress := new(protocol.Progress)
	for id, fails := range map[string]bool{"sealed late": true, "stored late": false} {
		f.claimed(t, id, "o1")
		whole := completion(id, "o1", noise(600<<10))
		whole.Progress = progress
		if fails {
			g.sealing.Store(&broken)
			require.True(t, isStoreError(t, f.Finish(t.Context(), base, whole), false).ResultNotStored)
			g.sealing.Store(nil)
		} else {
			_, err := f.prepare(f.retry.begin(t.Context(), "Finish"), id, "o1", whole.Ending, progress, partShare)
			require.NoError(t, err)
		}
		fact := whole
		fact.Write, fact.Ending.Omitted, fact.Ending.Result = "o1.fact", true, []byte(`{"status":201}`)
		require.NoError(t, f.Finish(t.Context(), base, fact))
		require.Equal(t, `{"status":201}`, string(f.resultOf(t, id)))
		require.Zero(t, f.get(t, id).Body.Parts)

		whole.Attempt = protocol.WithoutResult{Write: fact.Write}
		require.NoError(t, f.Finish(t.Context(), base, whole))
		require.Equal(t, whole.Ending.Result, f.resultOf(t, id))
		progress = new(protocol.Progress)
	}
}

// However much a sealer adds, a record takes the steps that the engine lets run, and can be undone.
func TestSealedStepsFitTheRecord(t *testing.T) {
	t.Parallel()
	f := open(t, sealing(padded{newGCM(t, 1)}))
	engine := f.engine()
	k := idem.Operation{Name: "op", Repeat: idem.Repeatable}.Key("t", "k")
	ran, undone, largest := 0, 0, 0
	_, err := idem.Do(t.Context(), engine, k, 1, func(ctx context.Context, _ int) (string, error) {
		for n := 0; ; n++ {
			_, err := idem.Step(ctx, "ship-"+strconv.Itoa(n),
				func(context.Context) (string, error) { ran++; return "shipped", nil },
				&idem.StepConfig[string]{Compensate: func(context.Context, string) error { undone++; return nil }})
			if err != nil {
				largest = itemSize(f.raw(t, k.ID()))
				return "", idem.Permanent(err)
			}
		}
	})
	require.ErrorAs(t, err, new(*idem.StepLimitError))
	require.Greater(t, ran, 100)
	require.Equal(t, ran, undone)
	require.Greater(t, largest, ran*MaxSealOverhead)
	require.Less(t, largest, protocol.StepRoom)
	require.Equal(t, protocol.Failed, f.get(t, k.ID()).State)
}

// A withdrawal over an expired record whose result was encrypted leaves nothing of it: a store
// without the key can use the idempotency key again.
func TestAWithdrawalOverASealedRecordLeavesNothingOfIt(t *testing.T) {
	t.Parallel()
	f := open(t, sealing(newGCM(t, 1)))
	const id = "t#op#k"
	f.completed(t, id, []byte("secret"))
	require.Contains(t, f.raw(t, id), schema.Sealed)

	later := base.Add(48 * time.Hour)
	plain, c := f.on(&patient), claim(id, "o2")
	c.Seen, c.Replace = f.get(t, id).Write, true
	require.NoError(t, plain.Withdraw(t.Context(), later, protocol.Withdrawal{
		Claim: c, Owner: "w", Write: "w.0", ExpiresAt: later.Add(time.Hour),
	}))
	require.NotContains(t, f.raw(t, id), schema.Sealed)
	require.NotContains(t, f.raw(t, id), schema.Body)
}
