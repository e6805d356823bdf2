package pause_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/pause"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
)

// store is one for functions and for operators.
type store interface {
	reconcile.Store
	reconcile.PauseStore
}

// table makes a table in DynamoDB, and a store that counts what it uses of it.
func table(t *testing.T, without bool) (s store, written, read *float64) {
	t.Helper()
	name := "pause-" + rand.Text()
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: dynamotest.Client(t)}, name))
	written, read = new(float64), new(float64)
	var mu sync.Mutex
	ask := dynamostore.MeterCapacity(name, func(_ context.Context, _ string, w, r float64) {
		mu.Lock()
		defer mu.Unlock()
		*written, *read = *written+w, *read+r
	})
	client, err := dynamostore.NewClient(aws.Config{APIOptions: []func(*middleware.Stack) error{ask}},
		&dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t)})
	require.NoError(t, err)
	admin, err := dynamostore.NewAdminStore(client, name, &dynamostore.Options{AttemptTimeout: time.Minute,
		Budget: 5 * time.Minute, WithoutTransactions: without})
	require.NoError(t, err)
	return admin, written, read
}

// stores are all that can keep pauses.
var stores = map[string]func(t *testing.T) store{
	"memory":               func(*testing.T) store { return memstore.New() },
	"table":                func(t *testing.T) store { s, _, _ := table(t, false); return s },
	"without transactions": func(t *testing.T) store { s, _, _ := table(t, true); return s },
}

// processOn is a process over the store, which has time.
func processOn(t *testing.T, s store) *idem.Engine {
	t.Helper()
	kept := pause.Store(s)
	if table, ok := s.(*dynamostore.AdminStore); ok {
		kept = dynamostore.PausesOf(table.Store)
	}
	pauses, err := pause.New(kept)
	require.NoError(t, err)
	e, err := idem.New(s, &idem.Options{Pauses: pauses, ClaimBudget: time.Minute, FinishBudget: time.Minute})
	require.NoError(t, err)
	return e
}

func run(t *testing.T, e *idem.Engine, op idem.Operation, tenant, value string) error {
	_, err := idem.Do(t.Context(), e, op.Key(tenant, value), 1, nothing)
	return err
}

// A process that runs sees a pause without a restart, and one that starts sees it at once. It and its end are in the
// history.
func TestAPauseInEveryStore(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			records, err := reconcile.New(s, nil)
			require.NoError(t, err)
			warm := processOn(t, s)
			require.NoError(t, run(t, warm, export, "acme", "done"))

			require.NoError(t, records.Pause(t.Context(), "export", "acme", time.Time{}, why))
			require.ErrorIs(t, run(t, processOn(t, s), export, "acme", "new"), idem.ErrPaused)
			n := 0
			require.Eventually(t, func() bool {
				n++
				return errors.Is(run(t, warm, export, "acme", fmt.Sprint(n)), idem.ErrPaused)
			}, time.Minute, 100*time.Millisecond)
			require.NoError(t, run(t, warm, export, "acme", "done"), "a replay")
			require.NoError(t, run(t, warm, export, "globex", "new"))

			require.NoError(t, records.Resume(t.Context(), "export", "acme", why))
			require.NoError(t, run(t, processOn(t, s), export, "acme", "new"))

			history, err := records.History(t.Context(), "acme#export#pause")
			require.NoError(t, err)
			var made []protocol.Change
			for _, a := range history {
				require.False(t, a.Unconfirmed)
				require.Equal(t, []string{"alice", why.Reason}, []string{a.Who, a.Why})
				made = append(made, a.Change)
			}
			require.Equal(t, []protocol.Change{protocol.ChangePaused, protocol.ChangeResumed}, made)
		})
	}
}

