package secrets_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/secrets"
)

// The digest is fixed, so that a change of what goes into it is seen: it would forget every record.
func TestIDs(t *testing.T) {
	op := func(s protocol.Digester) idem.Operation { return idem.Operation{Name: "charge", Secrets: s} }
	plain := idem.Operation{Name: "charge"}
	require.Equal(t, "acme#charge#O6Oxmwmy35cJbU0W1fPV2vfjSzPY25SWpjnphfGLqVI", op(secrets.New(secretA)).Key("acme", "x").ID())
	require.Equal(t, plain.Key("acme", "x").ID(), op(secrets.StillPlain(secretA)).Key("acme", "x").ID())
	require.Equal(t, op(secrets.New(secretA)).Key("acme", "x").ID(), op(secrets.AfterPlain(secretA, secretB)).Key("acme", "x").ID())
	seen := map[string]bool{}
	for _, k := range []idem.Key{
		plain.Key("acme", "x"), op(secrets.New(secretA)).Key("acme", "x"), op(secrets.New(secretB)).Key("acme", "x"), op(secrets.New(secretA[:16])).Key("acme", "x"),
		op(secrets.New(secretA)).Key("other", "x"), op(secrets.New(secretA)).Key("acme", "y"), op(secrets.New(secretA)).Key(idem.NoTenant, "acme#charge#x"),
		idem.Operation{Name: "refund", Secrets: secrets.New(secretA)}.Key("acme", "x"),
	} {
		require.NoError(t, k.Err())
		digest := k.ID()[strings.LastIndexByte(k.ID(), '#')+1:]
		require.Len(t, digest, 43)
		require.False(t, seen[digest], k.ID())
		seen[digest] = true
	}
}

func TestMistakes(t *testing.T) {
	for says, s := range map[string]*secrets.Secrets{
		"secret 1 of 1 has 0 bytes":  secrets.New(nil),
		"secret 1 of 2 has 0 bytes":  secrets.New([]byte{}, secretA),
		"secret 1 of 1 has 15 bytes": secrets.AfterPlain(secretA[:15]),
		"secret 2 of 2 has 0 bytes":  secrets.New(secretA, nil),
		"secret 2 of 3 has 3 bytes":  secrets.StillPlain(secretA, secretB[:3], secretC),
		"is there twice":             secrets.New(secretA, secretB, secretA),
		"there are none":             nil,
		"there are none: make":       {},
	} {
		key := idem.Operation{Name: "charge", Secrets: s}.Key("t", "v")
		var mistake *idem.ConfigError
		require.ErrorAs(t, key.Err(), &mistake)
		require.ErrorContains(t, key.Err(), says)
		require.NotContains(t, key.Err().Error(), "0123")
	}
	require.ErrorContains(t, idem.Operation{Name: "charge", KeepValue: true, Secrets: secrets.New(secretA)}.Check(), "KeepValue")
	// A store that keeps no registers is refused, and nothing runs.
	engine, err := idem.New(struct{ protocol.Store }{memstore.New()}, nil)
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), engine, idem.Operation{Name: "charge", Secrets: secrets.New(secretA)}.Key("t", "v"), 1, func(context.Context, int) (int, error) {
		t.Error("runs")
		return 1, nil
	})
	require.ErrorContains(t, err, "keeps no register")
}

// Nothing in the store is a plain digest of value or input, nor tells that two inputs are equal.
func TestNothingCanBeGuessed(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		r := newRig(t)
		p := r.process(secrets.New(secretA))
		p.op.Shadow = shadow
		plain := r.process(nil)
		plain.op.Name = "plain"
		for _, value := range []string{"4711", "4712"} {
			for _, p := range []*process{p, plain} {
				_, err := idem.Do(t.Context(), p.engine, p.op.Key("t", value), "input", func(context.Context, string) (string, error) { return "done", nil })
				require.NoError(t, err)
			}
		}
		prints := map[protocol.Fingerprint]int{}
		for _, rec := range r.store.Records() {
			prints[rec.Fingerprint]++
			for _, value := range []string{"4711", "4712"} {
				sum := sha256.Sum256([]byte(value))
				guessed := strings.Contains(rec.ID, base64.RawURLEncoding.EncodeToString(sum[:]))
				require.True(t, !guessed || strings.Contains(rec.ID, "#plain#"), rec.ID)
			}
		}
		require.Len(t, prints, 3, "the plain ones have the same, and the others none that anybody has")
	}
}

