package limit_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

var errPlain = errors.New("plain")

// What is known of a key is answered as ever while the limit is full.
func TestWhatIsKnownIsAnsweredWhileTheLimitIsFull(t *testing.T) {
	r := newRig(t, 3)
	p := r.process()
	op, strict := r.of(idem.Repeatable), r.of(idem.NotRepeatable)
	require.NoError(t, p.do(op, "done", nil))
	require.Error(t, p.do(op, "failed", func(context.Context) error { return idem.Permanent(errPlain) }))
	require.ErrorIs(t, p.do(strict, "unknown", func(context.Context) error { return errPlain }), errPlain)
	require.ErrorIs(t, p.do(op, "released", func(context.Context) error { return errPlain }), errPlain)

	hold, held, ended := make(chan struct{}), make(chan struct{}, 2), make(chan error, 2)
	for i := range 2 {
		go func() {
			ended <- p.do(op, fmt.Sprint("held-", i), func(context.Context) error {
				held <- struct{}{}
				<-hold
				return nil
			})
		}()
		<-held
	}
	records := len(r.table.Records())
	q := r.process()
	require.NoError(t, q.do(op, "done", nil))
	require.ErrorContains(t, q.do(op, "failed", nil), "plain")
	require.ErrorIs(t, q.do(strict, "unknown", nil), idem.ErrOutcomeUnknown)
	require.ErrorIs(t, q.do(op, "held-0", nil), idem.ErrInFlight)
	_, err := idem.Do(t.Context(), q.engine, op.Key("acme", "done"), "another input", func(context.Context, string) (string, error) { return "", nil })
	require.ErrorIs(t, err, idem.ErrKeyReused)

	for _, value := range []string{"new", "released"} {
		q.faults.Reset()
		err = q.do(op, value, nil)
		require.ErrorIs(t, err, idem.ErrTooMany)
		var many *protocol.TooManyError
		require.ErrorAs(t, err, &many)
		require.False(t, many.New)
		require.Equal(t, time.Second, many.RetryAfter)
		require.Equal(t, []idemtest.Method{idemtest.Get, idemtest.TakePlace}, q.faults.Calls(), "all places were taken a moment ago")
	}
	require.Equal(t, []notice.Kind{notice.TooMany, notice.TooMany}, q.kinds[len(q.kinds)-2:])
	require.Len(t, r.table.Records(), records, "nothing is recorded of a refusal")
	close(hold)
	require.NoError(t, errors.Join(<-ended, <-ended))
	require.NoError(t, q.do(op, "new", nil))
	require.NoError(t, q.do(op, "released", nil))
}

// The calls of each path.
func TestCallsOfEachPath(t *testing.T) {
	r := newRig(t, 1)
	p := r.process()
	op := r.of(idem.Repeatable)
	calls := func(want ...idemtest.Method) {
		t.Helper()
		require.Equal(t, want, p.faults.Calls())
		p.faults.Reset()
	}
	require.NoError(t, p.do(op, "a", nil))
	calls("Get", "TakePlace", "Acquire", "Finish", "ReturnPlace")
	require.NoError(t, p.do(op, "a", nil))
	calls("Get", "Result")
	require.ErrorIs(t, p.do(op, "b", func(context.Context) error { return errPlain }), errPlain)
	calls("Get", "TakePlace", "Acquire", "Finish", "ReturnPlace")
	require.ErrorIs(t, p.do(op, "b", func(context.Context) error { return errPlain }), errPlain)
	calls("Get", "TakePlace", "Acquire", "Finish", "ReturnPlace")

	fresh := idem.Operation{Name: "mail", Limit: limit.PerTenant{New: 100}}
	require.NoError(t, p.do(fresh, "a", nil))
	calls("Get", "TakePlace", "Acquire", "Finish")
	require.NoError(t, p.do(idem.Operation{Name: "free"}, "a", nil))
	calls("Acquire", "Finish")

	atomic := idem.Operation{Name: "move", Repeat: idem.Repeatable, Mode: idem.Atomic, Limit: limit.PerTenant{New: 1}}
	require.NoError(t, p.do(atomic, "a", nil))
	calls("Get", "TakePlace", "Finish")
	require.NoError(t, p.do(atomic, "a", nil))
	calls("Get", "Result")
}

