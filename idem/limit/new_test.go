package limit_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/limit"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
)

func TestNewKeysInASecond(t *testing.T) {
	table, clock := memstore.New(), new(idemtest.Clock)
	// The clock stands still: what is a second is not the machine's affair.
	now := clock.Now().Truncate(time.Second).Add(300 * time.Millisecond)
	e, err := idem.New(table, &idem.Options{Now: func() time.Time { return now }})
	require.NoError(t, err)
	op := idem.Operation{Name: "mail", Repeat: idem.Repeatable, Retention: time.Minute, Limit: limit.PerTenant{New: 3}}
	do := func(value string, fail error) error {
		_, err := idem.Do(t.Context(), e, op.Key("acme", value), value, func(context.Context, string) (string, error) { return "", fail })
		return err
	}
	for second := range 40 {
		for i := range 5 {
			err := do(fmt.Sprint(second, " ", i), nil)
			if i < 3 {
				require.NoError(t, err)
				require.NoError(t, do(fmt.Sprint(second, " ", i), nil), "a replay is not new")
				continue
			}
			var many *protocol.TooManyError
			require.ErrorAs(t, err, &many)
			require.True(t, many.New)
			require.Equal(t, 700*time.Millisecond, many.RetryAfter)
		}
		now = now.Truncate(time.Second).Add(time.Second + 300*time.Millisecond)
	}
	require.ErrorIs(t, do("again", errPlain), errPlain)
	for range 5 {
		require.ErrorIs(t, do("again", errPlain), errPlain, "what was released is not new")
	}
	now = now.Add(time.Hour)
	for i := range 3 {
		require.NoError(t, do(fmt.Sprint("0 ", i), nil), "what has expired is")
	}
	require.ErrorIs(t, do("1 0", nil), idem.ErrTooMany)
}

// A call that loses a race does not count twice.
func TestACallCountsOnce(t *testing.T) {
	r := newRig(t, 5)
	op := idem.Operation{Name: "mail", Repeat: idem.Repeatable, Limit: limit.PerTenant{New: 1}}
	p := r.process()
	p.faults.Next(idemtest.Acquire, idemtest.BareConflict, idemtest.BareConflict)
	require.NoError(t, p.do(op, "a", nil))
}