// Everything about a record under a former secret goes on as if nothing had changed.
func TestWhatLiesUnderAFormerSecretGoesOn(t *testing.T) {
	r := newRig(t)
	a, b := r.process(secrets.New(secretA)), r.process(secrets.New(secretB, secretA))
	errBusy := errors.New("busy")
	var token, step string
	steps := func(fail bool) func(context.Context, string) (string, error) {
		return func(ctx context.Context, _ string) (string, error) {
			token = idem.Token(ctx)
			_, err := idem.Step(ctx, "charge", func(ctx context.Context) (string, error) {
				step = idem.Token(ctx)
				r.ran.Add(1)
				return "charged", nil
			}, nil)
			if err == nil && fail {
				err = errBusy
			}
			return "done", err
		}
	}
	_, err := idem.Do(t.Context(), a.engine, a.op.Key("t", "4711"), "input", steps(true))
	require.ErrorIs(t, err, errBusy)
	first, firstStep := token, step
	_, err = idem.Do(t.Context(), b.engine, b.op.Key("t", "4711"), "another", steps(false))
	require.ErrorIs(t, err, idem.ErrKeyReused, "it is compared under the former secret")
	token = ""
	out, err := idem.Do(t.Context(), b.engine, b.op.Key("t", "4711"), "input", steps(false))
	require.NoError(t, err)
	require.Equal(t, "done", out)
	require.Equal(t, first, token)
	require.Equal(t, firstStep, step)
	require.EqualValues(t, 1, r.ran.Load(), "the step is not run again")
	s, err := b.engine.Lookup(t.Context(), b.op.Key("t", "4711"))
	require.NoError(t, err)
	require.Equal(t, idem.Completed, s.State)
	s, err = a.engine.Lookup(t.Context(), b.op.Key("t", "4712"))
	require.NoError(t, err)
	require.Equal(t, idem.Absent, s.State)
	two := b.runs("4712")
	s, err = b.engine.Lookup(t.Context(), r.process(secrets.New(secretA, secretB)).op.Key("t", "4712"))
	require.NoError(t, err)
	require.Equal(t, idem.Completed, s.State)

	// An open question is resolved by its key.
	a.op.Repeat, b.op.Repeat = idem.NotRepeatable, idem.NotRepeatable
	_, err = idem.Do(t.Context(), a.engine, a.op.Key("t", "4713"), "input of 4713", func(context.Context, string) (string, error) { return "", errBusy })
	require.ErrorIs(t, err, errBusy)
	_, err = b.charge("4713")
	require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
	rec, err := reconcile.New(r.store, &reconcile.Options{Now: r.clock.Now})
	require.NoError(t, err)
	require.NoError(t, reconcile.Resolve(t.Context(), rec, b.op.Key("t", "4713"), "resolved", reconcile.Change{Actor: "alice", Reason: "a test"}))
	b.replays("4713", "resolved")
	a.replays("4713", "resolved")

	// One that has moved is found by the id of before too, and no decision is made about a mark.
	old := a.op.Key("t", "4712").ID()
	moved, err := rec.Lookup(t.Context(), old)
	require.NoError(t, err)
	require.Equal(t, b.op.Key("t", "4712").ID(), moved.ID)
	require.ErrorIs(t, rec.Resolve(t.Context(), old, reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "x"}}, reconcile.Change{Actor: "alice", Reason: "a test"}), reconcile.ErrNotUnknown)
	require.ErrorIs(t, rec.Forget(t.Context(), old, reconcile.Change{Actor: "alice", Reason: "a test"}), reconcile.ErrOpen)
	b.replays("4712", two)
}

// A call that goes on with a record under a former secret does not make it again once it is gone.
func TestNoRecordIsMadeUnderAFormerSecret(t *testing.T) {
	r := newRig(t)
	a, b := r.process(secrets.New(secretA)), r.process(secrets.New(secretB, secretA))
	key := a.op.Key("t", "4711")
	errBusy := errors.New("busy")
	_, err := idem.Do(t.Context(), a.engine, key, "input of 4711", func(context.Context, string) (string, error) { return "", errBusy })
	require.ErrorIs(t, err, errBusy)
	b.faults.Next(idemtest.Acquire, func(ctx context.Context, c *idemtest.Call) error {
		require.Equal(t, key.ID(), c.ID, "it may have been executed, and is taken over where it lies")
		r.store.Delete(c.ID)
		return c.Do(ctx)
	})
	out := b.runs("4711")
	rec, err := r.store.Get(t.Context(), key.ID())
	require.NoError(t, err)
	require.Equal(t, protocol.Moved, rec.State)
	require.Equal(t, b.op.Key("t", "4711").ID(), rec.MovedTo)
	b.replays("4711", out)
}