// A process dies at any call, which lands or does not. Whatever it leaves, the bound holds, and the
// count comes back by itself.
func TestTheCountComesBackAfterADeathAtAnyCall(t *testing.T) {
	for _, repeat := range []idem.Repeat{idem.Repeatable, idem.NotRepeatable} {
		for _, handler := range []error{nil, errPlain, idem.Permanent(errPlain), idem.NotExecuted(errPlain)} {
			for _, fault := range []idemtest.Fault{idemtest.LoseReply, idemtest.LoseRequest} {
				for n := range 5 {
					r := newRig(t, 1)
					op := r.of(repeat)
					p := r.process()
					dying := []idemtest.Method{idemtest.Get, idemtest.TakePlace, idemtest.Acquire, idemtest.Finish, idemtest.ReturnPlace}
					// What comes after the call that it dies at gets lost too.
					for _, m := range dying[n+1:] {
						p.faults.Always(idemtest.LoseRequest, m)
					}
					p.faults.Always(idemtest.LoseRequest, idemtest.Withdraw, idemtest.CheckPlaces)
					p.faults.Always(fault, dying[n])
					ctx, cancel := context.WithCancel(t.Context())
					_, _ = idem.Do(ctx, p.engine, op.Key("acme", "a"), "a", func(context.Context, string) (string, error) { return "done", handler })
					cancel()

					q := r.process()
					r.clock.Advance(time.Minute)
					state := r.state(op, "a")
					err := q.later(op, "b", 3)
					if repeat == idem.NotRepeatable && (state == idem.InProgress || state == idem.Unknown) {
						require.ErrorIs(t, err, idem.ErrTooMany, "what nobody knows has its place")
						if state == idem.InProgress {
							require.ErrorIs(t, q.do(op, "a", nil), idem.ErrOutcomeUnknown)
						}
						rec, err := r.table.Get(t.Context(), op.Key("acme", "a").ID())
						require.NoError(t, err)
						require.NoError(t, r.table.Settle(t.Context(), r.clock.Now(), protocol.Settlement{
							ID: rec.ID, Kind: protocol.EventResolve, Seen: rec.Write, Write: "resolved", Owner: "resolver",
							Ending: protocol.Ending{State: idem.Completed, Result: []byte(`"done"`), ExpiresAt: r.clock.Now().Add(time.Hour)},
						}))
						r.clock.Advance(2 * time.Second)
						require.NoError(t, q.later(op, "b", 3))
					} else {
						require.NoError(t, err, "%v %v at call %d: %s", repeat, handler, n, state)
					}
					require.True(t, r.free(op))
				}
			}
		}
	}
}

// A claim that is on its way while its process is dead does not open its record once its place is
// given away: it is fenced before.
func TestAClaimThatArrivesLateOpensNothing(t *testing.T) {
	for _, before := range []string{"no record", "released", "expired"} {
		t.Run(before, func(t *testing.T) {
			r := newRig(t, 1)
			op := r.of(idem.Repeatable)
			p := r.process()
			switch before {
			case "released":
				require.Error(t, p.do(op, "a", func(context.Context) error { return errPlain }))
			case "expired":
				require.NoError(t, p.do(op, "a", nil))
				r.clock.Advance(25 * time.Hour)
			}
			var claim *idemtest.Call
			p.faults.Next(idemtest.Acquire, idemtest.Hold(&claim))
			p.faults.Always(idemtest.LoseRequest, idemtest.Withdraw)
			require.Error(t, p.do(op, "a", nil))

			r.clock.Advance(time.Minute)
			q := r.process()
			held, hold, ended := make(chan struct{}), make(chan struct{}), make(chan error)
			go func() {
				ended <- q.do(op, "b", func(context.Context) error {
					close(held)
					<-hold
					return nil
				})
			}()
			select {
			case <-held:
			case err := <-ended:
				require.NoError(t, err)
			}
			require.Error(t, claim.Do(context.Background()))
			close(hold)
			require.NoError(t, <-ended)
			require.NoError(t, q.do(op, "a", nil))
			require.True(t, r.free(op))
		})
	}
}