// A write that is sent again is made once, and one that has seen something else is refused.
func TestAWriteIsMadeOnce(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			now := time.Now().UTC().Truncate(time.Millisecond)
			write := func(seen, id string) protocol.PausedWrite {
				p := protocol.Pause{Operation: "export", Since: now, Who: "alice", Why: id}
				return protocol.PausedWrite{
					Paused: protocol.Paused{Pauses: []protocol.Pause{p}, Write: id}, Seen: seen,
					Audit: &protocol.Audit{ID: p.ID(), Entry: id, At: now, Who: "alice", Why: id, Change: protocol.ChangePaused,
						ExpiresAt: now.Add(time.Hour)},
				}
			}
			for _, w := range []protocol.PausedWrite{write("", "w1"), write("w1", "w2")} {
				for range 2 {
					require.NoError(t, s.WritePaused(t.Context(), w))
				}
				got, err := s.ReadPaused(t.Context())
				require.NoError(t, err)
				require.Equal(t, w.Paused, got)
			}
			for _, w := range []protocol.PausedWrite{write("", "w3"), write("w1", "w3")} {
				var conflict *protocol.ConflictError
				require.ErrorAs(t, s.WritePaused(t.Context(), w), &conflict)
			}
			page, err := s.AuditOf(t.Context(), "#export#pause", "")
			require.NoError(t, err)
			require.Len(t, page.Entries, 2)
			ended, cancel := context.WithCancel(t.Context())
			cancel()
			_, err = s.ReadPaused(ended)
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.ErrorIs(t, s.WritePaused(ended, write("w2", "w4")), idem.ErrStoreUnavailable)
		})
	}
}

// Of operators who pause and resume at once none undoes what another one has done, and each change has its entry.
func TestOperatorsAtOnce(t *testing.T) {
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := open(t)
			var all sync.WaitGroup
			for n := range 8 {
				all.Go(func() {
					records, err := reconcile.New(s, nil)
					if err != nil {
						t.Error(err)
						return
					}
					change := func(do func() error) {
						for err := do(); err != nil; err = do() {
							if !errors.Is(err, reconcile.ErrChanged) { // it was another one's turn too often
								t.Error(err)
								return
							}
						}
					}
					op := fmt.Sprint("op", n)
					change(func() error { return records.Pause(t.Context(), op, "", time.Time{}, why) })
					change(func() error { return records.Pause(t.Context(), op, "acme", time.Time{}, why) })
					change(func() error { return records.Resume(t.Context(), op, "", why) })
				})
			}
			all.Wait()
			records, err := reconcile.New(s, nil)
			require.NoError(t, err)
			paused, err := records.Paused(t.Context())
			require.NoError(t, err)
			require.Len(t, paused, 8)
			for _, p := range paused {
				require.Equal(t, "acme", p.Tenant)
				history, err := records.History(t.Context(), p.ID())
				require.NoError(t, err)
				require.Len(t, history, 1)
			}
			changes, err := records.Changes(t.Context(), time.Now().Add(-time.Hour), time.Now().Add(time.Hour), "")
			require.NoError(t, err)
			require.Len(t, changes.Entries, 3*8)
		})
	}
}

// What the package's documentation says that a pause costs, as DynamoDB counts it.
func TestUnits(t *testing.T) {
	s, written, read := table(t, false)
	units := func(writes, reads float64, do func()) {
		t.Helper()
		*written, *read = 0, 0
		do()
		require.Equal(t, []float64{writes, reads}, []float64{*written, *read}, "write and read units")
	}
	records, err := reconcile.New(s, nil)
	require.NoError(t, err)
	free, err := idem.New(s, nil)
	require.NoError(t, err)
	units(2, 0, func() { require.NoError(t, run(t, free, export, "acme", "a")) })
	units(2, 1, func() { require.NoError(t, run(t, processOn(t, s), export, "acme", "b")) })
	*written = 0
	require.NoError(t, records.Pause(t.Context(), "export", "", time.Time{}, why))
	t.Log("a pause takes write units:", *written)
	units(0, 2, func() { require.ErrorIs(t, run(t, processOn(t, s), export, "acme", "c"), idem.ErrPaused) })
	units(0, 2, func() { require.NoError(t, run(t, processOn(t, s), export, "acme", "a")) })
}
