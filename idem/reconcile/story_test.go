package reconcile_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// provider takes charges, and remembers them by their token.
type provider struct {
	charges []string
	silent  bool
}

func (p *provider) charge(ctx context.Context, amount int) (int, error) {
	p.charges = append(p.charges, idem.Token(ctx))
	return amount, nil
}

// probe asks by the token. A silent provider answers nothing until the time is over.
func (p *provider) probe(ctx context.Context, q reconcile.Question) (reconcile.Answer, error) {
	if p.silent {
		<-ctx.Done()
		return reconcile.Answer{}, ctx.Err()
	}
	for _, token := range p.charges {
		if token == q.Token {
			return reconcile.CompletedWith(1).WithRef("ch_1"), nil
		}
	}
	return reconcile.NotExecuted(), nil
}

// The process is killed in its handler, before or after the effect, and a sweep comes
// every minute.
func TestAKilledProcessLeavesNoQuestionInSilence(t *testing.T) {
	for _, tc := range []struct {
		name    string
		charged bool
		silent  bool
		state   idem.State // within two minutes of the lease's end
		retry   func(t *testing.T, amount int, err error)
		charges int
		people  int
		changes []protocol.Change
	}{
		{"the provider remembers", true, false, idem.Completed, func(t *testing.T, amount int, err error) {
			require.NoError(t, err)
			require.Equal(t, 1, amount)
		}, 1, 0, []protocol.Change{protocol.ChangeParked, protocol.ChangeResolved}},
		{"the provider has none", false, false, idem.Released, func(t *testing.T, amount int, err error) {
			require.NoError(t, err)
			require.Equal(t, 1, amount)
		}, 1, 0, []protocol.Change{protocol.ChangeParked, protocol.ChangeResolved}},
		{"the provider does not answer", true, true, idem.Unknown, func(t *testing.T, _ int, err error) {
			require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
		}, 1, 1, []protocol.Change{protocol.ChangeParked, protocol.ChangeEscalated}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, p := newRig(t), &provider{silent: tc.silent}
				key := refund.Key("acme", "r-1")
				idemtest.Deliver(r.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
					return idem.Do(ctx, e, key, 1, func(ctx context.Context, amount int) (int, error) {
						if tc.charged {
							_, _ = p.charge(ctx, amount)
						}
						r.Crash()
						return 0, ctx.Err()
					})
				})
				r.Restart()
				require.Equal(t, idem.InProgress, r.Record(key).State)
				lease := r.Record(key).LeaseUntil
				s := r.sweeper(reconcile.SweepOptions{Operations: []reconcile.Operation{{Operation: refund, Probe: p.probe}}})
				every := func(until time.Time) {
					for time.Now().Before(until) {
						time.Sleep(time.Minute)
						ctx, cancel := context.WithTimeout(t.Context(), 50*time.Second)
						_, err := s.Sweep(ctx)
						require.NoError(t, err)
						cancel()
					}
				}
				every(lease.Add(time.Minute))
				require.WithinDuration(t, lease, time.Now(), 2*time.Minute)
				require.Equal(t, tc.state, r.Record(key).State)
				every(lease.Add(12 * time.Hour))
				require.Len(t, r.escalations, tc.people)

				amount, err := r.call(key, p.charge)
				tc.retry(t, amount, err)
				require.Len(t, p.charges, tc.charges, "one charge, whatever happened")
				require.Equal(t, tc.changes, r.changes(key))
				if tc.silent {
					rec := r.Record(key)
					require.False(t, rec.EscalatedAt.IsZero())
					require.WithinDuration(t, lease.Add(reconcile.DefaultProbeAge), rec.EscalatedAt, time.Hour+5*time.Minute)
					require.Greater(t, rec.Probes, 4)
					require.Less(t, rec.Probes, 20, "it backs off")
				}
			})
		})
	}
}