// A call that was paused between its place and its claim finds its place gone: it takes another.
func TestAPausedCallTakesAPlaceAnew(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	p, q := r.process(), r.process()
	hold, held := make(chan struct{}), make(chan struct{})
	p.faults.Next(idemtest.Acquire, func(ctx context.Context, c *idemtest.Call) error {
		close(held)
		<-hold
		return c.Do(ctx)
	})
	ended := make(chan error)
	go func() { ended <- p.do(op, "a", nil) }()
	<-held
	r.clock.Advance(time.Minute)
	inside := make(chan struct{})
	over := make(chan error)
	go func() {
		over <- q.do(op, "b", func(context.Context) error {
			close(inside)
			return errors.Join(<-ended, nil)
		})
	}()
	select {
	case <-inside:
	case err := <-over:
		close(hold)
		require.NoError(t, err)
	}
	close(hold)
	require.ErrorIs(t, <-over, idem.ErrTooMany, "the paused call is refused while the other one runs")
	require.NoError(t, p.do(op, "a", nil))
}

// Calls of one key at once share its place, in whatever order they come and end.
func TestDuplicatesShareAPlace(t *testing.T) {
	for range 20 {
		r := newRig(t, 1)
		op := r.of(idem.Repeatable)
		var wg sync.WaitGroup
		for range 8 {
			p := r.process()
			wg.Go(func() {
				err := p.do(op, "a", nil)
				if err != nil && !errors.Is(err, idem.ErrInFlight) {
					t.Errorf("%v", err)
				}
			})
		}
		wg.Wait()
		require.True(t, r.free(op), "nobody has left a place behind")
	}
}

// A claim that cannot be taken back since another call of the key has its claim leaves the place to
// that one.
func TestAClaimThatIsNotTakenBackLeavesThePlace(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	p, q := r.process(), r.process()
	held, hold, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	p.faults.Next(idemtest.Acquire, func(_ context.Context, c *idemtest.Call) error {
		go func() {
			ended <- q.do(op, "a", func(context.Context) error {
				close(held)
				<-hold
				return nil
			})
		}()
		<-held
		return c.Lost()
	})
	require.ErrorIs(t, p.do(op, "a", nil), idem.ErrStoreUnavailable)
	require.False(t, r.free(op))
	close(hold)
	require.NoError(t, <-ended)
	require.True(t, r.free(op))
}

// What is left of a place by an earlier life of its key does not keep a new one out.
func TestAPlaceOfAForgottenRecord(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	p := r.process()
	for range 3 {
		require.Error(t, p.do(op, "a", func(context.Context) error { return errPlain }))
	}
	p.faults.Always(idemtest.LoseRequest, idemtest.ReturnPlace)
	require.NoError(t, p.do(op, "a", nil))
	require.False(t, r.free(op))
	r.table.Delete(op.Key("acme", "a").ID())
	require.NoError(t, r.process().do(op, "a", nil))
	require.True(t, r.free(op))
}

// A lapsed claim that a call takes over keeps its place, and one that nobody asks for is released
// when its place is needed, unless a sweep tells people of it.
func TestTakeoverKeepsThePlace(t *testing.T) {
	r := newRig(t, 1)
	op := r.of(idem.Repeatable)
	p := r.process()
	p.faults.Always(idemtest.LoseRequest, idemtest.Finish)
	require.NoError(t, p.do(op, "a", nil))
	require.Equal(t, idem.InProgress, r.state(op, "a"))
	r.clock.Advance(time.Minute)
	q := r.process()
	require.NoError(t, q.do(op, "a", func(context.Context) error {
		require.False(t, r.free(op))
		return nil
	}))
	require.Equal(t, []idemtest.Method{"Get", "Acquire", "Finish", "ReturnPlace"}, q.faults.Calls())
	require.True(t, r.free(op))

	watched := op
	watched.Watch = idem.WatchAlways
	p = r.process()
	p.faults.Always(idemtest.LoseRequest, idemtest.Finish)
	require.NoError(t, p.do(watched, "b", nil))
	r.clock.Advance(time.Minute)
	require.ErrorIs(t, q.later(op, "c", 3), idem.ErrTooMany)
	require.NoError(t, q.do(watched, "b", nil))
	require.NoError(t, q.do(op, "c", nil))
}

