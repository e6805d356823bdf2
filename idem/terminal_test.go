package idem_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// noRoom is how a store fails that could not store a result next to its record.
func noRoom(_ context.Context, c *idemtest.Call) error {
	return &idem.StoreError{Op: string(c.Method), ResultNotStored: true, Err: errors.New("no part was taken")}
}

func text(context.Context, int) (string, error) { return "the result", nil }

// inside gives a call the time that it has in Lambda, or none.
func inside(t *testing.T, lambda bool) context.Context {
	if lambda {
		return inLambda(t.Context())
	}
	return t.Context()
}

// A result that cannot be stored in time does not keep its outcome from being recorded, before anything is queued.
func TestOutcomeIsRecordedBeforeItsResult(t *testing.T) {
	for _, op := range both {
		bubble(t, op.Name, func(t *testing.T) {
			r, w := newRig(t, nil), new(counter)
			key := op.Key("t", "k")
			r.faults.Next(idemtest.Finish, noRoom, idemtest.Pass, noRoom)
			res := mustRun(t, r.inLambda(), key, text)
			require.Equal(t, "the result", res.Value)
			require.Equal(t, idem.Completed, res.Outcome.RecordState)
			require.True(t, res.Outcome.Queued, "its result is")
			require.False(t, res.Outcome.Omitted)
			require.Equal(t, []string{"claimed", "completed", "outcome_queued"}, r.events.take())
			fact := r.record(t, key)
			require.Equal(t, idem.Completed, fact.State)
			require.True(t, fact.Omitted)
			require.Equal(t, fact.ExpiresAt, res.Outcome.ExpiresAt)
			require.Equal(t, fact.UpdatedAt, res.Outcome.RecordedAt)

			// The process dies here, or another one gets the next call.
			refused(t, r.elsewhere(t), key, idem.ErrOutcomeUnavailable, w.run)
			require.Zero(t, w.count())

			time.Sleep(time.Minute)
			again := mustRun(t, r.inLambda(), key, text)
			require.True(t, again.Outcome.Replayed)
			require.Equal(t, res.Outcome.Body, again.Outcome.Body)
			require.Equal(t, res.Outcome.ExpiresAt, again.Outcome.ExpiresAt, "the result renews nothing")
			require.Equal(t, res.Outcome.RecordedAt, again.Outcome.RecordedAt)
			require.Equal(t, []string{"outcome_landed", "replayed"}, r.events.take())
		})
	}
}

// Whatever is lost on the way to the outcome and its result, both are recorded in the
// end, nothing runs twice, and the observer hears of one outcome.
func TestOutcomeBeforeItsResultWithFaults(t *testing.T) {
	faults := map[string]idemtest.Fault{"passes": idemtest.Pass, "no room": noRoom, "reply lost": idemtest.LoseReply,
		"request lost": idemtest.LoseRequest, "refused": idemtest.Refuse, "black hole": idemtest.BlackHole}
	for fact, first := range faults {
		for result, second := range faults {
			for _, lambda := range []bool{true, false} {
				testOn(t, fact+"/"+result, unsafe, func(t *testing.T, r *rig, key idem.Key) {
					r.faults.Next(idemtest.Finish, noRoom, first, second)
					res := mustRun(t, r.in(inside(t, lambda)), key, text)
					require.Equal(t, "the result", res.Value)
					if fact == "passes" {
						require.Equal(t, idem.Completed, res.Outcome.RecordState)
					}
					require.NoError(t, r.engine.Flush(t.Context()))
					rec := r.record(t, key)
					require.Equal(t, idem.Completed, rec.State)
					require.False(t, rec.Omitted)
					require.Equal(t, `"the result"`, string(rec.Body.Data))
					var want []string
					switch {
					case fact != "passes":
						want = []string{"claimed", "outcome_queued", "outcome_landed"}
					case result != "passes":
						want = []string{"claimed", "completed", "outcome_queued", "outcome_landed"}
					default:
						want = []string{"claimed", "completed"}
					}
					require.Equal(t, want, r.events.take())
				})
			}
		}
	}
}

// The write with the result may have been on its way when the outcome was written
// without it: whichever lands first, the result is there in the end.
func TestResultThatLandsAfterAll(t *testing.T) {
	for name, deliver := range map[string]func(*testing.T, *rig, *idemtest.Call){
		"before": func(t *testing.T, _ *rig, whole *idemtest.Call) { require.NoError(t, whole.Do(t.Context())) },
		"before, and somebody keeps it for longer": func(t *testing.T, r *rig, whole *idemtest.Call) {
			require.NoError(t, whole.Do(t.Context()))
			r.prolong(t, unsafe.Key("t", "k"))
		},
		"never": func(*testing.T, *rig, *idemtest.Call) {},
	} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			var whole *idemtest.Call
			r.faults.Next(idemtest.Finish, idemtest.Hold(&whole), noRoom)
			must(t, r.inLambda(), key, text)
			deliver(t, r, whole)
			require.NoError(t, r.engine.Flush(t.Context()))
			rec := r.record(t, key)
			require.False(t, rec.Omitted)
			require.Equal(t, `"the result"`, string(rec.Body.Data))
			require.Equal(t, []string{"claimed", "outcome_queued", "outcome_landed"}, r.events.take())
			// Delivered late, it changes nothing.
			_ = whole.Do(t.Context())
			require.Equal(t, rec, r.record(t, key))
		})
	}
}

