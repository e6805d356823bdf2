package idem

import (
	"context"
	"log/slog"
	"slices"
	"strings"
	"sync"

	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Observer gets a notice of what happens, on the caller's path: it must be quick, safe for concurrent
// use and not call the engine. Its panic ends as an error in slog.Default. Kinds are added over time.
type Observer func(ctx context.Context, n notice.Notice)

// Observers returns an observer that calls each; a nil one is the default.
func Observers(each ...Observer) Observer {
	all := slices.Clone(each)
	for i, o := range all {
		if o == nil {
			all[i] = logFrom(slog.LevelWarn, nil)
		}
	}
	if len(all) == 1 {
		return all[0]
	}
	return func(ctx context.Context, n notice.Notice) {
		for _, o := range all {
			o.tell(ctx, n)
		}
	}
}

// tell calls the observer, even if it panics.
func (o Observer) tell(ctx context.Context, n notice.Notice) {
	defer func() {
		if p := recover(); p != nil {
			defer func() { _ = recover() }() // of the logger, which may be what panicked
			slog.ErrorContext(ctx, "idem: an observer panicked; repair it, the operation continues", "error",
				protocol.RedactPanic("the observer", p), "record", n.ID)
		}
	}()
	o(ctx, n)
}

// logged says how a notice is logged where it is not at debug level under its kind.
var logged = map[notice.Kind]struct {
	level slog.Level
	text  string
}{
	notice.TookOver:      {slog.LevelInfo, "took over"},
	notice.Unknown:       {slog.LevelInfo, "outcome unknown"},
	notice.Reused:        {slog.LevelInfo, "key reused with another input"},
	notice.LimitExceeded: {slog.LevelInfo, "too many new keys of the tenant, nothing has taken effect"},
	notice.Paused:        {slog.LevelInfo, "the operation is paused, nothing was executed"},
	notice.Released:      {slog.LevelInfo, "released"},
	notice.Parked: {slog.LevelWarn, "parked as unknown, an operator must resolve it (where none is needed, " +
		"return idem.NotExecuted, idem.Permanent or idem.PermanentStep, or call idem.SetNotExecuted before a response; " +
		"declare what may run twice idem.Repeatable)"},
	notice.StepInterrupted:  {slog.LevelWarn, "at-most-once step interrupted"},
	notice.Compensated:      {slog.LevelInfo, "step compensated"},
	notice.Uncommitted:      {slog.LevelWarn, "not committed for certain"},
	notice.ResultOmitted:    {slog.LevelWarn, "recorded without its result"},
	notice.LeaseLost:        {slog.LevelWarn, "lease lost"},
	notice.OutOfTime:        {slog.LevelInfo, "too little time left"},
	notice.StoreUnavailable: {slog.LevelWarn, "store unavailable, nothing was executed"},
	notice.CircuitOpened:    {slog.LevelWarn, "the store is down, calls do not ask it until one of them gets an answer"},
	notice.CircuitClosed:    {slog.LevelInfo, "the store answers again"},
	notice.FailedOpen:       {slog.LevelWarn, "the store is down: the handler runs and nothing is recorded"},
	notice.Unreadable:       {slog.LevelError, "record unreadable"},
	notice.Withdrawn:        {slog.LevelInfo, "claim withdrawn"},
	notice.OutcomeQueued:    {slog.LevelWarn, "not all of the outcome is written yet"},
	notice.OutcomeLanded:    {slog.LevelInfo, "outcome written late"},
	notice.OutcomeDropped:   {slog.LevelError, "outcome dropped"},
	notice.ShadowExecuted:   {slog.LevelInfo, "in shadow: executed"},
	notice.ShadowDuplicate:  {slog.LevelInfo, "in shadow: duplicate"},
	notice.ShadowReused:     {slog.LevelInfo, "in shadow: key reused with another input"},
	notice.ShadowRefused:    {slog.LevelInfo, "in shadow: would be refused"},
	notice.ShadowUnobserved: {slog.LevelWarn, "in shadow: not observed"},
}

// LogTo returns an observer that logs to l, or slog.Default if that is nil: what needs attention as
// warnings and errors, the rest below. Lines have records' ids, with the tenant, and no key's value.
func LogTo(l *slog.Logger) Observer { return logFrom(slog.LevelDebug, l) }

// logFrom is LogTo, but for what has a lower level.
func logFrom(least slog.Level, l *slog.Logger) Observer {
	var shadowed sync.Map // the operations that are known to be in shadow
	return func(ctx context.Context, n notice.Notice) {
		how, found := logged[n.Kind]
		if !found {
			how.level, how.text = slog.LevelDebug, strings.ReplaceAll(string(n.Kind), "_", " ")
		}
		log := l
		if log == nil {
			log = slog.Default()
		}
		shadow := strings.HasPrefix(string(n.Kind), "shadow_")
		if shadow {
			if _, warned := shadowed.LoadOrStore(n.Operation, true); !warned {
				log.LogAttrs(ctx, slog.LevelWarn, "idem: the operation is in shadow: duplicates run; end the trial "+
					"by Operation.Shadow", slog.String("operation", n.Operation))
			}
		}
		// What is reported in shadow is all that shadow is for.
		if how.level < least && !shadow || !log.Enabled(ctx, how.level) {
			return
		}
		attrs := []slog.Attr{
			slog.String("kind", string(n.Kind)),
			slog.String("record", n.ID), slog.String("operation", n.Operation), slog.Duration("elapsed", n.Elapsed),
		}
		if n.ID == "" && n.Tenant != "" && n.Tenant != SingleTenant {
			attrs = append(attrs, slog.String("tenant", n.Tenant))
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
