package casstore_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/casstore"
	"github.com/idem-go/idempotency/idem/casstore/memtable"
	"github.com/idem-go/idempotency/idem/protocol"
)

// A connection that is silently dead costs one try, not the time of the call.
func TestASilentConnectionCostsOneTry(t *testing.T) {
	for name, call := range map[string]func(context.Context, *casstore.Store) error{
		"write": func(ctx context.Context, s *casstore.Store) error { return s.Finish(ctx, now, complete("a", "a.1", 1)) },
		"large": func(ctx context.Context, s *casstore.Store) error {
			return s.Finish(ctx, now, complete("a", "a.1", 1<<20))
		},
		"read": func(ctx context.Context, s *casstore.Store) error { _, err := s.Get(ctx, "t#op#k"); return err },
		"list": func(ctx context.Context, s *casstore.Store) error {
			_, err := s.Scan(ctx, protocol.ScanQuery{Segments: 1})
			return err
		},
	} {
		for bounded, with := range map[string]func(context.Context) (context.Context, context.CancelFunc){
			"": context.WithCancel, ", within 2 s": func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, 2*time.Second)
			},
		} {
			t.Run(name+bounded, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s, d := newStore(t)
					require.NoError(t, s.Acquire(t.Context(), now, claim("a")))
					silent := true
					d.fault = func(ctx context.Context, _ string, call func()) error {
						if silent {
							silent = false
							<-ctx.Done()
							return &protocol.StoreError{Ambiguous: true, Down: true, Err: ctx.Err()}
						}
						call()
						return nil
					}
					ctx, cancel := with(t.Context())
					defer cancel()
					require.NoError(t, call(ctx, s))
				})
			})
		}
	}
}

// A table that is slow, and works, is no outage.
func TestASlowTableAnswers(t *testing.T) {
	large := strings.Repeat("x", 6<<20)
	for name, c := range map[string]struct {
		method       string
		takes, bound time.Duration
		call         func(context.Context, *casstore.Store) error
	}{
		"claim": {"Write", 400 * time.Millisecond, 700 * time.Millisecond,
			func(ctx context.Context, s *casstore.Store) error { return s.Acquire(ctx, now, claim("a")) }},
		"slower than a try": {"Write", 3 * time.Second, time.Minute,
			func(ctx context.Context, s *casstore.Store) error { return s.Acquire(ctx, now, claim("a")) }},
		"a large result": {"Part", 7 * time.Second, 8 * time.Second,
			func(ctx context.Context, s *casstore.Store) error {
				rec, err := s.Get(ctx, "t#op#k")
				if err == nil {
					_, err = s.Result(ctx, rec)
				}
				return err
			}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := newStore(t)
				require.NoError(t, s.Acquire(t.Context(), now, claim("a")))
				f := complete("a", "a.1", 1)
				f.Ending.Result = []byte(large)
				require.NoError(t, s.Finish(t.Context(), now, f))
				if c.method == "Write" {
					d.Delete("t#op#k")
				}
				d.fault = func(ctx context.Context, method string, call func()) error {
					if method == c.method {
						select {
						case <-time.After(c.takes):
						case <-ctx.Done():
							return &protocol.StoreError{Ambiguous: true, Down: true, Err: ctx.Err()}
						}
					}
					call()
					return nil
				}
				ctx, cancel := context.WithTimeout(t.Context(), c.bound)
				defer cancel()
				require.NoError(t, c.call(ctx, s))
			})
		})
	}
}

// slow is a table over a link on which no large result gets through, or one without a reply.
type slow struct {
	*memtable.Table
	lands bool
	over  atomic.Bool
}

func (s *slow) Write(ctx context.Context, c casstore.Change) (casstore.Row, bool, error) {
	if len(c.Put) == 0 || s.over.Load() {
		return s.Table.Write(ctx, c)
	}
	if s.lands {
		_, _, _ = s.Table.Write(ctx, c)
	}
	<-ctx.Done()
	return casstore.Row{}, false, &protocol.StoreError{Down: true, Ambiguous: true, Err: ctx.Err()}
}

