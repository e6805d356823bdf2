package idem_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// Requests or replies are lost of a commit, of its fence and of the read after that, in both modes. The
// answer that nothing was committed stays true for ever.
func TestCommitInDoubt(t *testing.T) {
	lost, reply := idemtest.LoseRequest, idemtest.LoseReply
	for _, tc := range []struct {
		name               string
		commit, fence, get idemtest.Fault // a nil commit is held, and delivered at the end
		network            error          // in place of a held one's
		ok, maybe          bool
		again              bool // the fence of a commit that has seen no record is sent again at once
	}{
		{name: "reply lost", commit: reply, ok: true},
		{name: "request lost"},
		{name: "a network that does not support something is no store that does not", network: syscall.EOPNOTSUPP},
		{name: "refused", commit: idemtest.Refuse},
		{name: "reply lost, fence's request", commit: reply, fence: lost, ok: true},
		{name: "reply lost, fence's reply", commit: reply, fence: reply, ok: true},
		{name: "request lost, fence's reply", fence: reply},
		{name: "request lost, fence's request", fence: lost, maybe: true},
		{name: "request lost, fence and read", fence: lost, get: lost, maybe: true},
		{name: "reply lost, fence and read", commit: reply, fence: lost, get: lost, maybe: true},
		{name: "request lost, fence unreadable", fence: idemtest.Unreadable, maybe: true},
		{name: "request lost, fence's conflict without a record", fence: idemtest.BareConflict, maybe: true, again: true},
	} {
		for _, op := range append(both, atomically) {
			for _, expired := range []bool{false, true} {
				testOn(t, fmt.Sprintf("%s/%s %d/over an expired record %v", tc.name, op.Name, op.Mode, expired), op,
					func(t *testing.T, r *rig, key idem.Key) {
						atomic := op.Mode == idem.Atomic
						if expired {
							leftExpired(t, r, key)
							r.events.take()
						}
						held, fence := (*idemtest.Call)(nil), idemtest.Finish
						maybe := tc.maybe && !(atomic && tc.again && !expired)
						commit, landed := tc.commit, tc.commit != nil && tc.name != "refused"
						if commit == nil {
							commit = func(ctx context.Context, c *idemtest.Call) error {
								err := idemtest.Hold(&held)(ctx, c)
								if tc.network != nil {
									err = &idem.StoreError{Op: "Finish", Ambiguous: true, Err: tc.network}
								}
								return err
							}
						}
						if atomic {
							r.faults.Next(idemtest.Get, idemtest.Pass) // before the handler
							fence = idemtest.Withdraw
						}
						r.faults.Next(idemtest.Finish, commit)
						r.faults.Next(fence, tc.fence)
						r.faults.Next(idemtest.Get, tc.get)
						res, err := idem.Run(inLambda(t.Context()), r.engine, key, 1, pay(effect{n: 1}, nil))
						if tc.ok {
							require.NoError(t, err)
							require.Equal(t, "paid", res.Value)
							require.False(t, res.Outcome.Queued || res.Outcome.Replayed)
						} else {
							failed := errorAs[*idem.CommitError](t, err)
							require.ErrorIs(t, err, idem.ErrNotCommitted)
							require.Equal(t, maybe, failed.Ambiguous)
							require.Equal(t, maybe, strings.Contains(err.Error(), "may have been committed"))
							require.NotErrorIs(t, err, idem.ErrStoreUnavailable, "something was executed")
							require.Zero(t, res.Outcome)
							unknown := op.Repeat == idem.NotRepeatable && !maybe
							require.Equal(t, unknown, errors.Is(err, idem.ErrOutcomeUnknown))
						}
						require.Equal(t, atomic && maybe, slices.Contains(r.events.take(), "outcome_queued"),
							"it is never written later, but what fences it")
						if atomic && !expired {
							want := idem.Released
							switch {
							case landed:
								want = idem.Completed
							case maybe, tc.name == "refused":
								want = idem.Absent
							}
							require.Equal(t, want, r.state(t, key))
						}
						require.NoError(t, r.engine.Flush(t.Context()))
						if held != nil {
							landed = maybe && !atomic
							require.Equal(t, landed, held.Do(t.Context()) == nil)
							require.Equal(t, landed, r.state(t, key) == idem.Completed)
						}
						require.Equal(t, landed, r.committed() == 1)

						// The same call finds out.
						r.faults.Heal()
						r.clock.Advance(time.Hour)
						next, err := idem.Run(t.Context(), r.engine, key, 1, pay(effect{n: 1}, nil))
						if !landed && op.Repeat == idem.NotRepeatable {
							require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
							require.Zero(t, r.committed())
							return
						}
						require.NoError(t, err)
						require.Equal(t, landed, next.Outcome.Replayed)
						require.Equal(t, 1, r.committed())
					})
			}
		}
	}
}

