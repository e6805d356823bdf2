package idem_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// Another call reads a lapsed lease, an extension lands, and the other call's takeover (or its park) must fail.
func TestScheduleExtensionLandsBeforeTheTakeover(t *testing.T) {
	for _, op := range both {
		t.Run(op.Name, func(t *testing.T) {
			r := newRig(t, nil)
			key, other := op.Key("t", "k"), r.elsewhere(t)
			must(t, r, key, func(context.Context, int) (int, error) {
				r.clock.Advance(time.Hour)
				extend := func(ctx context.Context, c *idemtest.Call) error {
					rec := r.record(t, key)
					require.NoError(t, r.mem.Extend(ctx, r.clock.Now(), protocol.Extension{ID: rec.ID, Owner: rec.Owner,
						Write: "the extension", LeaseUntil: r.clock.Now().Add(time.Minute)}))
					return c.Do(ctx)
				}
				other.faults.Next(idemtest.Acquire, idemtest.Pass, extend)
				other.faults.Next(idemtest.Settle, extend)
				refused(t, other, key, idem.ErrInFlight, fails(errPlain))
				return 1, nil
			})
			require.Equal(t, idem.Completed, r.state(t, key))
			require.Equal(t, 1, r.record(t, key).Attempt)
		})
	}
}

// An older extension that lands after a newer one does not shorten the lease.
func TestScheduleOlderExtensionLandsLater(t *testing.T) {
	inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
		var net held
		r.faults.Next(idemtest.Extend, net.hold(false))
		renewed := make(chan struct{})
		r.faults.Next(idemtest.Extend, func(ctx context.Context, c *idemtest.Call) error {
			defer close(renewed)
			return c.Do(ctx)
		})
		must(t, r, key, func(context.Context, int) (int, error) {
			<-renewed
			newer := r.record(t, key)
			require.NoError(t, net.calls[0].Do(t.Context()), "it counts as landed")
			require.False(t, r.record(t, key).LeaseUntil.Before(newer.LeaseUntil))
			return 1, nil
		})
	})
}

// A declaration changes between two deployments: the stricter one holds, both ways.
func TestScheduleDeclarationChanges(t *testing.T) {
	for name, tc := range map[string]struct {
		before      func(*testing.T, *rig, idem.Key)
		first, then idem.Operation
		want        error
	}{
		"uncertain released, called as not repeatable": {uncertainly, safe, strictly, idem.ErrOutcomeUnknown},
		"execution excluded is not parked":             {released, safe, strictly, nil},
		"lapsed repeatable, called as not repeatable":  {lapsed, safe, strictly, idem.ErrOutcomeUnknown},
		"lapsed not repeatable, called as repeatable":  {lapsed, strictly, safe, idem.ErrOutcomeUnknown},
		"claimed by repeatable over not repeatable":    {released, strictly, safe, errPlain},
	} {
		testOn(t, name, tc.then, func(t *testing.T, r *rig, key idem.Key) {
			tc.before(t, r, tc.first.Key("t", "k"))
			_, err := idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
				require.NotErrorIs(t, tc.want, idem.ErrOutcomeUnknown, "it must not run")
				require.Equal(t, idem.NotRepeatable, r.record(t, key).Repeat)
				require.Zero(t, r.record(t, key).ExpiresAt)
				return 0, tc.want
			})
			require.ErrorIs(t, err, tc.want)
			rec := r.record(t, key)
			require.Equal(t, idem.NotRepeatable, rec.Repeat)
			require.Equal(t, tc.want != nil, rec.State == idem.Unknown && rec.ExpiresAt.IsZero())
			if strings.HasPrefix(name, "uncertain") {
				require.Equal(t, "parked by a later call: plain", rec.Failure.Message, "operators still see why")
			}
		})
	}
}

// Lease over, parked by another call, which may be a stricter one: the slow original's outcome
// stands, one that did nothing closes the question, and an uncertain end leaves it open.
func TestScheduleParkedByAStricterCall(t *testing.T) {
	for name, tc := range map[string]struct {
		err  error
		want idem.State
	}{
		"completes":    {nil, idem.Completed},
		"uncertain":    {errPlain, idem.Unknown},
		"not executed": {idem.NotExecuted(errPlain), idem.Released},
		"permanent":    {idem.Permanent(errPlain), idem.Failed},
	} {
		for _, op := range []idem.Operation{safe, strictly} {
			testOn(t, name+"/"+op.Repeat.String(), op, func(t *testing.T, r *rig, key idem.Key) {
				res, err := idem.Run(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) {
					r.clock.Advance(time.Hour)
					refused(t, r.elsewhere(t), strictly.Key("t", "k"), idem.ErrOutcomeUnknown, new(counter).run)
					require.Equal(t, idem.Unknown, r.state(t, key))
					return 8, tc.err
				})
				require.Equal(t, idem.Unmark(tc.err), err)
				require.Equal(t, tc.want, r.state(t, key))
				require.Equal(t, tc.want, res.Outcome.RecordState)
				require.False(t, res.Outcome.Queued)
				if tc.err == nil {
					require.Equal(t, 8, must(t, r, key, new(counter).run))
				}
			})
		}
	}
}

// The process is frozen while it records its outcome, another attempt takes over, and no reply comes: the caller
// gets no result that is not the recorded one.
func TestScheduleFrozenWhileTheOutcomeIsRecorded(t *testing.T) {
	for name, fault := range map[string]idemtest.Fault{"lost": idemtest.LoseRequest, "refused": idemtest.Refuse} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, safe, func(t *testing.T, r *rig, key idem.Key) {
				r.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
					time.Sleep(time.Hour)
					require.Equal(t, 2, must(t, r.elsewhere(t), key, returns(2)))
					return fault(ctx, c)
				}, idemtest.Finish)
				err := refused(t, r, key, idem.ErrLeaseLost, returns(1))
				require.NotErrorIs(t, err, idem.ErrStoreUnavailable, "the handler has run")
				r.faults.Heal()
				require.NoError(t, r.engine.Flush(t.Context()))
				require.Equal(t, 2, must(t, r, key, new(counter).run))
			})
		})
	}
}

// Where a time-out kills, the store holds the lease until then, however short Options.Lease is: the caller
// of an attempt that ends before gets its result, though the store does not answer.
func TestScheduleStoreAwayAtTheEndBeforeTheTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, &idem.Options{Lease: time.Second, Margin: time.Millisecond})
		key := safe.Key("t", "k")
		r.faults.Always(idemtest.LoseRequest, idemtest.Finish)
		require.Equal(t, 1, must(t, r.inLambda(), key, lasts(2*time.Second)))
		r.faults.Heal()
		require.NoError(t, r.engine.Flush(t.Context()))
		require.Equal(t, 1, must(t, r, key, new(counter).run))
	})
}
