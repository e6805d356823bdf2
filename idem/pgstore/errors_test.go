package pgstore

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// What an error says of a change: whether it may have been made, and whether the server works.
func TestErrors(t *testing.T) {
	answer := func(code string) error { return &pgconn.PgError{Code: code} }
	fatal := func(code string) error { return &pgconn.PgError{Code: code, Severity: "FATAL"} }
	down, busy := protocol.StoreError{Down: true}, protocol.StoreError{Down: true, Throttled: true}
	maybe := protocol.StoreError{Down: true, Ambiguous: true}
	for name, c := range map[string]struct {
		err  error
		want protocol.StoreError
	}{
		"serialization failure":    {answer("40001"), busy},
		"deadlock":                 {answer("40P01"), busy},
		"too many connections":     {answer("53300"), busy},
		"lock not available":       {answer("55P03"), busy},
		"statement timeout":        {answer("57014"), down},
		"cannot connect now":       {answer("57P03"), down},
		"server shuts down":        {answer("57P01"), maybe},
		"completion unknown":       {answer("40003"), maybe},
		"crash of another process": {answer("57P02"), maybe},
		"connection failure":       {answer("08006"), maybe},
		"a replica":                {answer("25006"), down},
		"transaction has failed":   {answer("25P02"), protocol.StoreError{}},
		"no table":                 {answer("42P01"), protocol.StoreError{}},
		"no permission":            {answer("42501"), protocol.StoreError{}},
		"a fault in the server":    {answer("XX000"), protocol.StoreError{Ambiguous: true}},
		"a file cannot be written": {answer("58030"), protocol.StoreError{Ambiguous: true}},
		"session ended":            {fatal("42501"), protocol.StoreError{Ambiguous: true}},
		"proxy has no connection":  {fatal("53300"), protocol.StoreError{Down: true, Throttled: true, Ambiguous: true}},
		"crash": {&pgconn.PgError{Code: "42501", SeverityUnlocalized: "PANIC"},
			protocol.StoreError{Ambiguous: true}},
		"connection ended": {net.ErrClosed, maybe},
		"time is over":     {context.DeadlineExceeded, maybe},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := errors.AsType[*protocol.StoreError](failed(c.err, true))
			require.True(t, ok)
			require.ErrorIs(t, got, c.err)
			c.want.Err = c.err
			require.Equal(t, c.want, *got)
			read, _ := errors.AsType[*protocol.StoreError](failed(c.err, false))
			require.False(t, read.Ambiguous, "a read changes nothing")
			if refused, _ := errors.AsType[*protocol.RefusedError](refusedOr(c.err, true)); refused != nil {
				require.False(t, got.Ambiguous, "a commit that may have been made is not rolled back")
			}
		})
	}
}

// The commit gets time for the messages that it sends.
func TestTheSizeOfATransactionIsThatOfItsMessages(t *testing.T) {
	u := new(unit)
	for _, name := range []string{"a", "b"} {
		require.NoError(t, (&Tx{unit: u}).Publish(name, outbox.Message{Destination: "orders", Body: make([]byte, 100<<10)}))
	}
	require.Equal(t, 200<<10, u.Size())
}