// A result is added to the very outcome that was recorded without it, and to nothing
// else: where that one no longer exists, the result is given up.
func TestResultOfAnOutcomeThatNoLongerExists(t *testing.T) {
	again := func(t *testing.T, r *rig, key idem.Key) {
		r.clock.Advance(48 * time.Hour)
		must(t, r.elsewhere(t), key, returns("another"))
	}
	for name, between := range map[string]func(*testing.T, *rig, idem.Key){
		"expired and claimed": again,
		"expired twice": func(t *testing.T, r *rig, key idem.Key) {
			again(t, r, key)
			r.clock.Advance(30 * time.Minute)
		},
		"deleted": func(_ *testing.T, r *rig, key idem.Key) { r.mem.Delete(key.ID()) },
	} {
		bubble(t, name, func(t *testing.T) {
			r, op := newRig(t, nil), safe
			op.Retention = 10 * time.Minute
			key := op.Key("t", "k")
			r.faults.Next(idemtest.Finish, noRoom, idemtest.Pass, idemtest.LoseRequest)
			must(t, r.inLambda(), key, text)
			between(t, r, key)
			before := r.record(t, key)
			r.events.take()
			require.NoError(t, r.engine.Flush(t.Context()))
			require.Equal(t, []string{"result_omitted"}, r.events.take(), "no outcome is lost")
			require.Equal(t, before, r.record(t, key))
		})
	}
}

// An outcome that could not be written at once, and whose result proves to be too
// large only then, is recorded without it.
func TestQueuedOutcomeWithoutItsTooLargeResult(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rigOver(t, memstore.Options{MaxResult: 5}.New(), new(idemtest.Clock), nil)
		key := unsafe.Key("t", "k")
		r.faults.Next(idemtest.Finish, idemtest.Refuse)
		must(t, r.inLambda(), key, text)
		require.NoError(t, r.engine.Flush(t.Context()))
		require.True(t, r.record(t, key).Omitted)
		require.Equal(t, []string{"claimed", "outcome_queued", "result_omitted", "outcome_landed"}, r.events.take())

		key = unsafe.Key("t", "found out at once")
		r.faults.Next(idemtest.Finish, idemtest.Pass, idemtest.Refuse)
		res := mustRun(t, r.inLambda(), key, text)
		require.True(t, res.Outcome.Queued)
		require.True(t, res.Outcome.Omitted)
		require.NoError(t, r.engine.Flush(t.Context()))
		require.True(t, r.record(t, key).Omitted)
	})
}

// A commit whose result has no time commits its writes without it, once, and gets it later.
func TestCommitBeforeItsResult(t *testing.T) {
	for name, op := range map[string]idem.Operation{
		"reserved": safe, "not repeatable": unsafe, "atomic": {Name: "atomic", Repeat: idem.Repeatable, Mode: idem.Atomic},
	} {
		for fault, f := range map[string]idemtest.Fault{"passes": idemtest.Pass, "no room": noRoom,
			"reply lost": idemtest.LoseReply} {
			bubble(t, name+"/"+fault, func(t *testing.T) {
				b := newRig(t, nil)
				key := op.Key("t", "k")
				b.faults.Next(idemtest.Finish, noRoom, idemtest.Pass, f)
				res := mustRun(t, b.inLambda(), key, pay(effect{n: 1}, nil))
				require.Equal(t, idem.Completed, res.Outcome.RecordState)
				require.Equal(t, fault != "passes", res.Outcome.Queued)
				require.Equal(t, 1, b.committed())
				require.NoError(t, b.engine.Flush(t.Context()))
				require.Equal(t, 1, b.committed())
				rec := b.record(t, key)
				require.False(t, rec.Omitted)
				require.Equal(t, `"paid"`, string(rec.Body.Data))
				require.Equal(t, rec.ExpiresAt, res.Outcome.ExpiresAt)
			})
		}
	}
}

// A commit has time for what its unit of work weighs.
func TestCommitHasTimeForItsUnit(t *testing.T) {
	for name, op := range map[string]idem.Operation{
		"reserved": safe, "atomic": {Name: "atomic", Repeat: idem.Repeatable, Mode: idem.Atomic},
	} {
		bubble(t, name, func(t *testing.T) {
			b := newRig(t, nil)
			b.faults.Next(idemtest.Finish, slow(4*time.Second, idemtest.Pass))
			must(t, b, op.Key("t", "k"), pay(effect{n: 1, size: 4 << 20}, nil))
			require.Equal(t, 1, b.committed())
		})
	}
}