// A conflict that shows no record may hide that an earlier try is still under way:
// the reply to the second try's write says nothing about the first.
func TestCommitSentAgainKeepsItsDoubt(t *testing.T) {
	for name, refuse := range map[string]error{"refused": errPlain, "permanently": idem.Permanent(errPlain)} {
		t.Run(name, func(t *testing.T) {
			r, key := rigOn(t, unsafe)
			var held *idemtest.Call
			r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
				_ = idemtest.Hold(&held)(ctx, c)
				return &protocol.ConflictError{}
			})
			e := &effect{n: 1}
			r.faults.Next(idemtest.Get, func(ctx context.Context, c *idemtest.Call) error {
				e.refuse = refuse // from now on
				return c.Do(ctx)
			})
			errs(t, r, key, func(ctx context.Context, _ int) (string, error) {
				_, err := idem.UnitOf(ctx, func() idem.Unit { return e })
				return "paid", err
			})
			before := r.state(t, key)
			e.refuse = nil
			require.NotNil(t, held)
			require.Error(t, held.Do(t.Context()))
			require.Equal(t, before, r.state(t, key), "delivered late, it changes nothing")
			require.Zero(t, r.committed())
		})
	}
}

// A commit that has landed is the call's outcome, whatever stands in the way of learning it:
// its reply is lost, or a later try's is a refusal, and by then somebody keeps the record for
// longer, or another call has the next life of the key.
func TestACommitThatLandedIsNotTakenForALostLease(t *testing.T) {
	prolonged := func(t *testing.T, r *rig, key idem.Key) { r.prolong(t, key) }
	for name, tc := range map[string]struct {
		then      func(*testing.T, *rig, idem.Key)
		refused   bool             // by the next try, which the store makes by itself
		afterward []idemtest.Fault // of what the call writes then
	}{
		"lost":                              {},
		"refused":                           {refused: true},
		"lost, kept for longer":             {then: prolonged},
		"refused, kept for longer":          {then: prolonged, refused: true},
		"lost, kept for longer, fence lost": {then: prolonged, afterward: []idemtest.Fault{idemtest.LoseRequest}},
		"lost, expired and claimed by another": {then: func(t *testing.T, r *rig, key idem.Key) {
			r.clock.Advance(48 * time.Hour)
			next := r.record(t, key).Clone()
			next.State, next.Owner, next.Write, next.Body = idem.InProgress, "another", "another.0", protocol.Body{}
			next.LeaseUntil = r.clock.Now().Add(time.Minute)
			require.NoError(t, r.mem.Acquire(t.Context(), r.clock.Now(),
				protocol.Claim{Record: *next, Seen: r.record(t, key).Write, Replace: true}))
		}},
	} {
		for _, op := range append(both, atomically) {
			t.Run(fmt.Sprintf("%s/%s %d", name, op.Name, op.Mode), func(t *testing.T) {
				r, key := rigOn(t, op)
				r.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
					require.NoError(t, c.Do(ctx))
					if tc.then != nil {
						tc.then(t, r, key)
					}
					r.faults.Next(idemtest.Finish, tc.afterward...)
					r.faults.Next(idemtest.Withdraw, tc.afterward...)
					if tc.refused {
						return &protocol.RefusedError{Err: errPlain, Ambiguous: true}
					}
					return c.Lost()
				})
				res := mustRun(t, r, key, pay(effect{n: 1}, nil))
				require.Equal(t, "paid", res.Value)
				require.True(t, res.Outcome.Executed)
				require.Equal(t, idem.Completed, res.Outcome.RecordState)
				require.Equal(t, 1, r.committed())
				reported := r.events.take()
				require.Equal(t, "completed", reported[len(reported)-1], "%v", reported)
				require.NotContains(t, reported, "lease_lost")
			})
		}
	}
}

