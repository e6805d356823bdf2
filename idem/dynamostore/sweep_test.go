package dynamostore

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// A sweep on DynamoDB: what it calls, that it reads only what is due, and that what was
// given up is listed no more.
func TestSweepOnDynamoDB(t *testing.T) {
	f := open(t, nil)
	q := f.questions(t)
	for _, id := range []string{"t#refund#completed", "t#refund#unknown", "t#refund#running"} {
		c := claim(id, "o")
		c.Record.Repeat, c.Record.ExpiresAt, c.Record.Due = protocol.NotRepeatable, time.Time{}, c.Record.LeaseUntil
		if id == "t#refund#running" {
			c.Record.Due = base.Add(time.Hour)
		}
		require.NoError(t, f.Acquire(t.Context(), base, c))
	}
	r, err := reconcile.New(q, &reconcile.Options{Now: func() time.Time { return base.Add(time.Minute) }})
	require.NoError(t, err)
	var people []string
	op := reconcile.Operation{Probe: func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
		if q.ID == "t#refund#completed" {
			return reconcile.CompletedWith("receipt").WithRef("ch_1"), nil
		}
		return reconcile.CannotBeKnown("it keeps a day"), nil
	}}
	op.Operation.Name = "refund"
	s, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{
		Operations: []reconcile.Operation{op}, Concurrency: 1, Log: slog.New(slog.DiscardHandler),
		People: func(_ context.Context, g reconcile.GivenUp) error { people = append(people, g.Record); return nil },
	})
	require.NoError(t, err)
	f.wire.set(nil)
	report, err := s.Sweep(t.Context())
	require.NoError(t, err)
	report.Actions = nil
	require.Equal(t, reconcile.Report{Listed: 2, Parked: 2, Resolved: 1, GivenUp: 1}, report)
	calls := map[string]int{}
	for _, op := range f.wire.calls() {
		calls[op]++
	}
	require.Equal(t, map[string]int{
		"Query": protocol.Shards, "GetItem": 2, // one each
		"TransactWriteItems": 4, // two parked, one resolved, one given up: each with its entry
		"UpdateItem":         3, // two claimed for the probe, one locked for people
	}, calls)
	require.Equal(t, []string{"t#refund#unknown"}, people)
	require.Equal(t, protocol.Completed, f.get(t, "t#refund#completed").State)
	require.Equal(t, base.Add(time.Minute), f.get(t, "t#refund#unknown").GivenUpAt)

	report, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Listed)
	history, err := r.History(t.Context(), "t#refund#unknown")
	require.NoError(t, err)
	require.Len(t, history, 2)
}