// The retention of an outcome counts from the write that lands, however late that is:
// an open question does not become an outcome that has expired.
func TestRetentionCountsFromTheWriteThatLands(t *testing.T) {
	short := idem.Operation{Name: "short", Retention: time.Minute}
	for name, tc := range map[string]struct {
		fault   idemtest.Fault
		handler func(context.Context, int) (int, error)
		landed  bool // by the first try
	}{
		"request lost":  {idemtest.LoseRequest, returns(1), false},
		"reply lost":    {idemtest.LoseReply, returns(1), true},
		"a failure":     {idemtest.Refuse, fails(idem.Permanent(errPlain)), false},
		"a result owed": {noRoom, returns(1), false},
		"not executed":  {idemtest.Refuse, fails(idem.NotExecuted(errPlain)), false},
	} {
		testOn(t, name, short, func(t *testing.T, r *rig, key idem.Key) {
			r.faults.Next(idemtest.Finish, tc.fault, idemtest.LoseRequest)
			ended := time.Now()
			_, _ = idem.Do(inLambda(t.Context()), r.engine, key, 1, tc.handler)
			time.Sleep(50 * time.Second)
			if !tc.landed {
				refused(t, r.elsewhere(t), key, idem.ErrOutcomeUnknown, r.c.run)
			}
			r.faults.Heal()
			require.NoError(t, r.engine.Flush(t.Context()))
			want := time.Now()
			if tc.landed {
				want = ended
			}
			rec := r.record(t, key)
			require.WithinDuration(t, want.Add(time.Minute), rec.ExpiresAt, time.Second)
			require.WithinDuration(t, want, rec.UpdatedAt, time.Millisecond)
			require.Zero(t, r.c.count())
		})
	}
}

// So does the retention of a commit that was sent a second time.
func TestRetentionOfACommitCountsFromItsLastTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newRig(t, nil)
		released(t, b, safe.Key("t", "k"))
		op := safe
		op.Mode, op.Retention = idem.Atomic, time.Minute
		b.faults.Next(idemtest.Get, readsNothing)
		b.faults.Next(idemtest.Finish, slow(1100*time.Millisecond, idemtest.Pass))
		res := mustRun(t, b, op.Key("t", "k"), pay(effect{n: 1}, nil))
		rec := b.record(t, op.Key("t", "k"))
		require.Equal(t, 2, rec.Attempt)
		require.False(t, rec.ExpiresAt.Before(rec.UpdatedAt.Add(time.Minute)))
		require.Equal(t, rec.ExpiresAt, res.Outcome.ExpiresAt)
	})
}

// A retention that is shorter than what a write may take does not run out before the outcome has landed.
func TestNoOutcomeIsBornExpired(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, _ idem.Key) {
		for n, size := range []int{1, 4 << 20} {
			key := idem.Operation{Name: "short", Retention: time.Second}.Key("t", strings.Repeat("k", n+1))
			budget := 2*time.Second + time.Duration(size>>20)*time.Second
			r.faults.Next(idemtest.Finish, slow(budget-time.Millisecond, idemtest.Pass))
			must(t, r, key, returns(strings.Repeat("x", size)))
			require.False(t, r.record(t, key).Expired(time.Now()))
		}
	})
}

// Where the outcome is found to be deleted at once, nothing is kept for later.
func TestResultOfAnOutcomeThatIsDeletedAtOnce(t *testing.T) {
	r, key := rigOn(t, unsafe)
	r.faults.Next(idemtest.Finish, noRoom, idemtest.Pass, func(ctx context.Context, c *idemtest.Call) error {
		r.mem.Delete(c.ID)
		return c.Do(ctx)
	})
	res := mustRun(t, r, key, text)
	require.False(t, res.Outcome.Queued)
	require.True(t, res.Outcome.Omitted)
	require.Equal(t, []string{"claimed", "result_omitted", "completed"}, r.events.take())
}

// The retention of a resolution counts from the try that lands.
func TestRetentionOfAResolutionCountsFromItsLastTry(t *testing.T) {
	inBubble(t, idem.Operation{Name: "short", Retention: time.Minute}, func(t *testing.T, r *rig, key idem.Key) {
		uncertainly(t, r, key)
		r.faults.Next(idemtest.Settle, slow(50*time.Second, idemtest.LoseRequest))
		require.NoError(t, r.resolve(t, key.ID(), reconcile.Resolution{To: idem.Completed, Result: encoded("1")}))
		rec := r.record(t, key)
		require.WithinDuration(t, rec.UpdatedAt.Add(time.Minute), rec.ExpiresAt, time.Second)
		require.WithinDuration(t, time.Now(), rec.UpdatedAt, time.Millisecond)
	})
}
