package dynamostore

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// What throttles one shard of the index, or one record, does not keep a sweep from all
// others. The sweep has a deadline, as in a function.
func TestASweepPassesByWhatIsThrottled(t *testing.T) {
	for name, hit := range map[string]func(op string, body []byte) bool{
		"a shard": func(op string, body []byte) bool {
			return op == "Query" && bytes.Contains(body, []byte(strconv.Quote(shard("t#refund#3"))))
		},
		"a record": func(op string, body []byte) bool {
			return op == "GetItem" && bytes.Contains(body, []byte("t#refund#3"))
		},
		"a record's writes": func(op string, body []byte) bool {
			return op == "TransactWriteItems" && bytes.Contains(body, []byte("t#refund#3"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := open(t, nil)
			for i := range 8 {
				c := claim("t#refund#"+strconv.Itoa(i), "o")
				c.Record.Repeat, c.Record.ExpiresAt, c.Record.Due = protocol.NotRepeatable, time.Time{}, c.Record.LeaseUntil
				require.NoError(t, f.Acquire(t.Context(), base, c))
			}
			client := f.clientAs(t, asOperator)
			q, err := NewAdminStore(client, f.table, nil)
			require.NoError(t, err)
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
				body, err := io.ReadAll(req.Body)
				req.Body = io.NopCloser(bytes.NewReader(body))
				if err == nil && hit(op, body) {
					return answer(400, throttled), nil
				}
				return nil, err
			})
			r, err := reconcile.New(q, &reconcile.Options{Now: func() time.Time { return base.Add(time.Minute) }})
			require.NoError(t, err)
			s, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{Concurrency: 1, Log: slog.New(slog.DiscardHandler)})
			require.NoError(t, err)
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			defer cancel()
			_, _ = s.Sweep(ctx) // it reports what it could not do
			f.wire.set(nil)
			for i := range 8 {
				id := "t#refund#" + strconv.Itoa(i)
				if shard(id) != shard("t#refund#3") {
					require.Equal(t, protocol.Unknown, f.get(t, id).State, id)
				}
			}
		})
	}
}
