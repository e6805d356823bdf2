package idem

import (
	"context"
	"log/slog"
)

// LogTo returns an observer that logs what somebody must look at: as errors an
// outcome that was dropped and a record that cannot be read, as warnings a store
// that is unavailable, a handler that runs without a claim, a lost lease, a
// parked attempt, a queued or shortened outcome, an attempt that committed nothing; and the rest at debug level. A
// nil logger means slog.Default. Keys' values are never logged, record ids are.
func LogTo(l *slog.Logger) *Observer {
	at := func(level slog.Level, what string) func(context.Context, Notice) {
		return func(ctx context.Context, n Notice) {
			log := l
			if log == nil {
				log = slog.Default()
			}
			if !log.Enabled(ctx, level) {
				return
			}
			attrs := []slog.Attr{
				slog.String("record", n.ID), slog.String("operation", n.Operation), slog.Duration("elapsed", n.Elapsed),
			}
			if n.Attempt > 0 {
				attrs = append(attrs, slog.Int("attempt", n.Attempt))
			}
			if n.State != Absent {
				attrs = append(attrs, slog.String("state", string(n.State)))
			}
			if n.Step != "" {
				attrs = append(attrs, slog.String("step", n.Step))
			}
			if n.Err != nil {
				attrs = append(attrs, slog.String("error", textOf(n.Err, n.Err.Error)))
			}
			log.LogAttrs(ctx, level, "idem: "+what, attrs...)
		}
	}
	return &Observer{
		Claimed: at(slog.LevelDebug, "claimed"), TookOver: at(slog.LevelInfo, "took over"),
		Replayed: at(slog.LevelDebug, "replayed"), InFlight: at(slog.LevelDebug, "in flight"),
		Accepted: at(slog.LevelDebug, "accepted"), Unknown: at(slog.LevelInfo, "outcome unknown"),
		Reused: at(slog.LevelInfo, "key reused with another input"), Completed: at(slog.LevelDebug, "completed"),
		Uncommitted: at(slog.LevelWarn, "not committed for certain"),
		Failed:      at(slog.LevelDebug, "failed"), Released: at(slog.LevelInfo, "released"),
		Parked: at(slog.LevelWarn, "parked, somebody must resolve it"), ResultDropped: at(slog.LevelWarn, "recorded without its result"),
		StepRecorded: at(slog.LevelDebug, "step recorded"), StepReplayed: at(slog.LevelDebug, "step skipped, it is recorded"),
		StepInterrupted: at(slog.LevelWarn, "at-most-once step interrupted"), Compensated: at(slog.LevelInfo, "step compensated"),
		LeaseLost: at(slog.LevelWarn, "lease lost"), OutOfTime: at(slog.LevelInfo, "too little time left"),
		StoreUnavailable: at(slog.LevelWarn, "store unavailable, nothing was executed"), FailedOpen: at(slog.LevelWarn, "running without a claim"),
		Unreadable: at(slog.LevelError, "record unreadable"), Withdrawn: at(slog.LevelInfo, "claim withdrawn"),
		Queued: at(slog.LevelWarn, "not all of the outcome is written yet"), Landed: at(slog.LevelInfo, "outcome written late"),
		Dropped: at(slog.LevelError, "outcome dropped"),
	}
}
