package comparing

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/reconcile/ledger"
)

// function is invoked by a schedule, or by an operator who names a day.
type function struct {
	ledger  *ledger.Ledger
	opts    Options
	metrics *emf.Metrics
}

// event is what invokes the function. A schedule's has the time at which it was due, which stays the same when
// the invocation is repeated.
type event struct {
	Day  string    `json:"day"`
	Time time.Time `json:"time"`
}

// handle compares a day, and logs what it found in one line, of level WARN if there are differences.
func (f *function) handle(ctx context.Context, in event) error {
	from, to, err := f.day(in)
	if err != nil {
		return err
	}
	report, err := f.compare(ctx, from, to)
	f.metrics.Add("", report.Counts())
	level := slog.LevelInfo
	if report.Differences() > 0 {
		level = slog.LevelWarn
	}
	if err != nil {
		level = slog.LevelError
	}
	b, _ := json.Marshal(report) // numbers, times and strings cannot fail
	slog.Log(ctx, level, "idem: compared", "report", json.RawMessage(b))
	return err
}

func (f *function) compare(ctx context.Context, from, to time.Time) (report ledger.Report, err error) {
	name := from.Format(time.DateOnly)
	out, err := f.opts.Report(ctx, from)
	if err != nil {
		return ledger.Report{Incomplete: true}, fmt.Errorf("the report of %s cannot be opened: %w", name, err)
	}
	report, err = f.ledger.Compare(ctx, from, to, ledger.Lines(out))
	if failed := out.Close(); failed != nil {
		report.Incomplete = true
		err = errors.Join(err, fmt.Errorf("the report of %s cannot be closed: %w", name, failed))
	}
	return report, err
}

// day is the day that the event names, or else the last one that is over, with the margin, at the event's time.
// Its date is read without summer time: otherwise a daily schedule would skip a day, or compare one twice, where
// summer time moves it over midnight.
func (f *function) day(in event) (from, to time.Time, err error) {
	if in.Day != "" {
		day, err := time.Parse(time.DateOnly, in.Day)
		if err != nil {
			return from, to, fmt.Errorf("the event's day is %q: use a day such as 2026-03-01", in.Day)
		}
		from, to = ledger.Day(day.Year(), day.Month(), day.Day(), f.opts.Location)
		return from, to, nil
	}
	at := in.Time
	if at.IsZero() {
		at = f.now()
	}
	at = at.Add(-ledger.Margin).UTC()
	_, least := at.In(f.opts.Location).Zone()
	for m := time.January; m <= time.December; m++ {
		_, offset := time.Date(at.Year(), m, 1, 0, 0, 0, 0, time.UTC).In(f.opts.Location).Zone()
		least = min(least, offset)
	}
	y, m, d := at.Add(time.Duration(least) * time.Second).Date()
	from, to = ledger.Day(y, m, d-1, f.opts.Location)
	return from, to, nil
}

func (f *function) now() time.Time {
	if f.opts.Now != nil {
		return f.opts.Now()
	}
	return time.Now()
}

// toLog writes each finding as a line of the log, of level WARN if it is a difference, so that queries find its
// members. The last one is the function's own line.
func toLog(ctx context.Context, _ time.Time) (io.WriteCloser, error) { return logged{ctx}, nil }

type logged struct{ ctx context.Context }

// Write takes a whole line, as ledger.Lines writes it.
func (l logged) Write(p []byte) (int, error) {
	var f struct{ Kind ledger.Kind }
	_ = json.Unmarshal(p, &f) // it is JSON
	level := slog.LevelWarn
	switch f.Kind {
	case ledger.Complete:
		return len(p), nil
	case ledger.Open, ledger.Undecided:
		level = slog.LevelInfo
	}
	slog.Log(l.ctx, level, "idem: ledger", "finding", json.RawMessage(bytes.Clone(bytes.TrimSpace(p))))
	return len(p), nil
}

func (logged) Close() error { return nil }
