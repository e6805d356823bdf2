package secrets_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
)

const underAnother = "its records in the store are under another secret than this process has"

// With a wrong secret nothing runs, nothing is written and nothing reads as absent, at every entry and
// however often it is tried.
func TestAWrongSecretFailsClosed(t *testing.T) {
	r := newRig(t)
	one := r.process(secretA).runs("one")
	for _, mode := range []idem.Mode{idem.Reserved, idem.Atomic} {
		p := r.process(secretB)
		p.op.Mode = mode
		for range 2 {
			p.refuses("one", underAnother)
			p.refuses("two", underAnother)
		}
		_, err := p.engine.Lookup(t.Context(), p.op.Key("t", "one"))
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	}
	var mistake *idem.ConfigError
	_, err := r.process(secretB).charge("one")
	require.ErrorAs(t, err, &mistake, "it says what is wrong, and to use another one")
	r.process(secretA).replays("one", one)
}

// The check record is read by each process before its first claim, and again an hour later by the
// clock that says more. Nothing else costs a call.
func TestCallsOfAnOperationWithASecret(t *testing.T) {
	const acquire, finish, get, result = idemtest.Acquire, idemtest.Finish, idemtest.Get, idemtest.Result
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		calls := func(p *process, what string, want ...idemtest.Method) {
			t.Helper()
			require.Equal(t, want, p.faults.Calls(), what)
			p.faults.Reset()
		}
		plain := r.process(nil)
		plain.op.Name = "plain"
		plain.runs("one")
		calls(plain, "without a secret", acquire, finish)
		p := r.process(secretA)
		p.runs("one")
		calls(p, "the first use of all", get, finish, acquire, finish)
		p.runs("two")
		calls(p, "first execution", acquire, finish)
		p.restart()
		three := p.runs("three")
		calls(p, "first execution of a process", get, acquire, finish)
		p.op.Values = secrets.New(secretA)
		p.replays("three", three)
		calls(p, "replay, the operation made again", acquire, result)
		time.Sleep(time.Hour - time.Millisecond)
		p.replays("three", three)
		calls(p, "replay within the hour", get, result)
		time.Sleep(time.Millisecond)
		p.replays("three", three)
		calls(p, "replay after an hour", get, get, result)
		p.op.Mode = idem.Atomic
		p.replays("three", three)
		calls(p, "atomic mode", get, result)
	})
}

// One operation's check says nothing of another one's.
func TestEachOperationIsCheckedForItself(t *testing.T) {
	r := newRig(t)
	former := r.process(secretB)
	former.op.Name = "refund"
	former.runs("one")
	p := r.process(secretA)
	p.runs("one")
	p.op.Name = "refund"
	p.refuses("one", underAnother)
}

// A duplicate of what runs in the same process is in flight, which need not be asked.
func TestADuplicateInTheSameProcessIsInFlight(t *testing.T) {
	r := newRig(t)
	p := r.process(secretA)
	key := p.op.Key("t", "one")
	_, err := idem.Do(t.Context(), p.engine, key, "input of one", func(context.Context, string) (string, error) {
		p.faults.Reset()
		_, err := p.charge("one")
		require.ErrorIs(t, err, idem.ErrInFlight)
		require.Empty(t, p.faults.Calls())
		return "done", nil
	})
	require.NoError(t, err)
	p.replays("one", "done")
}

// A check record that has been removed is created again within the hour. What a process with another
// secret has made in between does not run again under the first one.
func TestARemovedCheckRecordIsFoundWithinTheHour(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		a := r.process(secretA)
		a.runs("one")
		r.store.Delete(checkID)
		r.process(secretB).runs("two")
		time.Sleep(time.Hour)
		a.refuses("two", underAnother)
	})
}

// A lookup writes nothing, and does not stand for the check: a process that has only looked must not
// claim under a secret that the store has not heard of.
func TestALookupDoesNotStandForTheCheck(t *testing.T) {
	r := newRig(t)
	b := r.process(secretB)
	for range 2 {
		rec, err := b.engine.Lookup(t.Context(), b.op.Key("t", "one"))
		require.NoError(t, err)
		require.Nil(t, rec)
		none := errors.New("no claim")
		_, err = b.engine.Execute(t.Context(), idem.Call{Key: b.op.Key("t", "one"), NoClaim: none,
			Fingerprint: protocol.FingerprintOf(1, [32]byte{}),
			Run:         func(context.Context) idem.Answer { t.Error("runs"); return idem.Answer{} }})
		require.ErrorIs(t, err, none)
	}
	require.Empty(t, r.store.Records())
	one := r.process(secretA).runs("one")
	b.refuses("one", underAnother)
	r.process(secretA).replays("one", one)
}