// A caller whose handler ran never gets that nothing was executed, also where the conflicting record cannot be read.
func TestAtomicAfterItsHandlerNeverSaysThatNothingRan(t *testing.T) {
	r, key := rigOn(t, atomically)
	finished(t, r, key)
	r.faults.Next(idemtest.Get, readsNothing)
	r.faults.Always(idemtest.Refuse, idemtest.Result)
	err := refused(t, r, key, idem.ErrNotCommitted, pay(effect{n: 1}, nil))
	require.NotErrorIs(t, err, idem.ErrStoreUnavailable)
	failed := errorAs[*idem.CommitError](t, err)
	require.False(t, failed.Ambiguous, "another call's outcome stands")
	require.Equal(t, idem.Completed, failed.State)
	require.Zero(t, r.committed())
}

// A commit in atomic mode that gets no answer never lands once its caller has been answered that it has not, whatever
// TTL deletes: the expired record in its way is none, one that expires soon is soon none, and it may not even have
// been read. Its withdrawal may get no answer either. One that is answered makes another record.
func TestAnAtomicCommitInDoubtOverWhatGoesNeverLands(t *testing.T) {
	unread := faulty(idemtest.Get, readsNothing)
	for name, tc := range map[string]struct {
		before   play
		meantime play           // while the handler runs
		withdraw idemtest.Fault // what becomes of the withdrawal
		state    idem.State     // that the caller gets, and that is left
	}{
		"deleted before the commit":             {leftExpired, deleted, idemtest.Pass, idem.Absent},
		"expired, and not read":                 {all(leftExpired, unread), nothing, idemtest.Pass, idem.Released},
		"expires soon, and not read":            {all(expiresSoon, unread), nothing, idemtest.Pass, idem.Released},
		"expired, and not read, nor withdrawn":  {all(leftExpired, unread), nothing, idemtest.LoseRequest, idem.Released},
		"deleted before the commit is answered": {leftExpired, deleted, nil, idem.Completed},
	} {
		testOn(t, name, atomically, func(t *testing.T, r *rig, key idem.Key) {
			tc.before(t, r, key)
			var held *idemtest.Call
			if tc.withdraw != nil {
				r.faults.Next(idemtest.Finish, idemtest.Hold(&held))
				r.faults.Next(idemtest.Withdraw, tc.withdraw)
			}
			res, err := idem.Run(t.Context(), r.engine, key, 1, func(ctx context.Context, n int) (string, error) {
				tc.meantime(t, r, key)
				return pay(effect{n: 1}, nil)(ctx, n)
			})
			if tc.withdraw == nil {
				require.NoError(t, err)
				require.True(t, res.Outcome.Executed)
				require.Equal(t, 1, r.record(t, key).Attempt)
				require.Equal(t, 1, r.committed())
				return
			}
			failed := errorAs[*idem.CommitError](t, err)
			require.False(t, failed.Ambiguous)
			require.Equal(t, tc.state, failed.State)
			require.NotContains(t, r.events.take(), "outcome_queued")
			r.clock.Advance(10 * time.Minute)
			swept(t, r, key)
			require.Error(t, held.Do(t.Context()), "AWS takes a signed request for 15 minutes")
			require.Equal(t, tc.state, r.state(t, key))
			require.Zero(t, r.committed())
		})
	}
}