// A full limit is looked at once a second, by one of all calls, and all of its places come round.
func TestAFullLimitIsLookedAtOnceASecond(t *testing.T) {
	const bound = 40
	r := newRig(t, bound)
	op := r.of(idem.Repeatable)
	dead := r.process()
	dead.faults.Always(idemtest.LoseRequest, idemtest.Finish, idemtest.ReturnPlace)
	strict := r.of(idem.NotRepeatable)
	for i := range bound {
		if i == 17 {
			require.NoError(t, dead.do(op, fmt.Sprint(i), nil))
		} else {
			require.Error(t, r.process().do(strict, fmt.Sprint(i), func(context.Context) error { return errPlain }))
		}
	}
	r.clock.Advance(time.Minute)
	looked := 0
	for range 4 {
		p := r.process()
		for range 10 {
			if err := p.do(op, "new", nil); err == nil {
				return
			}
		}
		gets := 0
		for _, m := range p.faults.Calls() {
			if m == idemtest.Get {
				gets++
			}
		}
		require.LessOrEqual(t, gets, 10+16, "one look reads sixteen records")
		looked++
		r.clock.Advance(time.Second)
	}
	t.Fatal("the place that nobody needs is not found")
}

// Declarations and stores that a limit cannot hold with.
func TestLimitsThatCannotHold(t *testing.T) {
	good := idem.Operation{Name: "export", Repeat: idem.Repeatable, Limit: limit.PerTenant{Open: 1}}
	require.NoError(t, good.Check())
	for _, change := range []func(*idem.Operation){
		func(o *idem.Operation) { o.Limit = limit.PerTenant{} },
		func(o *idem.Operation) { o.Limit = limit.PerTenant{Open: -1} },
		func(o *idem.Operation) { o.Limit = limit.PerTenant{Open: limit.MaxOpen + 1} },
		func(o *idem.Operation) { o.Limit = limit.PerTenant{New: -1} },
		func(o *idem.Operation) { o.Limit = limit.PerTenant{New: limit.MaxNew + 1} },
		func(o *idem.Operation) { o.OnStoreFailure = idem.FailOpen },
		func(o *idem.Operation) { o.Mode = idem.Atomic },
		func(o *idem.Operation) {
			o.Mode, o.ReplayRunsHandler, o.Limit = idem.Atomic, true, limit.PerTenant{New: 1}
		},
	} {
		op := good
		change(&op)
		var mistake *idem.ConfigError
		require.ErrorAs(t, op.Check(), &mistake)
	}
	e, err := idem.New(struct{ idem.Store }{memstore.New()}, nil)
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), e, good.Key("acme", "a"), 1, func(context.Context, int) (int, error) { return 1, nil })
	require.ErrorContains(t, err, "keeps no places")

	plain, err := memstore.NewPlain()
	require.NoError(t, err)
	e, err = idem.New(plain, nil)
	require.NoError(t, err)
	for i := range 3 {
		_, err = idem.Do(t.Context(), e, good.Key("acme", fmt.Sprint(i)), 1, func(context.Context, int) (int, error) { return 1, nil })
		require.NoError(t, err)
	}
}

// In shadow the handler runs whatever the store can do.
func TestAShadowRunsOverAStoreWithoutPlaces(t *testing.T) {
	e, err := idem.New(struct{ idem.Store }{memstore.New()}, nil)
	require.NoError(t, err)
	op := idem.Operation{Name: "export", Repeat: idem.Repeatable, Shadow: true, Limit: limit.PerTenant{Open: 1}}
	ran := 0
	for range 2 {
		_, err = idem.Do(t.Context(), e, op.Key("acme", "a"), 1, func(context.Context, int) (int, error) { ran++; return 1, nil })
		require.NoError(t, err)
	}
	require.Equal(t, 2, ran)
}