// An outcome is not lost, or late, for the sake of its result. A commit lands whole or not at all.
func TestAnOutcomeIsNotLostForItsResult(t *testing.T) {
	for name, c := range map[string]struct {
		lands bool
		mode  idem.Mode
		state idem.State
	}{
		"its result takes too long": {false, idem.Reserved, idem.Completed},
		"its reply takes too long":  {true, idem.Reserved, idem.Completed},
		"atomic":                    {false, idem.Atomic, idem.Released},
		"atomic, its reply":         {true, idem.Atomic, idem.Completed},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				d := &slow{Table: memtable.New(), lands: c.lands}
				s := casstore.New(d, nil)
				e, err := idem.New(s, nil)
				require.NoError(t, err)
				key := idem.Operation{Name: "op", Repeat: idem.Repeatable, Mode: c.mode}.Key("t", "k")
				want := strings.Repeat("x", 100<<10)
				got, err := idem.Do(t.Context(), e, key, 1, func(context.Context, int) (string, error) { return want, nil })
				rec, gErr := s.Get(t.Context(), key.ID())
				require.NoError(t, gErr)
				require.Equal(t, c.state, rec.State)
				if c.state != idem.Completed {
					require.ErrorAs(t, err, new(*idem.CommitError))
					return
				}
				require.NoError(t, err)
				require.Equal(t, want, got)
				require.Equal(t, !c.lands, rec.Omitted)
				d.over.Store(true)
				require.NoError(t, e.Flush(t.Context()))
				rec, err = s.Get(t.Context(), key.ID())
				require.NoError(t, err)
				body, err := s.Result(t.Context(), rec)
				require.NoError(t, err)
				require.Equal(t, `"`+want+`"`, string(body))
			})
		})
	}
}

// A row that a try has made without a reply is no confirmation: Postgres shows what its standby may not have.
func TestWhatIsSeenIsNotConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newStore(t)
		confirms := false
		d.fault = func(_ context.Context, method string, call func()) error {
			if call(); method == "Write" && !confirms {
				return &protocol.StoreError{Ambiguous: true, Down: true, Err: context.DeadlineExceeded}
			}
			return nil
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		failed := new(protocol.StoreError)
		require.ErrorAs(t, s.Acquire(ctx, now, claim("a")), &failed)
		require.True(t, failed.Ambiguous)
		require.NotEmpty(t, d.Table.Row("t#op#k").Row.Data)
		confirms = true
		seen := d.Table.Row("t#op#k").Row.Version
		require.NoError(t, s.Acquire(t.Context(), now, claim("a")))
		require.NotEqual(t, seen, d.Table.Row("t#op#k").Row.Version, "it is written again, also by another call")
	})
}

// The store is down if every try found it so, whichever says why the call failed: a late one may have waited for this
// process alone.
func TestOnlyAStoreThatIsDownInEveryTryIsDown(t *testing.T) {
	for name, c := range map[string]struct {
		first protocol.StoreError
		late  bool // what the late try finds: whether the store is down
		down  bool
	}{
		"a broken connection, then none that is free": {protocol.StoreError{Down: true, Ambiguous: true}, false, false},
		"a throttled one, then none that is free":     {protocol.StoreError{Down: true, Throttled: true}, false, false},
		"a fault of the server, then silence":         {protocol.StoreError{Ambiguous: true}, true, false},
		"a broken connection, then silence":           {protocol.StoreError{Down: true, Ambiguous: true}, true, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, d := newStore(t)
				why, tries := errors.New("why"), 0
				d.fault = func(ctx context.Context, _ string, _ func()) error {
					if tries++; tries == 1 {
						first := c.first
						first.Err = why
						return &first
					}
					<-ctx.Done()
					return &protocol.StoreError{Down: c.late, Ambiguous: c.late, Err: ctx.Err()}
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				err := s.Acquire(ctx, now, claim("a"))
				failed := new(protocol.StoreError)
				require.ErrorAs(t, err, &failed)
				require.ErrorIs(t, err, why)
				require.Equal(t, c.down, failed.Down)
				require.False(t, failed.Throttled)
			})
		})
	}
}

// The server's refusal says more than a last try that is too late. That may have been applied all the same.
func TestARefusalIsNotForgottenForATryThatIsLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, d := newStore(t)
		full, tries := errors.New("OOM"), 0
		d.fault = func(ctx context.Context, _ string, _ func()) error {
			if tries++; tries == 1 {
				return &protocol.StoreError{Down: true, Throttled: true, Err: full}
			}
			<-ctx.Done()
			return &protocol.StoreError{Down: true, Ambiguous: true, Err: ctx.Err()}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := s.Acquire(ctx, now, claim("a"))
		failed := new(protocol.StoreError)
		require.ErrorAs(t, err, &failed)
		require.ErrorIs(t, err, full)
		require.True(t, failed.Throttled && failed.Ambiguous)
	})
}
