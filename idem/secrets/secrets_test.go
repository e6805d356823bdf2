package secrets_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
	"github.com/stretchr/testify/require"
)

// The digest is fixed, so that a change of what goes into it is seen: it would forget every record.
func TestIDs(t *testing.T) {
	op := func(key []byte) idem.Operation { return idem.Operation{Name: "charge", Values: secrets.New(key)} }
	require.Equal(t, "acme#charge#CbLflwltTRbV89Xa9-NLM9jblJamOemF8YupUrZHlGs", op(secretA).Key("acme", "x").ID())
	seen := map[string]bool{}
	for _, k := range []idem.Key{
		idem.Operation{Name: "charge"}.Key("acme", "x"),
		op(secretA).Key("acme", "x"), op(secretB).Key("acme", "x"), op(secretA[:16]).Key("acme", "x"),
		op(secretA).Key("other", "x"), op(secretA).Key("acme", "y"), op(secretA).Key(idem.SingleTenant, "acme#charge#x"),
		idem.Operation{Name: "refund", Values: secrets.New(secretA)}.Key("acme", "x"),
	} {
		require.NoError(t, k.Err())
		digest := k.ID()[strings.LastIndexByte(k.ID(), '#')+1:]
		require.Len(t, digest, 43)
		require.False(t, seen[digest], k.ID())
		seen[digest] = true
	}
}

func TestMistakes(t *testing.T) {
	for says, s := range map[string]*secrets.Secret{
		"has 0 bytes":  secrets.New(nil),
		"has 15 bytes": secrets.New(secretA[:15]),
		"0 bytes":      nil,
		" 0 bytes":     {},
	} {
		r := newRig(t)
		p := r.process(secretA)
		p.op.Values = s
		key := p.op.Key("t", "v")
		var mistake *idem.ConfigError
		require.ErrorAs(t, key.Err(), &mistake)
		require.ErrorContains(t, key.Err(), says)
		require.NotContains(t, key.Err().Error(), "0123")
		_, err := p.charge("v")
		require.ErrorContains(t, err, says)
		_, err = p.engine.Lookup(t.Context(), key)
		require.ErrorContains(t, err, says)
		require.Zero(t, r.ran.Load())
		require.Empty(t, r.store.Records())
	}
}

// own embeds what it does not know, so that its digest would be left out.
type own struct{ protocol.Values }

func TestValuesThatTheEngineDoesNotKnowAreAMistake(t *testing.T) {
	err := idem.Operation{Name: "charge", Values: own{secrets.New(secretA)}}.Check()
	require.ErrorContains(t, err, "Values is a secrets_test.own: use idem.KeepValues or secrets.New")
}

// The key belongs to the caller, who may wipe it.
func TestTheKeyIsCopied(t *testing.T) {
	key := []byte(string(secretA))
	op := idem.Operation{Name: "charge", Values: secrets.New(key)}
	id := op.Key("t", "v").ID()
	clear(key)
	require.Equal(t, id, op.Key("t", "v").ID())
}