// Whatever becomes of a call of the check, nothing runs without it: not even an operation that fails open, whose
// key may be recorded under another secret. The next attempt goes on, also in another process, and then the
// operation fails open as ever.
func TestFaultsOfTheCheck(t *testing.T) {
	for _, m := range []idemtest.Method{idemtest.Get, idemtest.Finish} {
		for name, fault := range map[string]idemtest.Fault{"reply lost": idemtest.LoseReply,
			"request lost": idemtest.LoseRequest, "refused": idemtest.Refuse, "denied": idemtest.Deny,
			"unreadable": idemtest.Unreadable, "conflict": idemtest.BareConflict} {
			for _, policy := range []idem.StorePolicy{idem.FailClosed, idem.FailOpen} {
				for _, dies := range []bool{false, true} {
					r := newRig(t)
					p := r.process(secretA)
					p.op.OnStoreFailure = policy
					p.faults.Next(m, fault)
					_, err := p.charge("one")
					require.Error(t, err, "%s of %s", name, m)
					if name != "unreadable" {
						require.ErrorIs(t, err, idem.ErrStoreUnavailable)
					}
					require.Zero(t, r.ran.Load(), "%s of %s", name, m)
					if dies {
						p.restart()
					}
					one := p.runs("one")
					r.process(secretA).replays("one", one)
					r.process(secretB).refuses("one", underAnother)
					if policy == idem.FailOpen {
						p.faults.Next(idemtest.Acquire, idemtest.Refuse)
						p.runs("two")
					}
				}
			}
		}
	}
}

// The one whose creation comes second finds the first one's.
func TestTheSecondCreationFindsTheFirst(t *testing.T) {
	for i, key := range [][]byte{secretA, secretB} {
		r := newRig(t)
		first, second := r.process(secretA), r.process(key)
		second.faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
			require.Equal(t, checkID, c.ID)
			first.runs("one")
			return c.Do(ctx)
		})
		_, err := second.charge("two")
		require.Equal(t, i == 1, err != nil && strings.Contains(err.Error(), underAnother), err)
		require.EqualValues(t, 2-i, r.ran.Load())
	}
}

// Callers that wait for another one's check wait within their own time, and the check is made once.
func TestCallersShareACheckWithinTheirOwnTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		p := r.process(secretA)
		release := make(chan struct{})
		p.faults.Next(idemtest.Get, func(ctx context.Context, c *idemtest.Call) error {
			<-release // it does not even end with its context
			return c.Do(ctx)
		})
		errs := make(chan error)
		go func() { _, err := p.charge("one"); errs <- err }()
		synctest.Wait()
		begun := time.Now()
		_, err := p.charge("two")
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.LessOrEqual(t, time.Since(begun), time.Second)
		require.Zero(t, r.ran.Load())
		time.Sleep(time.Second)
		close(release)
		require.ErrorIs(t, <-errs, idem.ErrStoreUnavailable, "its time is over")
		p.runs("three")
	})
}

// The circuit hears the check: a store that is down opens it, and one that answers closes it.
func TestTheCircuitHearsTheCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		one := r.process(secretA).runs("one")
		p := r.process(secretA)
		var seen []notice.Kind
		observe := func(_ context.Context, n notice.Notice) {
			if n.Kind == notice.CircuitOpened || n.Kind == notice.CircuitClosed {
				seen = append(seen, n.Kind)
			}
		}
		var err error
		p.engine, err = idem.New(p.faults, &idem.Options{Observer: observe})
		require.NoError(t, err)
		p.faults.Always(idemtest.Refuse, idemtest.Get)
		for range 7 {
			_, err := p.charge("one")
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		}
		require.Equal(t, []notice.Kind{notice.CircuitOpened}, seen)
		require.Len(t, p.faults.Calls(), 5)
		p.faults.Heal()
		time.Sleep(2 * time.Second)
		p.replays("one", one)
		require.Equal(t, []notice.Kind{notice.CircuitOpened, notice.CircuitClosed}, seen)
		for range 100 {
			p.replays("one", one)
		}
	})
}

// Shadow decides nothing, checks nothing and leaves no check record that would refuse the live mode.
func TestShadowLeavesTheCheckToTheLiveMode(t *testing.T) {
	r := newRig(t)
	trial := r.process(secretB)
	trial.op.Shadow = true
	trial.runs("one")
	for _, rec := range r.store.Records() {
		require.NotEqual(t, checkID, rec.ID)
	}
	r.process(secretA).runs("one")
	_, err := trial.charge("one")
	require.NoError(t, err)
}

// The check record is no open question, and never expires.
func TestTheCheckRecordStays(t *testing.T) {
	r := newRig(t)
	r.process(secretA).runs("one")
	rec, err := r.store.Get(t.Context(), checkID)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, rec.State)
	require.True(t, rec.ExpiresAt.IsZero())
	require.True(t, rec.Due.IsZero())
	require.False(t, rec.Expired(r.clock.Now().Add(100*365*24*time.Hour)))
	require.False(t, rec.Open())
	r.clock.Advance(400 * 24 * time.Hour)
	r.process(secretB).refuses("one", underAnother)
}
