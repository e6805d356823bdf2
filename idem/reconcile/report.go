package reconcile

import (
	"cmp"
	"fmt"
	"iter"
	"log/slog"
	"regexp"
	"slices"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

const (
	maxActions  = 1000
	maxProblems = 20
)

// oneTry is what tells a failed try from the same failure of another one: the id of the
// request, and the local address of its connection.
var oneTry = regexp.MustCompile(`RequestID: [^,]*|\S+->`)

// Report says what a sweep did, and in a dry run what it would have done.
type Report struct {
	// DryRun says that nothing was written and no provider was asked.
	DryRun bool `json:"dry_run,omitempty"`
	// Listed is how many records the index named as due.
	Listed int `json:"listed"`
	// Parked claims became unknown.
	Parked int `json:"parked"`
	// Probed questions were asked about and stay unknown, Resolved ones have their outcome.
	Probed   int `json:"probed"`
	Resolved int `json:"resolved"`
	// Postponed records are due later: they still run, or no provider could be asked yet.
	Postponed int `json:"postponed"`
	// Abandoned records wait for a call, or for what OnAbandoned does about them.
	Abandoned int `json:"abandoned"`
	// Escalated questions were escalated.
	Escalated int `json:"escalated"`
	// NotStarted is accepted work that was ended because no worker started it in time.
	NotStarted int `json:"not_started,omitempty"`
	// Unreadable records are left as they are, and counted by each sweep until an operator has
	// looked at them: see Problems. A newer version has written them, or they are damaged.
	Unreadable int `json:"unreadable"`
	// Failed records could not be handled: the store or Escalate failed, see Problems.
	Failed int `json:"failed"`
	// Skipped records were not due any more.
	Skipped int `json:"skipped"`
	// Left records were listed, but there was no time to handle them. More says that there
	// was no time to list all that is due. The next sweep continues with both.
	Left int  `json:"left"`
	More bool `json:"more,omitempty"`
	// Expired items were removed.
	Expired int `json:"expired,omitempty"`
	// Actions are the first 1,000 of what was done.
	Actions []Action `json:"actions,omitempty"`
	// Problems says what went wrong, at most 20 entries. Errors that differ only in the
	// request's id have one entry.
	Problems []string `json:"problems,omitempty"`
}

// Action is one thing that a sweep did about a record.
type Action struct {
	// Kind is notice.SweepParked, SweepPostponed, Abandoned, Probed, Resolved, Escalated,
	// NotStarted, Unreadable or SweepFailed.
	Kind notice.Kind `json:"kind"`
	// Record is its id, Tenant and Operation its key's.
	Record    string `json:"record"`
	Tenant    string `json:"tenant,omitempty"`
	Operation string `json:"operation"`
	Attempt   int    `json:"attempt,omitempty"`
	// From and To are the states before and after.
	From idem.State `json:"from,omitempty"`
	To   idem.State `json:"to,omitempty"`
	// Why, without values and results.
	Why string `json:"why,omitempty"`
}

// problem reports whether it is a new one.
func (r *Report) problem(format string, args ...any) bool {
	p := fmt.Sprintf(format, args...)
	kind := oneTry.ReplaceAllString(p, "")
	if slices.ContainsFunc(r.Problems, func(q string) bool { return oneTry.ReplaceAllString(q, "") == kind }) {
		return false
	}
	if len(r.Problems) < maxProblems {
		r.Problems = append(r.Problems, p)
	}
	return true
}

// actions are what a sweep does: how each is logged, and where it is counted.
var actions = map[notice.Kind]struct {
	level slog.Level
	count func(*Report) *int
}{
	notice.SweepParked:    {slog.LevelWarn, func(r *Report) *int { return &r.Parked }},
	notice.SweepPostponed: {slog.LevelInfo, func(r *Report) *int { return &r.Postponed }},
	notice.Probed:         {slog.LevelInfo, func(r *Report) *int { return &r.Probed }},
	notice.Resolved:       {slog.LevelInfo, func(r *Report) *int { return &r.Resolved }},
	notice.Abandoned:      {slog.LevelWarn, func(r *Report) *int { return &r.Abandoned }},
	notice.Escalated:      {slog.LevelError, func(r *Report) *int { return &r.Escalated }},
	notice.NotStarted:     {slog.LevelError, func(r *Report) *int { return &r.NotStarted }},
	notice.Unreadable:     {slog.LevelError, func(r *Report) *int { return &r.Unreadable }},
	notice.SweepFailed:    {slog.LevelWarn, func(r *Report) *int { return &r.Failed }},
}

// did reports an action about the record, which may be known by its id alone.
func (s *sweep) did(kind notice.Kind, rec *idem.Record, to idem.State, why string, err error) {
	tenant, operation := namesOf(rec.ID)
	a := Action{Kind: kind, Record: rec.ID, Tenant: tenant, Operation: operation, Attempt: rec.Attempt,
		From: rec.State, To: to, Why: why}
	s.count(func(r *Report) {
		*actions[kind].count(r)++
		if len(r.Actions) < maxActions {
			r.Actions = append(r.Actions, a)
		}
		switch kind {
		case notice.SweepFailed:
			r.problem("%s", why)
		case notice.Unreadable:
			r.problem("%v", err)
		}
	})
	log := cmp.Or(s.opts.Log, slog.Default())
	attrs := []slog.Attr{
		slog.String("kind", string(kind)), slog.String("record", a.Record), slog.String("tenant", tenant),
		slog.String("operation", operation),
		slog.Int("attempt", a.Attempt), slog.String("from", string(a.From)), slog.String("to", string(to)),
		slog.String("why", why),
	}
	if s.opts.DryRun {
		attrs = append(attrs, slog.Bool("dry_run", true))
	}
	if err != nil {
		attrs = append(attrs, slog.String("error", err.Error()))
	}
	log.LogAttrs(s.ctx, actions[kind].level, "idem: sweep", attrs...)
	if s.opts.Observer == nil || s.opts.DryRun {
		return // a question that a dry run would escalate would raise the alarm of one that is
	}
	n := notice.Notice{Kind: kind, ID: a.Record, Tenant: tenant, Operation: operation, Attempt: a.Attempt,
		State: to, Err: err}
	if at := since(rec); !at.IsZero() {
		n.Elapsed = max(s.r.now().Sub(at), 0)
	}
	if err := guarded(func() error { s.opts.Observer(s.ctx, n); return nil }); err != nil {
		log.LogAttrs(s.ctx, slog.LevelError, "idem: the sweep's observer panicked", slog.String("error", err.Error()))
	}
}

func (s *sweep) count(f func(*Report)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.report)
}

// guarded calls f, and makes of a panic an error.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = protocol.RedactPanic("a function of the sweep", p)
		}
	}()
	return f()
}

// Counts has as metrics, by the names of package schema, what the observer does not get: that
// there was a sweep, what it had no time for, and the expired items that it removed. A dry run has none.
func (r Report) Counts() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		_ = r.DryRun || yield(schema.MetricSwept, 1) && yield(schema.MetricSweepLeft, r.Left) &&
			yield(schema.MetricExpired, r.Expired)
	}
}
