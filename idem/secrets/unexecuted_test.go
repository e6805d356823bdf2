package secrets_test

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
)

// Nothing was executed under the record that A has left: it is no reason to stay, and only one of its
// next claim and the mark lands.
func TestWhatWasNotExecutedUnderAFormerSecretCountsAsNone(t *testing.T) {
	errBusy := errors.New("busy")
	released := func(t *testing.T) (r *rig, a, b *process, left idem.Key) {
		r = newRig(t)
		a, b = r.process(secrets.New(secretA, secretB)), r.process(secrets.New(secretB, secretA))
		a.runs("register")
		b.runs("known")
		left = a.op.Key("t", "4711")
		_, err := idem.Do(t.Context(), a.engine, left, "input of 4711", func(context.Context, string) (string, error) { return "", idem.NotExecuted(errBusy) })
		require.ErrorIs(t, err, errBusy)
		b.faults.Reset()
		return r, a, b, left
	}
	markedAt := func(r *rig, b *process, left idem.Key) {
		rec, err := r.store.Get(r.t.Context(), left.ID())
		require.NoError(r.t, err)
		require.Equal(r.t, protocol.Moved, rec.State)
		require.Equal(r.t, b.op.Key("t", "4711").ID(), rec.MovedTo)
	}
	t.Run("the mark comes over it", func(t *testing.T) {
		r, a, b, left := released(t)
		s, err := b.engine.Lookup(t.Context(), b.op.Key("t", "4711"))
		require.NoError(t, err)
		require.Equal(t, idem.Absent, s.State)
		out := b.runs("4711")
		markedAt(r, b, left)
		a.replays("4711", out)
		b.replays("4711", out)
	})
	t.Run("the mark comes before its next claim", func(t *testing.T) {
		r, a, b, left := released(t)
		var out string
		tries := 0
		a.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if tries++; tries == 2 { // the first one finds the record, this one was sent over it
				require.Equal(t, left.ID(), c.ID)
				out = b.runs("4711")
			}
			return c.Do(ctx)
		}, idemtest.Acquire)
		again, err := a.charge("4711")
		require.NoError(t, err)
		require.Equal(t, out, again)
		require.Equal(t, 2, tries, "it follows the mark")
		markedAt(r, b, left)
	})
	t.Run("its next claim comes before the mark", func(t *testing.T) {
		r, a, b, left := released(t)
		moves := 0
		var out string
		b.faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			if moves++; moves == 2 { // the first one finds the record, this one was sent over it
				out = a.runs("4711")
			}
			return c.Do(ctx)
		}, idemtest.Move)
		again, err := b.charge("4711")
		require.NoError(t, err)
		require.Equal(t, out, again)
		rec, err := r.store.Get(t.Context(), left.ID())
		require.NoError(t, err)
		require.Equal(t, idem.Completed, rec.State)
		b.replays("4711", out)
	})
	t.Run("it ends so while another process is about to take it over", func(t *testing.T) {
		r, a, b, left := released(t)
		end, ended := make(chan struct{}), make(chan error)
		begun := make(chan struct{})
		go func() {
			_, err := idem.Do(t.Context(), a.engine, left, "input of 4711", func(context.Context, string) (string, error) {
				close(begun)
				<-end
				return "", idem.NotExecuted(errBusy)
			})
			ended <- err
		}()
		<-begun
		r.clock.Advance(2 * idem.DefaultLease)
		b.faults.Next(idemtest.Acquire, func(ctx context.Context, c *idemtest.Call) error {
			require.Equal(t, left.ID(), c.ID)
			close(end)
			<-ended
			return c.Do(ctx)
		})
		out := b.runs("4711")
		markedAt(r, b, left)
		a.replays("4711", out)
	})
}
