package dynamostore

import (
	"bytes"
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// A sweep on DynamoDB: what it calls, that it reads only what is due, and that what was
// escalated is listed no more.
func TestSweepOnDynamoDB(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
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
		Escalate: func(_ context.Context, g reconcile.Escalation) error { people = append(people, g.Record); return nil },
	})
	require.NoError(t, err)
	f.wire.set(nil)
	report, err := s.Sweep(t.Context())
	require.NoError(t, err)
	report.Actions = nil
	require.Equal(t, reconcile.Report{Listed: 2, Parked: 2, Resolved: 1, Escalated: 1}, report)
	calls := map[string]int{}
	for _, op := range f.wire.calls() {
		calls[op]++
	}
	require.Equal(t, map[string]int{
		"Query": protocol.Shards, "GetItem": 2, // one each
		"TransactWriteItems": 4, // two parked, one resolved, one escalated: each with its entry
		"UpdateItem":         3, // two claimed for the probe, one locked for people
	}, calls)
	require.Equal(t, []string{"t#refund#unknown"}, people)
	require.Equal(t, protocol.Completed, f.get(t, "t#refund#completed").State)
	require.Equal(t, base.Add(time.Minute), f.get(t, "t#refund#unknown").EscalatedAt)

	report, err = s.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Listed)
	history, err := r.History(t.Context(), "t#refund#unknown")
	require.NoError(t, err)
	require.Len(t, history, 2)
}

// What a newer version has written, or is damaged, is due longest. Every sweep counts it,
// reports it once, leaves it as it is and serves the others. A newer fingerprint is no
// hindrance: a sweep has no input to compare.
func TestASweepReportsWhatItCannotRead(t *testing.T) {
	f := open(t, nil)
	newer := map[string]func(item){
		"t#refund#version":     func(it item) { it[schema.Version] = num("99") },
		"t#refund#state":       func(it item) { it[schema.State] = str("paused") },
		"t#refund#damaged":     func(it item) { delete(it, schema.LeaseUntil) },
		"t#refund#fingerprint": func(it item) { it[schema.Fingerprint] = str("7:of-another-kind") },
		"t#refund#attribute":   func(it item) { it["of_a_newer_version"] = str("x") },
		"t#refund#plain":       func(item) {},
	}
	unreadable := []string{"t#refund#damaged", "t#refund#state", "t#refund#version"}
	for id, change := range newer {
		c := claim(id, "o")
		c.Record.Repeat, c.Record.ExpiresAt, c.Record.Due = protocol.NotRepeatable, time.Time{}, c.Record.LeaseUntil
		if slices.Contains(unreadable, id) {
			c.Record.Due = base
		}
		require.NoError(t, f.Acquire(t.Context(), base, c))
		f.change(t, id, change)
	}
	r, err := reconcile.New(f.adminStore(t), &reconcile.Options{Now: func() time.Time { return base.Add(time.Minute) }})
	require.NoError(t, err)
	var log bytes.Buffer
	var told []string
	s, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{
		Concurrency: 1, Log: slog.New(slog.NewTextHandler(&log, nil)),
		Observer: func(_ context.Context, n notice.Notice) {
			if n.Kind == notice.Unreadable {
				told = append(told, n.ID)
				require.ErrorIs(t, n.Err, protocol.ErrRecordUnreadable)
			}
		},
	})
	require.NoError(t, err)
	for n := range 3 {
		log.Reset()
		told = nil
		report, err := s.Sweep(t.Context())
		require.NoError(t, err)
		require.Equal(t, []int{3, 0, 0}, []int{report.Unreadable, report.Failed, report.Left})
		require.Equal(t, map[bool]int{true: 3, false: 0}[n == 0], report.Parked)
		require.ElementsMatch(t, unreadable, told)
		require.Equal(t, 3, strings.Count(log.String(), "level=ERROR"))
		require.Equal(t, 3, strings.Count(log.String(), "kind=record_unreadable"))
		require.Len(t, report.Problems, 3)
		for _, id := range unreadable {
			require.Contains(t, strings.Join(report.Problems, "\n"), strconv.Quote(id))
		}
	}
	for _, id := range []string{"t#refund#fingerprint", "t#refund#attribute", "t#refund#plain"} {
		require.Equal(t, protocol.Unknown, f.get(t, id).State)
	}
}

// A process dies in an at-most-once step of a repeatable operation, and nobody calls again:
// the sweep after the lease parks it, and the probe knows.
func TestSweepFindsAStepThatWasKilled(t *testing.T) {
	f := open(t, nil)
	q := f.adminStore(t)
	var clock idemtest.Clock
	faults := idemtest.NewFaults(q)
	engine, err := idem.New(faults, &idem.Options{Now: clock.Now})
	require.NoError(t, err)
	op := idem.Operation{Name: "order", Repeat: idem.Repeatable}
	key := op.Key("t", "o-1")
	charged := ""
	ctx, dies := context.WithCancel(idem.WithKillTime(t.Context(), clock.Now().Add(10*time.Second)))
	_, err = idem.Do(ctx, engine, key, 1, func(ctx context.Context, _ int) (string, error) {
		return idem.Step(ctx, "charge", func(ctx context.Context) (string, error) {
			charged = idem.Token(ctx)
			faults.Always(idemtest.LoseRequest, idemtest.RecordStep, idemtest.Finish)
			dies()
			return "", ctx.Err()
		}, &idem.StepConfig[string]{Semantics: idem.AtMostOnce})
	})
	require.Error(t, err)
	require.Equal(t, protocol.InProgress, f.get(t, key.ID()).State)

	r, err := reconcile.New(q, &reconcile.Options{Now: clock.Now})
	require.NoError(t, err)
	s, err := reconcile.NewSweeper(r, &reconcile.SweepOptions{
		Log: slog.New(slog.DiscardHandler),
		Operations: []reconcile.Operation{{Operation: op, Probe: func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
			require.Len(t, q.Steps, 1)
			require.Equal(t, charged, q.Steps[0].Token)
			return reconcile.CompletedWith("ch_1"), nil
		}}},
	})
	require.NoError(t, err)
	report, err := s.Sweep(t.Context())
	require.NoError(t, err)
	require.Zero(t, report.Listed, "its lease runs")
	clock.Advance(time.Minute)
	report, err = s.Sweep(t.Context())
	require.NoError(t, err)
	report.Actions = nil
	require.Equal(t, reconcile.Report{Listed: 1, Resolved: 1}, report)
	require.Equal(t, protocol.Completed, f.get(t, key.ID()).State)
	require.Empty(t, dueOf(t, q))
}
