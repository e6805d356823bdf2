package idem_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A store keeps milliseconds: the lease in the record is never over before the invocation.
func TestTheLeaseLastsAsLongAsTheInvocation(t *testing.T) {
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		kill := time.Now().Add(time.Minute + 300*time.Microsecond)
		_, err := idem.Do(idem.WithKillTime(t.Context(), kill), r.engine, key, 1, func(context.Context, int) (int, error) {
			lease := r.record(t, key).LeaseUntil
			require.False(t, lease.Before(kill))
			require.Equal(t, lease, lease.Truncate(time.Millisecond))
			return 1, nil
		})
		require.NoError(t, err)
	})
}

// Lambda kills no handler on Managed Instances: its claim is renewed for as long as it runs.
func TestAHandlerOnAManagedInstanceOutlivesItsTimeout(t *testing.T) {
	t.Setenv("AWS_LAMBDA_INITIALIZATION_TYPE", "lambda-managed-instances")
	inBubble(t, unsafe, func(t *testing.T, r *rig, key idem.Key) {
		ctx := idem.WithKillTime(t.Context(), time.Now().Add(10*time.Second))
		_, err := idem.Do(ctx, r.engine, key, 1, func(context.Context, int) (int, error) {
			for range 10 {
				time.Sleep(10 * time.Second)
				_, err := idem.Do(t.Context(), r.elsewhere(t).engine, key, 1, new(counter).run)
				require.ErrorIs(t, err, idem.ErrInFlight)
			}
			return 1, nil
		})
		require.NoError(t, err)
		require.Equal(t, idem.Completed, r.state(t, key))
	})
}

// A claim whose reply took nearly the whole lease, or comes after it, as after a pause of the process
// between the two, begins no handler: others may have the claim by then.
func TestNoHandlerBeginsAtTheEndOfItsLease(t *testing.T) {
	for took, want := range map[time.Duration]error{
		idem.DefaultLease - 10*time.Millisecond: idem.ErrLeaseLost,
		idem.DefaultLease + 10*time.Second:      idem.ErrOutOfTime,
	} {
		for _, op := range both {
			bubble(t, want.Error()+"/"+op.Name, func(t *testing.T) {
				r, c, key := newRig(t, &idem.Options{ClaimBudget: time.Hour}), new(counter), op.Key("t", "k")
				r.faults.Next(idemtest.Acquire, func(ctx context.Context, call *idemtest.Call) error {
					err := call.Do(ctx)
					time.Sleep(took)
					return err
				})
				refused(t, r, key, want, c.run)
				require.Zero(t, c.count())
				require.Equal(t, idem.Released, r.state(t, key), "nothing was executed")
				require.Equal(t, 1, must(t, r.elsewhere(t), key, c.run))
			})
		}
	}
}

// A call that has waited for too long to run the operation itself claims nothing.
func TestNothingIsClaimedAfterAWaitWithoutTime(t *testing.T) {
	inBubble(t, slowStarter, func(t *testing.T, r *rig, key idem.Key) {
		done := slowly(t, r, key, 1900*time.Millisecond, idem.NotExecuted(errPlain))
		waiter := newRigAt(t, r.mem, r.clock, &idem.Options{Wait: 10 * time.Second})
		_, err := idem.Do(idem.WithKillTime(t.Context(), time.Now().Add(6*time.Second)), waiter.engine,
			key, 1, new(counter).run)
		require.ErrorIs(t, err, idem.ErrOutOfTime)
		require.Equal(t, 1, waiter.count(idemtest.Acquire))
		<-done
	})
}

// A result that was not found, because the record is another one now, is not replaced by that one's.
func TestAReplayIsOfTheRecordThatWasRead(t *testing.T) {
	r, key := rigOn(t, safe)
	finished(t, r, key)
	old := r.record(t, key)
	r.faults.Next(idemtest.Result, func(context.Context, *idemtest.Call) error {
		r.clock.Advance(2 * idem.DefaultRetention)
		_, err := idem.Do(t.Context(), r.elsewhere(t).engine, key,
			1, func(context.Context, int) (int, error) { return 99, nil })
		require.NoError(t, err)
		return protocol.ErrRecordUnreadable
	})
	out, err := r.engine.Replay(t.Context(), old)
	require.ErrorIs(t, err, idem.ErrRecordUnreadable, "%s", out.Body)
}