// One secret in the register costs a read for each process and hour, a former one a write for each call.
func TestCallsOfAnOperationWithSecrets(t *testing.T) {
	r := newRig(t)
	const acquire, finish, get = idemtest.Acquire, idemtest.Finish, idemtest.Get
	calls := func(p *process, what string, want ...idemtest.Method) {
		t.Helper()
		require.Equal(t, want, p.faults.Calls(), what)
		p.faults.Reset()
	}
	plain := r.process(nil)
	plain.op.Name = "plain"
	plain.runs("one")
	calls(plain, "without secrets", acquire, finish)
	a := r.process(secrets.New(secretA))
	a.runs("one")
	calls(a, "the first use of all", idemtest.Register, idemtest.SetRegister, acquire, finish)
	a.runs("two")
	calls(a, "first execution", acquire, finish)
	a.restart()
	a.runs("three")
	calls(a, "first execution of a process", idemtest.Register, acquire, finish)
	_, err := a.charge("three")
	require.NoError(t, err)
	calls(a, "replay", acquire, idemtest.Result)
	r.clock.Advance(time.Hour)
	_, err = a.charge("three")
	require.NoError(t, err)
	calls(a, "replay after an hour", idemtest.Register, acquire, idemtest.Result)
	b := r.process(secrets.New(secretB, secretA))
	b.runs("four")
	calls(b, "the first use of another one", idemtest.Register, idemtest.SetRegister, idemtest.Move, acquire, finish)
	b.runs("five")
	calls(b, "first execution, with a former one", idemtest.Move, acquire, finish)
	_, err = b.charge("five")
	require.NoError(t, err)
	calls(b, "replay, with a former one", idemtest.Move, acquire, idemtest.Result)
	_, err = b.charge("one")
	require.NoError(t, err)
	calls(b, "replay of what is under the former one", idemtest.Move, idemtest.Result)
	a2 := r.process(secrets.New(secretA, secretB))
	a2.runs("six")
	calls(a2, "before the change, as without one", idemtest.Register, acquire, finish)
	_, err = a2.charge("five")
	require.NoError(t, err)
	calls(a2, "replay of what has moved", acquire, get, idemtest.Result)
}

func TestRetirement(t *testing.T) {
	r := newRig(t)
	ctx := t.Context()
	retire := func() (string, error) {
		return secrets.Retire(ctx, r.store, "charge", r.clock.Now(), func(look func(string, *protocol.Record) error) error {
			p, err := r.store.Scan(ctx, protocol.ScanQuery{Segments: 1})
			for _, rec := range p.Records {
				err = errors.Join(err, look(rec.ID, rec))
			}
			return err
		})
	}
	refused := func(why string) {
		t.Helper()
		before := r.register()
		_, err := retire()
		require.ErrorContains(t, err, why)
		require.Equal(t, before, r.register())
	}
	refused("there is no register")
	plain := r.process(nil)
	plain.runs("one")
	plain.op.Retention = 365 * 24 * time.Hour
	kept := plain.runs("kept")
	b := r.process(secrets.AfterPlain(secretB))
	b.runs("two")
	refused("plain was replaced by")
	r.clock.Advance(9 * 24 * time.Hour)
	refused("1 records live under plain")
	b.replays("kept", kept)
	r.clock.Advance(357 * 24 * time.Hour)
	check, err := retire()
	require.NoError(t, err)
	require.Equal(t, "plain", check)
	require.Equal(t, "(plain) b", r.register())
	refused("is the only one in use")
	r.process(secrets.StillPlain(secretB)).refuses("one", "was retired")

	late := r.process(secrets.New(secretB))
	late.runs("three")
	c := r.process(secrets.New(secretC, secretB))
	c.runs("four")
	require.Equal(t, "(plain) b c", r.register())
	r.clock.Advance(7*24*time.Hour + 2*time.Hour)
	late.refuses("five", "was replaced by")
	r.process(secrets.New(secretB, secretC)).refuses("five", "was replaced by")
	refused("a process may still have it")
	r.clock.Advance(24 * time.Hour)
	_, err = retire()
	require.NoError(t, err)
	require.Equal(t, "(plain) (b) c", r.register())
	r.process(secrets.New(secretB, secretC)).refuses("five", "was retired")
	alone := r.process(secrets.New(secretC))
	alone.runs("five")
	require.Equal(t, []idemtest.Method{idemtest.Register, idemtest.Acquire, idemtest.Finish}, alone.faults.Calls(), "no mark any more")
	r.process(secrets.New(secretA)).refuses("five", "which this process does not have")
	r.process(secrets.AfterPlain(secretC)).runs("six")
}

