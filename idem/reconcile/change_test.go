package reconcile_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

const dispute = 90 * 24 * time.Hour

func TestAnExtendedRecordIsReplayedUntilThen(t *testing.T) {
	r, key := ended(t, nil)
	until := r.Clock.Now().Add(dispute)
	by := r.seen(key)
	require.NoError(t, r.Extend(t.Context(), key.ID(), until, by))
	kept := r.Record(key)
	require.False(t, kept.ExpiresAt.Before(until))
	require.Less(t, kept.ExpiresAt.Sub(until), time.Second, "whole seconds")
	require.Equal(t, []protocol.Change{protocol.ChangeExtended}, r.changes(key))
	require.Equal(t, kept.ExpiresAt, r.last(key).Until)
	again := func() (ran bool) {
		r.ends(key, func(context.Context, int) (int, error) { ran = true; return 1, nil })
		return ran
	}
	r.Clock.Advance(dispute - time.Second)
	require.False(t, again())
	r.Clock.Advance(time.Second + idem.DefaultMargin + time.Second)
	require.True(t, again())
}

// A replay says when the outcome was recorded, not when somebody decided to keep it.
func TestAnExtendedRecordIsAsOldAsBefore(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	run := func() idem.Result[int] {
		res, err := idem.Run(t.Context(), r.Engine, key, 1, func(context.Context, int) (int, error) { return 1, nil })
		require.NoError(t, err)
		return res
	}
	first := run()
	r.Clock.Advance(time.Hour)
	require.NoError(t, r.Extend(t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
	again := run()
	require.True(t, again.Outcome.Replayed)
	require.Equal(t, first.Outcome.RecordedAt, again.Outcome.RecordedAt)
}

func TestAnExtensionKeepsWhatIsKeptAsLong(t *testing.T) {
	r, key := ended(t, nil)
	for _, until := range []time.Duration{dispute, dispute, time.Hour} {
		require.NoError(t, r.Extend(t.Context(), key.ID(), r.Clock.Now().Add(until), alice))
	}
	require.Equal(t, []protocol.Change{protocol.ChangeExtended}, r.changes(key), "one change, one entry")
	require.False(t, r.Record(key).ExpiresAt.Before(r.Clock.Now().Add(dispute)))
}

func TestWhatCannotBeExtended(t *testing.T) {
	r := newRig(t)
	until := r.Clock.Now().Add(dispute)
	extend := func(key idem.Key) error { return r.Extend(t.Context(), key.ID(), until, alice) }

	running, open, lapsed, none := refund.Key("acme", "running"), refund.Key("acme", "open"), refund.Key("acme", "lapsed"),
		refund.Key("acme", "none")
	r.ends(running, func(context.Context, int) (int, error) {
		err := extend(running)
		require.ErrorIs(t, err, reconcile.ErrOpen)
		require.ErrorContains(t, err, "this one is in_progress")
		return 1, nil
	})
	r.end(open, errPlain)
	require.ErrorIs(t, extend(open), reconcile.ErrOpen)
	r.killed(lapsed)
	r.lapse()
	require.ErrorIs(t, extend(lapsed), reconcile.ErrOpen)
	require.ErrorIs(t, extend(none), reconcile.ErrNotFound)

	expired := refund.Key("acme", "expired")
	r.end(expired, nil)
	r.Clock.Advance(r.Record(expired).ExpiresAt.Sub(r.Clock.Now()))
	err := extend(expired)
	require.ErrorIs(t, err, reconcile.ErrExpired)
	require.ErrorContains(t, err, "the next call runs the handler again")
	r.Store.Delete(expired.ID()) // as TTL does
	require.ErrorIs(t, extend(expired), reconcile.ErrNotFound)
	for _, key := range []idem.Key{running, open, lapsed, none, expired} {
		require.Empty(t, r.changes(key))
	}

	for _, at := range []time.Time{r.Clock.Now().Add(-time.Second), {}, time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)} {
		require.ErrorAs(t, r.Extend(t.Context(), running.ID(), at, alice), new(*idem.ConfigError))
	}
	unsigned := reconcile.Change{Actor: "alice"}
	require.ErrorAs(t, r.Extend(t.Context(), running.ID(), until, unsigned), new(*idem.ConfigError))
}

// Nothing is removed without who removes it, and why: no record could show it afterwards.
func TestWhoForgetsARecordSaysSo(t *testing.T) {
	r, key := ended(t, nil)
	for _, unsigned := range []reconcile.Change{{}, {Actor: "alice"}, {Reason: "erasure"}} {
		require.ErrorAs(t, r.Forget(t.Context(), key.ID(), unsigned), new(*idem.ConfigError))
		require.Equal(t, idem.Completed, r.Record(key).State)
	}
}

func TestWhatIsReleasedIsExtended(t *testing.T) {
	r, key := ended(t, idem.NotExecuted(errPlain))
	require.Equal(t, idem.Released, r.Record(key).State)
	require.NoError(t, r.Extend(t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
	r.Clock.Advance(dispute - time.Hour)
	r.end(key, nil)
	require.Equal(t, 2, r.Record(key).Attempt)
}

// Whatever becomes of a request or a reply, the record is kept or it is not, and the history
// says so once.
func TestAnExtensionOverABadNetwork(t *testing.T) {
	for name, faults := range map[string][]idemtest.Fault{
		"reply lost":           {idemtest.LoseReply},
		"request lost":         {idemtest.LoseRequest},
		"lost twice":           {idemtest.LoseRequest, idemtest.LoseReply},
		"all replies lost":     {idemtest.LoseReply, idemtest.LoseReply, idemtest.LoseReply},
		"refused":              {idemtest.Refuse},
		"no conflicting item":  {idemtest.BareConflict},
		"all requests lost":    {idemtest.LoseRequest, idemtest.LoseRequest, idemtest.LoseRequest},
		"nothing comes of it":  {idemtest.Deny},
		"as if nothing was up": {idemtest.Pass},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := ended(t, nil)
			before := r.Record(key)
			until := r.Clock.Now().Add(dispute)
			r.Faults.Next(idemtest.Prolong, faults...)
			err := r.Extend(t.Context(), key.ID(), until, alice)
			kept := r.Record(key).ExpiresAt.After(before.ExpiresAt)
			if err == nil {
				require.True(t, kept)
			}
			require.Equal(t, !strings.HasPrefix(name, "all") && name != "refused" && name != "nothing comes of it",
				err == nil, "%v", err)
			require.Len(t, r.changes(key), map[bool]int{true: 1}[kept])
			require.NoError(t, r.Extend(t.Context(), key.ID(), until, alice), "it can be done again")
			require.Len(t, r.changes(key), 1)
		})
	}
}

// What happens between the read and the write of an extension counts.
func TestAnExtensionAndAnotherChange(t *testing.T) {
	key := refund.Key("acme", "r-1")
	for name, tc := range map[string]struct {
		between func(r *rig, until time.Time)
		lost    bool // the first request
		want    error
		changes []protocol.Change
	}{
		"TTL deletes it": {between: func(r *rig, _ time.Time) {
			r.Store.Delete(key.ID())
		}, want: reconcile.ErrNotFound},
		"it expires": {between: func(r *rig, _ time.Time) {
			r.Clock.Advance(48 * time.Hour)
		}, lost: true, want: reconcile.ErrExpired},
		"a longer extension": {between: func(r *rig, until time.Time) {
			require.NoError(r.t, r.Extend(r.t.Context(), key.ID(), until.Add(time.Hour), alice))
		}, changes: []protocol.Change{protocol.ChangeExtended}},
		"it is forgotten": {between: func(r *rig, _ time.Time) {
			require.NoError(r.t, r.Forget(r.t.Context(), key.ID(), alice))
		}, want: reconcile.ErrNotFound, changes: []protocol.Change{protocol.ChangeForgotten}},
	} {
		t.Run(name, func(t *testing.T) {
			r, _ := ended(t, nil)
			until := r.Clock.Now().Add(dispute)
			r.Faults.Next(idemtest.Prolong, func(ctx context.Context, c *idemtest.Call) error {
				tc.between(r, until)
				if tc.lost {
					return c.Lost()
				}
				return c.Do(ctx)
			})
			require.ErrorIs(t, r.Extend(t.Context(), key.ID(), until, alice), tc.want)
			require.Equal(t, tc.changes, r.changes(key))
			if tc.want == nil {
				require.False(t, r.Record(key).ExpiresAt.Before(until.Add(time.Hour)))
			}
		})
	}
	t.Run("a call claims it as expired before", func(t *testing.T) {
		r, _ := ended(t, nil)
		until := r.Clock.Now().Add(dispute)
		// The operator's clock is behind.
		r.Clock.Advance(r.Record(key).ExpiresAt.Sub(r.Clock.Now()) - time.Millisecond)
		r.Faults.Next(idemtest.Prolong, func(ctx context.Context, c *idemtest.Call) error {
			r.Clock.Advance(idem.DefaultMargin + time.Second)
			r.end(key, nil)
			r.Clock.Advance(-idem.DefaultMargin - time.Second)
			return c.Do(ctx)
		})
		require.ErrorIs(t, r.Extend(t.Context(), key.ID(), until, r.seen(key)), reconcile.ErrChanged)
		require.Equal(t, 2, r.Record(key).Attempt)
	})
	t.Run("a call has taken it for expired, and claims it after", func(t *testing.T) {
		r, _ := ended(t, nil)
		until := r.Clock.Now().Add(dispute)
		behind, err := reconcile.New(r.Faults,
			&reconcile.Options{Now: func() time.Time { return r.Clock.Now().Add(-time.Minute) }})
		require.NoError(t, err)
		r.Clock.Advance(r.Record(key).ExpiresAt.Sub(r.Clock.Now()) + idem.DefaultMargin + time.Second)
		require.ErrorIs(t, r.Extend(t.Context(), key.ID(), until, alice), reconcile.ErrExpired)
		tries := 0
		r.Faults.Next(idemtest.Acquire, idemtest.Pass, func(ctx context.Context, c *idemtest.Call) error {
			tries++
			require.NoError(t, behind.Extend(t.Context(), key.ID(), until, alice))
			return c.Do(ctx)
		})
		r.gets(key, mustNotRun, 7) // an operator knows that it is kept
		require.Equal(t, 1, tries, "it was about to replace the record")
	})
	t.Run("it was seen before another extension", func(t *testing.T) {
		r, _ := ended(t, nil)
		until, by := r.Clock.Now().Add(dispute), r.seen(key)
		require.NoError(t, r.Extend(t.Context(), key.ID(), until, by))
		require.ErrorIs(t, r.Extend(t.Context(), key.ID(), until.Add(time.Hour), by), reconcile.ErrChanged)
	})
}

func TestAChangeOfARecordThatKeepsBeingWrittenEnds(t *testing.T) {
	r, open := lapsed(t, refund)
	ended := refund.Key("acme", "ended")
	r.end(ended, nil)
	r.Faults.Always(idemtest.BareConflict, idemtest.Prolong, idemtest.Forget, idemtest.Settle)
	require.ErrorIs(t, r.Extend(t.Context(), ended.ID(), r.Clock.Now().Add(dispute), alice), reconcile.ErrChanged)
	require.ErrorIs(t, r.Forget(t.Context(), ended.ID(), alice), reconcile.ErrChanged)
	require.ErrorIs(t, r.Resolve(t.Context(), open.ID(), reconcile.Resolution{To: idem.Completed}, alice),
		reconcile.ErrChanged)
}

// The parked attempt's outcome comes while somebody keeps what was resolved.
func TestALateOriginalAndAnExtension(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	out, err := r.call(key, func(context.Context, int) (int, error) {
		r.lapse()
		require.NoError(t, reconcile.Resolve(t.Context(), r.Reconciler, key, 7, alice))
		require.NoError(t, r.Extend(t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
		return 8, nil
	})
	require.NoError(t, err)
	require.Equal(t, 7, out, "the recorded outcome")
	require.True(t, r.Record(key).ExpiresAt.After(r.Clock.Now().Add(dispute-time.Minute)))
	require.Equal(t, []protocol.Change{protocol.ChangeResolved, protocol.ChangeExtended}, r.changes(key))
}

// The reply to the outcome was lost, and somebody has extended the record before the attempt
// asks what became of it.
func TestAnOutcomeThatWasExtendedHasLanded(t *testing.T) {
	r, key := newRig(t), refund.Key("acme", "r-1")
	r.Faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
		require.NoError(t, c.Do(ctx))
		require.NoError(t, r.Extend(t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
		return c.Lost()
	})
	r.gets(key, func(context.Context, int) (int, error) { return 8, nil }, 8)
	require.Equal(t, idem.Completed, r.Record(key).State)
}

// Why a record is kept for longer, such as a paused queue, holds for the resolution that replaces
// its own too.
func TestAnotherResolutionIsKeptAsLongAsTheExtendedOne(t *testing.T) {
	failure := idem.Failure{Message: "declined"}
	for name, tc := range map[string]struct {
		extended bool
		to       reconcile.Resolution
	}{
		"extended, and failed":    {true, reconcile.Resolution{To: idem.Failed, Failure: &failure}},
		"extended, and released":  {true, reconcile.Resolution{To: idem.Released}},
		"not extended, and fails": {false, reconcile.Resolution{To: idem.Failed, Failure: &failure}},
	} {
		t.Run(name, func(t *testing.T) {
			r, key := lapsed(t, refund)
			r.resolve(key, reconcile.Resolution{To: idem.Completed})
			if tc.extended {
				require.NoError(t, r.Extend(t.Context(), key.ID(), r.Clock.Now().Add(dispute), alice))
			}
			before := r.Record(key)
			r.Clock.Advance(time.Hour)
			r.Faults.Next(idemtest.Settle, idemtest.LoseReply)
			require.NoError(t, r.Resolve(t.Context(), key.ID(), again(tc.to), r.seen(key)))
			after := r.Record(key)
			require.Equal(t, tc.to.To, after.State)
			want := before.ExpiresAt.Add(time.Hour) // a new retention
			if tc.extended {
				want = before.ExpiresAt
			}
			require.Equal(t, want, after.ExpiresAt)
		})
	}
}

// lettered is a store that has an outbox.
type lettered struct {
	reconcile.Store
	noted []protocol.Audit
}

func (l *lettered) Requeue(_ context.Context, _ *outbox.Entry, a protocol.Audit) error {
	l.noted = append(l.noted, a)
	return nil
}

func TestARequeuedDeadLetterIsInTheHistory(t *testing.T) {
	r := newRig(t)
	l := &lettered{Store: r.Faults}
	rc := r.over(l)
	e := &outbox.Entry{Record: "acme#refund#1", Message: outbox.Message{ID: "m-1", Destination: "orders"}}
	require.NoError(t, rc.Requeue(t.Context(), e, alice))
	a := l.noted[0]
	require.Equal(t, []string{"acme#refund#1", alice.Actor, alice.Reason, "message m-1 to orders"},
		[]string{a.ID, a.Who, a.Why, a.What})
	require.Equal(t, protocol.ChangeRequeued, a.Change)
	require.False(t, a.ExpiresAt.IsZero())

	require.ErrorAs(t, rc.Requeue(t.Context(), e, reconcile.Change{Actor: "alice"}), new(*idem.ConfigError))
	require.ErrorIs(t, r.Requeue(t.Context(), e, alice), errors.ErrUnsupported, "a store without an outbox")
}
