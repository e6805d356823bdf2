package later_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// meddler lets somebody act right before the first resolution is written.
type meddler struct {
	reconcile.Store
	before func()
}

func (m *meddler) Settle(ctx context.Context, now time.Time, s protocol.Settlement) error {
	if f := m.before; f != nil {
		m.before = nil
		f()
	}
	return m.Store.Settle(ctx, now, s)
}

// An operator says of work that waits that it failed. A worker claims it at that moment and ends
// with an unknown outcome: of that attempt nobody has found out anything.
func TestAResolutionOfWhatWaitsSettlesNoLaterAttempt(t *testing.T) {
	d := newDesk(t)
	key := statement.Key("acme", "june")
	d.accepted(key, 3)
	m := &meddler{Store: d.Store, before: func() {
		_, err := later.Work(t.Context(), d.Engine, statement, key.ID(), func(context.Context, int) (string, error) {
			d.runs++
			return "", errors.New("time-out: it may have taken effect")
		})
		require.Error(t, err)
		require.Equal(t, idem.Unknown, d.Record(key).State)
	}}
	rc, err := reconcile.New(m, &reconcile.Options{Now: func() time.Time { return d.Clock.Now().Add(time.Hour) }})
	require.NoError(t, err)
	err = rc.Resolve(t.Context(), key.ID(), reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "the queue was deleted, nobody came"}},
		reconcile.Change{Actor: "alice", Reason: "nobody came"})
	require.Equal(t, 1, d.runs)
	require.Equal(t, idem.Unknown, d.Record(key).State, "err %v: attempt 1 was resolved by what was said of no attempt", err)
}

// down is a store that cannot be reached: each call hangs until its context ends.
type down struct {
	protocol.Store
	gets int
	hang bool
}

func (d *down) Get(ctx context.Context, id string) (*protocol.Record, error) {
	d.gets++
	if d.hang {
		<-ctx.Done()
	}
	return nil, &protocol.StoreError{Op: "Get", Down: true, Err: errors.New("connection refused")}
}

// A store that is down is asked once a second, and nothing runs until it answers.
func TestWorkersDoNotAskAStoreThatIsDown(t *testing.T) {
	for name, ask := range map[string]func(e *idem.Engine) error{
		"Work": func(e *idem.Engine) error {
			_, err := later.Work(t.Context(), e, statement, statement.Key("acme", "june").ID(), func(context.Context, int) (string, error) { return "", nil })
			return err
		},
		"Accept": func(e *idem.Engine) error {
			_, err := later.Accept[string](t.Context(), e, statement.Key("acme", "june"), 3, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := &down{Store: newDesk(t).Store}
			e, err := idem.New(s, nil)
			require.NoError(t, err)
			for range 50 {
				require.ErrorIs(t, ask(e), idem.ErrStoreUnavailable)
			}
			require.LessOrEqual(t, s.gets, 6)
		})
	}
}

// A store that does not answer costs a call its budget, not the whole invocation.
func TestABlackHoleCostsAWorkerItsBudget(t *testing.T) {
	for name, ask := range map[string]func(ctx context.Context, e *idem.Engine) error{
		"Work": func(ctx context.Context, e *idem.Engine) error {
			_, err := later.Work(ctx, e, statement, statement.Key("acme", "june").ID(), func(context.Context, int) (string, error) { return "", nil })
			return err
		},
		"StatusOf": func(ctx context.Context, e *idem.Engine) error {
			_, err := later.StatusOf(ctx, e, statement, "acme", strings.Repeat("A", 64))
			return err
		},
		"Cancel": func(ctx context.Context, e *idem.Engine) error {
			return later.Cancel(ctx, e, statement, "acme", strings.Repeat("A", 64))
		},
		"Accept": func(ctx context.Context, e *idem.Engine) error {
			_, err := later.Accept[string](ctx, e, statement.Key("acme", "june"), 3, nil)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, err := idem.New(&down{Store: memstore.New(), hang: true}, nil)
				require.NoError(t, err)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute) // a worker's invocation
				defer cancel()
				began := time.Now()
				require.Error(t, ask(ctx, e))
				require.Less(t, time.Since(began), 2*time.Second)
			})
		})
	}
}
