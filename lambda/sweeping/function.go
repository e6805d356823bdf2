package sweeping

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// function is invoked by a schedule, whatever its event is.
type function struct {
	reconciler *reconcile.Reconciler
	sweeper    *reconcile.Sweeper
	metrics    *emf.Metrics
}

// handle sweeps once, inside the invocation's time, and logs what it did in one line, of
// level DEBUG if nothing was due; each record that it handled has a line of its own. It
// fails only if nothing could be done, or nothing is known of the open questions: the alarm on
// the oldest one then has no data and is not raised, and the one on sweepers that stop must be.
func (f *function) handle(ctx context.Context) error {
	report, err := f.sweep(ctx)
	f.metrics.Add("", report.Counts())
	uncounted := f.count(ctx)
	failed := err != nil || report.Failed > 0
	level := slog.LevelDebug
	if report.Listed > 0 {
		level = slog.LevelInfo
	}
	if report.Escalated+report.Unreadable+report.Left > 0 || report.More {
		level = slog.LevelWarn
	}
	if failed {
		level = slog.LevelError
	}
	report.Actions = nil
	b, _ := json.Marshal(report) // numbers and strings cannot fail
	slog.Log(ctx, level, "idem: swept", "report", json.RawMessage(b))
	// What cannot be read stays due: it must not hide that nothing else is handled.
	if failed && report.Failed+report.Left+report.Unreadable == report.Listed {
		return errors.New("nothing could be done: " + strings.Join(report.Problems, "; "))
	}
	return uncounted
}

// countFor is the time to count the open questions.
const countFor = 10 * time.Second

// sweep leaves time to count.
func (f *function) sweep(ctx context.Context) (reconcile.Report, error) {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-min(countFor, time.Until(deadline)/4)))
		defer cancel()
	}
	return f.sweeper.Sweep(ctx)
}

// count says how many questions are open, and how old the oldest one is. If there are more
// than there is time to read, it says that of those that it has read. The error says that
// nothing is known.
func (f *function) count(ctx context.Context) error {
	if deadline, ok := ctx.Deadline(); ok {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-time.Until(deadline)/4))
		defer cancel()
	}
	open, err := f.reconciler.OpenQuestions(ctx)
	if err != nil {
		slog.WarnContext(ctx, "idem: not all open questions are counted", "error", err, "counted", open[0].Count)
		if open[0].Count == 0 {
			return fmt.Errorf("the open questions could not be counted: %w", err)
		}
	}
	for _, o := range open {
		f.metrics.Add(o.Operation, o.Counts())
	}
	return nil
}