// Instances that begin at once agree on one register.
func TestRegistersRace(t *testing.T) {
	for range 50 {
		r := newRig(t)
		done := make(chan error)
		ps := []*process{r.process(secrets.New(secretA)), r.process(secrets.New(secretB, secretA)), r.process(secrets.New(secretC, secretA, secretB)), r.process(secrets.New(secretA))}
		for _, p := range ps {
			go func() { _, err := p.charge("one"); done <- err }()
		}
		for range ps {
			err := <-done
			if err != nil && !errors.Is(err, idem.ErrInFlight) {
				require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			}
		}
		require.LessOrEqual(t, r.ran.Load(), int64(1))
		require.NotEqual(t, "none", r.register())
	}
}

// A duplicate of what runs in the same process is in flight, which need not be asked, and is none of
// another input.
func TestADuplicateInTheSameProcessIsInFlight(t *testing.T) {
	r := newRig(t)
	r.process(secrets.New(secretA)).runs("register")
	for _, value := range []string{"one", "two"} {
		p := r.process(secrets.New(secretB, secretA))
		_, err := idem.Do(t.Context(), p.engine, p.op.Key("t", value), "input of "+value, func(context.Context, string) (string, error) {
			p.faults.Reset()
			_, err := p.charge(value)
			require.ErrorIs(t, err, idem.ErrInFlight)
			require.Empty(t, p.faults.Calls())
			return "done", nil
		})
		require.NoError(t, err)
		p.replays(value, "done")
	}
}

// In atomic mode the mark is found before the handler runs, also where the operation does without the
// look, and a key that moves while the handler runs is not committed where it was.
func TestAtomicModeInARotation(t *testing.T) {
	for _, blind := range []bool{false, true} {
		r := newRig(t)
		a, b := r.process(secrets.New(secretA, secretB)), r.process(secrets.New(secretB, secretA))
		for _, p := range []*process{a, b} {
			p.op.Mode, p.op.ReplayRunsHandler = idem.Atomic, blind
		}
		a.runs("register")
		one := b.runs("one")
		a.replays("one", one)
		var two string
		_, err := idem.Do(t.Context(), a.engine, a.op.Key("t", "two"), "input of two", func(context.Context, string) (string, error) {
			two = b.runs("two")
			return "late", nil
		})
		require.ErrorIs(t, err, idem.ErrNotCommitted)
		a.replays("two", two)
		if !blind {
			b.replays("two", two)
		}
		for _, rec := range r.store.Records() {
			require.NotEqual(t, idem.Released, rec.State, "nothing is left of it")
		}
	}
}

// Without the register or a mark not even an operation that fails open runs: its key may be recorded
// under a former secret. With one secret, and the register known, it fails open as ever. With more
// than one it does not: the retry may meet a process with another one as current.
func TestFailingOpenNeedsTheRegister(t *testing.T) {
	r := newRig(t)
	a := r.process(secrets.New(secretA))
	a.op.OnStoreFailure = idem.FailOpen
	a.runs("register")
	a.faults.Next(idemtest.Acquire, idemtest.Refuse)
	before := a.runs("before")
	b := r.process(secrets.New(secretB, secretA))
	b.op.OnStoreFailure = idem.FailOpen
	for _, m := range []idemtest.Method{idemtest.Register, idemtest.SetRegister, idemtest.Move} {
		b.faults.Next(m, idemtest.Refuse)
		b.refuses("one", "refused")
	}
	one := b.runs("one")
	b.replays("one", one)
	b.replays("before", before)
	for _, s := range []*secrets.Secrets{secrets.New(secretA, secretB), secrets.New(secretB, secretA)} {
		p := r.process(s)
		p.op.OnStoreFailure = idem.FailOpen
		p.replays("before", before) // the register is known
		p.faults.Next(idemtest.Acquire, idemtest.Refuse)
		ran := r.ran.Load()
		_, err := p.charge("two")
		require.ErrorIs(t, err, idem.ErrStoreUnavailable)
		require.Equal(t, ran, r.ran.Load(), "nobody could tell that a retry with another token is one")
	}
}
