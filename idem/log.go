package idem

import (
	"context"
	"log/slog"
	"strings"
)

// logged says how a notice is logged where it is not at debug level under its kind.
var logged = map[NoticeKind]struct {
	level slog.Level
	text  string
}{
	NoticeTookOver:         {slog.LevelInfo, "took over"},
	NoticeUnknown:          {slog.LevelInfo, "outcome unknown"},
	NoticeReused:           {slog.LevelInfo, "key reused with another input"},
	NoticeReleased:         {slog.LevelInfo, "released"},
	NoticeParked:           {slog.LevelWarn, "parked, somebody must resolve it"},
	NoticeStepInterrupted:  {slog.LevelWarn, "at-most-once step interrupted"},
	NoticeCompensated:      {slog.LevelInfo, "step compensated"},
	NoticeUncommitted:      {slog.LevelWarn, "not committed for certain"},
	NoticeResultOmitted:    {slog.LevelWarn, "recorded without its result"},
	NoticeLeaseLost:        {slog.LevelWarn, "lease lost"},
	NoticeOutOfTime:        {slog.LevelInfo, "too little time left"},
	NoticeStoreUnavailable: {slog.LevelWarn, "store unavailable, nothing was executed"},
	NoticeFailedOpen:       {slog.LevelWarn, "running without a claim"},
	NoticeUnreadable:       {slog.LevelError, "record unreadable"},
	NoticeWithdrawn:        {slog.LevelInfo, "claim withdrawn"},
	NoticeOutcomeQueued:    {slog.LevelWarn, "not all of the outcome is written yet"},
	NoticeOutcomeLanded:    {slog.LevelInfo, "outcome written late"},
	NoticeOutcomeDropped:   {slog.LevelError, "outcome dropped"},
}

// LogTo returns an observer that logs what somebody must look at: as errors an
// outcome that was dropped and a record that cannot be read, as warnings a store
// that is unavailable, a handler that runs without a claim, a lost lease, a
// parked attempt, a queued or shortened outcome, an attempt that committed nothing;
// and the rest at info and debug level. The attribute kind is the notice's. A nil
// logger means slog.Default. Keys' values are never logged, record ids are.
func LogTo(l *slog.Logger) Observer {
	return func(ctx context.Context, n Notice) {
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
