package secrets_test

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
)

// Secrets in the order in which they come into use.
var (
	secretA = []byte("a: 0123456789abcdef0123456789abcdef")
	secretB = []byte("b: 0123456789abcdef0123456789abcdef")
	secretC = []byte("c: 0123456789abcdef0123456789abcdef")
)

// rig is a store, and the processes that use it.
type rig struct {
	t     *testing.T
	clock *idemtest.Clock
	store *memstore.Store
	ran   atomic.Int64
}

func newRig(t *testing.T) *rig {
	return &rig{t: t, clock: &idemtest.Clock{}, store: memstore.New()}
}

// process is one that has made the operation with its secrets.
type process struct {
	*rig
	op     idem.Operation
	faults *idemtest.Faults
	engine *idem.Engine
}

func (r *rig) process(s protocol.Digester) *process {
	p := &process{rig: r, op: idem.Operation{Name: "charge", Repeat: idem.Repeatable}, faults: idemtest.NewFaults(r.store)}
	if s != nil {
		p.op.Secrets = s
	}
	p.restart()
	return p
}

// restart makes the process forget what it knows.
func (p *process) restart() {
	var err error
	p.engine, err = idem.New(p.faults, &idem.Options{Now: p.clock.Now, StoreFailures: -1, Observer: func(context.Context, notice.Notice) {}})
	require.NoError(p.t, err)
}

// charge executes the key, and returns which execution its outcome is of.
func (p *process) charge(value string) (string, error) {
	return idem.Do(p.t.Context(), p.engine, p.op.Key("t", value), "input of "+value, func(context.Context, string) (string, error) {
		return fmt.Sprint("execution ", p.ran.Add(1)), nil
	})
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

// register shows the register by the names of the secrets.
func (r *rig) register() string {
	reg, err := r.store.Register(r.t.Context(), "charge")
	require.NoError(r.t, err)
	if reg == nil {
		return "none"
	}
	var names []string
	for _, s := range reg.Secrets {
		name := s.Check
		for letter, key := range map[string][]byte{"a": secretA, "b": secretB, "c": secretC} {
			if checkOf(r.t, key) == s.Check {
				name = letter
			}
		}
		if s.Retired {
			name = "(" + name + ")"
		}
		names = append(names, name)
	}
	return strings.Join(names, " ")
}

// checkOf is the check value of a secret, as the first register of an operation has it.
func checkOf(t *testing.T, key []byte) string {
	store := memstore.New()
	engine, err := idem.New(store, nil)
	require.NoError(t, err)
	op := idem.Operation{Name: "x", Repeat: idem.Repeatable, Secrets: secrets.New(key)}
	_, err = idem.Do(t.Context(), engine, op.Key("t", "v"), 1, func(context.Context, int) (int, error) { return 1, nil })
	require.NoError(t, err)
	reg, err := store.Register(t.Context(), "x")
	require.NoError(t, err)
	return reg.Secrets[0].Check
}
