package idem

import (
	"context"
	"log/slog"
	"strings"

	"github.com/idem-go/idempotency/idem/notice"
)

// logged says how a notice is logged where it is not at debug level under its kind.
var logged = map[notice.Kind]struct {
	level slog.Level
	text  string
}{
	notice.TookOver:         {slog.LevelInfo, "took over"},
	notice.Unknown:          {slog.LevelInfo, "outcome unknown"},
	notice.Reused:           {slog.LevelInfo, "key reused with another input"},
	notice.Released:         {slog.LevelInfo, "released"},
	notice.Parked:           {slog.LevelWarn, "parked, somebody must resolve it"},
	notice.StepInterrupted:  {slog.LevelWarn, "at-most-once step interrupted"},
	notice.Compensated:      {slog.LevelInfo, "step compensated"},
	notice.Uncommitted:      {slog.LevelWarn, "not committed for certain"},
	notice.ResultOmitted:    {slog.LevelWarn, "recorded without its result"},
	notice.LeaseLost:        {slog.LevelWarn, "lease lost"},
	notice.OutOfTime:        {slog.LevelInfo, "too little time left"},
	notice.StoreUnavailable: {slog.LevelWarn, "store unavailable, nothing was executed"},
	notice.FailedOpen:       {slog.LevelWarn, "running without a claim"},
	notice.Unreadable:       {slog.LevelError, "record unreadable"},
	notice.Withdrawn:        {slog.LevelInfo, "claim withdrawn"},
	notice.OutcomeQueued:    {slog.LevelWarn, "not all of the outcome is written yet"},
	notice.OutcomeLanded:    {slog.LevelInfo, "outcome written late"},
	notice.OutcomeDropped:   {slog.LevelError, "outcome dropped"},
}

// LogTo returns an observer that logs what somebody must look at as errors (an outcome
// that was dropped, a record that cannot be read) and warnings, and the rest at info and
// debug level. The attribute kind is the notice's. A nil logger means slog.Default. Keys'
// values are never logged, record ids are.
func LogTo(l *slog.Logger) Observer {
	return func(ctx context.Context, n notice.Notice) {
		log := l
		if log == nil {
			log = slog.Default()
		}
		how, found := logged[n.Kind]
		if !found {
			how.level, how.text = slog.LevelDebug, strings.ReplaceAll(string(n.Kind), "_", " ")
		}
		if !log.Enabled(ctx, how.level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("kind", string(n.Kind)),
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
		log.LogAttrs(ctx, how.level, "idem: "+how.text, attrs...)
	}
}
