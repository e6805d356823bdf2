package sweeping

import (
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"strings"

	"github.com/idem-go/idempotency/idem/reconcile"
)

// function is invoked by a schedule, whatever its event is.
type function struct {
	sweeper *reconcile.Sweeper
}

// handle sweeps once, inside the invocation's time, and logs what it did in one line, of
// level DEBUG if nothing was due; each record that it handled has a line of its own. It
// fails only if nothing could be done.
func (f *function) handle(ctx context.Context) error {
	report, err := f.sweeper.Sweep(ctx)
	failed := err != nil || report.Failed > 0
	level := slog.LevelDebug
	if report.Listed > 0 {
		level = slog.LevelInfo
	}
	if report.GivenUp+report.Unreadable+report.Left > 0 || report.More {
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
	return nil
}
