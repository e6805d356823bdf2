package reconcile_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// A pause that begins during a sweep is seen by it.
func TestAPauseDuringASweep(t *testing.T) {
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
	testPaused(t, func(t *testing.T, p *paused) {
		e, err := idem.New(p, nil)
		require.NoError(t, err)
		for _, key := range []string{"a", "b", "c"} {
			_, err := idem.Do(t.Context(), e, op.Key("acme", key), 1, func(ctx context.Context, _ int) (int, error) {
				_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }, nil)
				return 1, errors.Join(err, errPlain)
			})
			require.ErrorIs(t, err, errPlain)
		}
		calls := 0
		sweeper, err := reconcile.NewSweeper(p.records, &reconcile.SweepOptions{Concurrency: 1,
			Operations: []reconcile.Operation{{Operation: op, OnAbandoned: func(context.Context, reconcile.Question) error {
				if calls++; calls == 1 {
					p.pause("acme", 0)
				}
				time.Sleep(6 * time.Second) // a slow queue
				return nil
			}}}})
		require.NoError(t, err)
		_, err = sweeper.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, 1, calls)
	})
}

// slowPaused is a table whose answers take time.
type slowPaused struct {
	*paused
	after func()
}

func (s *slowPaused) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	got, err := s.paused.ReadPaused(ctx)
	if s.after != nil {
		s.after()
	}
	return got, err
}

// What a sweep has read of pauses is as old as the beginning of the read.
func TestASlowReadOfASweepIsAsOldAsItsBeginning(t *testing.T) {
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
	testPaused(t, func(t *testing.T, p *paused) {
		e, err := idem.New(p, nil)
		require.NoError(t, err)
		for _, key := range []string{"a", "b", "c"} {
			_, err := idem.Do(t.Context(), e, op.Key("acme", key), 1, func(ctx context.Context, _ int) (int, error) {
				_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }, nil)
				return 1, errors.Join(err, errPlain)
			})
			require.ErrorIs(t, err, errPlain)
		}
		s := &slowPaused{paused: p}
		r, err := reconcile.New(s, nil)
		require.NoError(t, err)
		var at time.Time
		s.after = func() { // the answer is on its way for 4 s
			s.after = nil
			p.pause("acme", 0)
			at = time.Now()
			time.Sleep(4 * time.Second)
		}
		var ages []time.Duration
		sweeper, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{Concurrency: 1,
			Operations: []reconcile.Operation{{Operation: op, OnAbandoned: func(context.Context, reconcile.Question) error {
				ages = append(ages, time.Since(at))
				time.Sleep(4 * time.Second)
				return nil
			}}}})
		require.NoError(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
		defer cancel()
		_, err = sweeper.Sweep(ctx)
		require.NoError(t, err)
		require.NotEmpty(t, ages)
		for _, age := range ages {
			require.Less(t, age, 5*time.Second+time.Second, "%v", ages)
		}
	})
}

// slowly is a table whose next answer of each kind takes time, if the call lets it.
type slowly struct {
	*paused
	read, hold func()
}

func (s *slowly) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	got, err := s.paused.ReadPaused(ctx)
	return got, errors.Join(err, during(ctx, &s.read))
}

func (s *slowly) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	err := s.paused.Postpone(ctx, now, p)
	return errors.Join(err, during(ctx, &s.hold))
}

func during(ctx context.Context, do *func()) error {
	if *do == nil {
		return nil
	}
	now := *do
	*do = nil
	now()
	select {
	case <-ctx.Done():
		return &idem.StoreError{Err: ctx.Err()}
	case <-time.After(8 * time.Second):
		return nil
	}
}

// OnAbandoned is not called from 5 seconds after a pause, however slow the table is, and what was left for it is
// handled as before once the pause is over.
func TestOnAbandonedIsNotCalledInAPauseOfASlowTable(t *testing.T) {
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
	for _, slow := range []string{"read", "hold"} {
		testPaused(t, func(t *testing.T, p *paused) {
			e, err := idem.New(p, nil)
			require.NoError(t, err)
			_, err = idem.Do(t.Context(), e, op.Key("acme", "a"), 1, func(ctx context.Context, _ int) (int, error) {
				_, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { return 1, nil }, nil)
				return 1, errors.Join(err, errPlain)
			})
			require.ErrorIs(t, err, errPlain)
			s := &slowly{paused: p}
			s.hold = func() { p.pause("acme", 0) }
			if slow == "read" { // the one after the hold
				s.hold = func() { s.read = func() { p.pause("acme", 0) } }
			}
			r, err := reconcile.New(s, nil)
			require.NoError(t, err)
			calls, escalated := 0, 0
			sweeper, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{
				Operations: []reconcile.Operation{{Operation: op,
					OnAbandoned: func(context.Context, reconcile.Question) error { calls++; return nil }}},
				Escalate: func(context.Context, reconcile.Escalation) error { escalated++; return nil }})
			require.NoError(t, err)
			sweep := func() {
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
				defer cancel()
				_, err := sweeper.Sweep(ctx)
				require.NoError(t, err)
			}
			for range 12 * 6 {
				sweep()
				time.Sleep(10 * time.Minute)
			}
			require.Zero(t, calls, slow)
			rec, err := p.Get(t.Context(), op.Key("acme", "a").ID())
			require.NoError(t, err)
			require.Zero(t, rec.Probes, "no call was made")
			p.resume("acme")
			for range 12 * 6 * 2 {
				if calls == 0 {
					sweep()
				}
				time.Sleep(10 * time.Minute)
			}
			require.Equal(t, []int{1, 0}, []int{calls, escalated}, slow)
		})
	}
}
