package pgstore

import (
	"context"
	"errors"
	"net"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// What an error says of a change: whether it may have been made, and whether the server works.
func TestErrors(t *testing.T) {
	answer := func(code string) error { return &pgconn.PgError{Code: code} }
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
		"connection ended":         {net.ErrClosed, maybe},
		"time is over":             {context.DeadlineExceeded, maybe},
	} {
		t.Run(name, func(t *testing.T) {
			got, ok := errors.AsType[*protocol.StoreError](failed(c.err, true))
			require.True(t, ok)
			require.ErrorIs(t, got, c.err)
			c.want.Err = c.err
			require.Equal(t, c.want, *got)
			read, _ := errors.AsType[*protocol.StoreError](failed(c.err, false))
			require.False(t, read.Ambiguous, "a read changes nothing")
		})
	}
}