// Nothing in the store is a plain digest of value or input, nor tells that two inputs are equal.
func TestNothingCanBeGuessed(t *testing.T) {
	for _, shadow := range []bool{false, true} {
		r := newRig(t)
		p := r.process(secretA)
		p.op.Shadow = shadow
		plain := r.process(nil)
		plain.op.Name = "plain"
		for _, value := range []string{"4711", "4712"} {
			for _, p := range []*process{p, plain} {
				key := p.op.Key("t", value)
				_, err := idem.Do(t.Context(), p.engine, key, "input",
					func(context.Context, string) (string, error) { return "", nil })
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
		want := 4 // the plain ones have the same one, and no other two do
		if shadow {
			want = 3 // it has no check record
		}
		require.Len(t, prints, want)
	}
}

// The input is compared under the secret, and every process makes the same token of a key.
func TestTheInputIsComparedUnderTheSecret(t *testing.T) {
	r := newRig(t)
	var tokens []string
	attempt := func(p *process, in string, fail error) error {
		key := p.op.Key("t", "4711")
		_, err := idem.Do(t.Context(), p.engine, key, in, func(ctx context.Context, _ string) (string, error) {
			tokens = append(tokens, idem.Token(ctx))
			return "done", fail
		})
		return err
	}
	require.Error(t, attempt(r.process(secretA), "input", idem.NotExecuted(context.Canceled)))
	require.NoError(t, attempt(r.process(secretA), "input", nil))
	require.ErrorIs(t, attempt(r.process(secretA), "another", nil), idem.ErrKeyReused)
	require.NoError(t, attempt(r.process(secretA), "input", nil))
	require.Len(t, tokens, 2)
	require.Equal(t, tokens[0], tokens[1])
}

// A worker finds what was accepted by its id, without the secret, and a client by its status id.
func TestWhatIsAcceptedIsFound(t *testing.T) {
	r := newRig(t)
	a, wrong, worker := r.process(secretA), r.process(secretB), r.process(nil)
	accept := func(p *process, enqueue func(context.Context, string) error) (string, error) {
		res, err := later.Accept[string](t.Context(), p.engine, p.op.Key("t", "4711"), "input", enqueue)
		return res.Outcome.StatusID, err
	}
	var id string
	status, err := accept(a, func(_ context.Context, of string) error { id = of; return nil })
	require.NoError(t, err)
	_, err = accept(wrong, func(context.Context, string) error { t.Error("handed on"); return nil })
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	for range 2 {
		res, err := later.Work(t.Context(), worker.engine, worker.op, id, func(_ context.Context, in string) (string, error) {
			r.ran.Add(1)
			return "done of " + in, nil
		})
		require.NoError(t, err)
		require.Equal(t, "done of input", res.Value)
	}
	require.EqualValues(t, 1, r.ran.Load())
	again, err := accept(a, nil)
	require.NoError(t, err)
	require.Empty(t, again)
	out, err := later.StatusOf(t.Context(), a.engine, a.op, "t", status)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, out.RecordState)
}

var (
	secretA = []byte("a: 0123456789abcdef0123456789abcdef")
	secretB = []byte("b: 0123456789abcdef0123456789abcdef")
)

// checkID is the id of the check record of the processes' operation.
const checkID = "#charge#"

// rig is a store, and the processes that use it.
type rig struct {
	t     *testing.T
	clock *idemtest.Clock
	store *memstore.Store
	ran   atomic.Int64
}

func newRig(t *testing.T) *rig { return &rig{t: t, clock: &idemtest.Clock{}, store: memstore.New()} }

// process is one that has made the operation with its secret.
type process struct {
	*rig
	op     idem.Operation
	faults *idemtest.Faults
	engine *idem.Engine
}

// process is a new one with the secret, or with none.
func (r *rig) process(key []byte) *process {
	p := &process{rig: r, op: idem.Operation{Name: "charge", Repeat: idem.Repeatable}, faults: idemtest.NewFaults(r.store)}
	if key != nil {
		p.op.Values = secrets.New(key)
	}
	p.restart()
	return p
}

// restart makes the process forget what it knows.
func (p *process) restart() {
	var err error
	p.engine, err = idem.New(p.faults, &idem.Options{Now: p.clock.Now, Observer: func(context.Context, notice.Notice) {}})
	require.NoError(p.t, err)
}

// charge executes the key, and returns which execution its outcome is of.
func (p *process) charge(value string) (string, error) {
	return idem.Do(p.t.Context(), p.engine, p.op.Key("t", value), "input of "+value,
		func(context.Context, string) (string, error) { return fmt.Sprint("execution ", p.ran.Add(1)), nil })
}

// runs requires that the key is executed for the first time.
func (p *process) runs(value string) string {
	p.t.Helper()
	before := p.ran.Load()
	out, err := p.charge(value)
	require.NoError(p.t, err)
	require.Equal(p.t, before+1, p.ran.Load())
	return out
}

// replays requires that the key is answered with what is recorded.
func (p *process) replays(value, want string) {
	p.t.Helper()
	before := p.ran.Load()
	out, err := p.charge(value)
	require.NoError(p.t, err)
	require.Equal(p.t, want, out)
	require.Equal(p.t, before, p.ran.Load())
}

// refuses requires that nothing runs and nothing is written.
func (p *process) refuses(value, why string) {
	p.t.Helper()
	before, records := p.ran.Load(), p.store.Records()
	_, err := p.charge(value)
	require.ErrorIs(p.t, err, idem.ErrStoreUnavailable)
	require.ErrorContains(p.t, err, why)
	require.Equal(p.t, before, p.ran.Load())
	require.Equal(p.t, records, p.store.Records())
}
