package later_test

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/secrets"
)

// A process with a new secret marks the key while another one accepts it under the former secret,
// and dies: nothing is accepted whose message would name no record, and the next try's names it.
func TestAMessageNamesTheRecordThatHasMoved(t *testing.T) {
	former, current := bytes.Repeat([]byte("f"), 32), bytes.Repeat([]byte("c"), 32)
	before := idem.Operation{Name: "statement", Secrets: secrets.New(former, current)}
	after := idem.Operation{Name: "statement", Secrets: secrets.New(current, former)}
	d := newDesk(t)
	d.accepted(before.Key("acme", "april"), 3) // makes the register
	key := before.Key("acme", "june")
	d.Faults.Next(idemtest.Finish, func(ctx context.Context, c *idemtest.Call) error {
		e, err := idem.New(dying{d.Store}, &idem.Options{Now: d.Clock.Now})
		require.NoError(t, err)
		_, err = later.Accept[string](t.Context(), e, after.Key("acme", "june"), 3, nil)
		require.Error(t, err)
		return c.Do(ctx)
	})
	err := d.accept(key, 3).Err
	require.ErrorIs(t, err, idem.ErrNotCommitted)
	require.ErrorContains(t, err, "has moved under another secret")
	id := d.accepted(key, 3)
	require.Len(t, d.Published(), 2)
	message := string(d.Published()[1].Body)
	require.NoError(t, d.work(before, message, nil).Err)
	s, err := later.StatusOf(t.Context(), d.Engine, before, "acme", id)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, s.RecordState)
	s, err = later.StatusOf(t.Context(), d.Engine, after, "acme", id)
	require.NoError(t, err)
	require.Equal(t, idem.Completed, s.RecordState)
	require.Equal(t, 1, d.runs)
}

// dying is the store of a process that dies before it has recorded anything.
type dying struct{ *memstore.Store }

func (dying) Finish(context.Context, time.Time, protocol.Finish) error { return errors.New("dead") }

func (dying) Withdraw(context.Context, time.Time, protocol.Withdrawal) error {
	return errors.New("dead")
}
