package secrets_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/secrets"
)

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

func newRig(t *testing.T) *rig {
	return &rig{t: t, clock: &idemtest.Clock{}, store: memstore.New()}
}

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
