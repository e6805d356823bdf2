package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/notice"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// What a sweep does about a single record, next to asking about it.
func TestASweepOfOneRecord(t *testing.T) {
	looks := func(problem string) move {
		return func(r *rig) {
			require.ErrorIs(r.t, r.notices[0].Err, idem.ErrRecordUnreadable)
			require.Equal(r.t, []string{r.notices[0].Err.Error()}, r.swept.Problems)
			require.Contains(r.t, r.swept.Problems[0], problem)
		}
	}
	puts := func(change func(*idem.Record)) move { return func(r *rig) { r.due(r.key, change) } }
	postponed := func(r *rig) {
		rec := r.record()
		require.Equal(r.t, rec.LeaseUntil.Add(idem.DefaultMargin), rec.Due)
		require.Zero(r.t, rec.Probes)
		require.Equal(r.t, r.looked, rec.Write, "writes under way are not disturbed")
	}
	play(t, []story{
		{"a claim that still runs is postponed", refund, []move{
			killed, wait(20 * time.Second), renews(idem.DefaultLease), look, wait(15 * time.Second),
			sweeps(notice.SweepPostponed), is(idem.InProgress), postponed, changed(),
		}},
		// A record that others keep writing is looked at twice, and left to the next sweep.
		{"a record that keeps changing is left alone", refund, []move{
			lapsed, always(idemtest.BareConflict, idemtest.Settle),
			func(r *rig) {
				r.Faults.Reset()
				r.play(sweeps())
				require.Equal(r.t, []int{1, 0}, []int{r.swept.Skipped, r.swept.Failed})
				require.Equal(r.t, 2, r.called(idemtest.Get))
			},
			heal, sweeps(notice.SweepParked, notice.SweepPostponed),
		}},
		// A newer release may make other fingerprints: that keeps no sweep from parking.
		{"a newer fingerprint", refund, []move{
			puts(func(rec *idem.Record) { rec.Fingerprint = "2:new" }), lapse, sweep, is(idem.Unknown),
		}},
		{"a fingerprint that is none", refund, []move{
			puts(func(rec *idem.Record) { rec.Fingerprint = "" }), lapse, sweep, is(idem.Unknown),
		}},
		{"a state that this version does not know is left alone", refund, []move{
			puts(func(rec *idem.Record) { rec.State = "paused" }), lapse, sweeps(notice.Unreadable),
			looks(`": it is "paused"`), is("paused"),
		}},
		// A short time for providers is none for the store.
		{"a probe has less time than the store needs", refund, []move{
			lapsed, asks(tookEffect), always(func(ctx context.Context, c *idemtest.Call) error {
				select {
				case <-time.After(200 * time.Millisecond):
				case <-ctx.Done():
					return c.Lost()
				}
				return c.Do(ctx)
			}),
			func(r *rig) {
				r.options.ProbeTimeout = 100 * time.Millisecond
				report := r.within(50*time.Second, r.sweeper(r.options))
				require.Equal(r.t, []notice.Kind{notice.SweepParked, notice.Resolved}, kinds(report))
			},
		}},
	}...)
}

func TestAStoreThatIsDownIsNotAskedForAllShardsAndReportedOnce(t *testing.T) {
	noTable := func(n int) error {
		return fmt.Errorf("https response error StatusCode: 400, RequestID: R%d, ResourceNotFoundException", n)
	}
	reset := func(n int) error {
		return fmt.Errorf("read tcp 10.0.0.1:%d->10.0.0.2:8000: connection reset by peer", 1000+n)
	}
	throttled := errors.New("throttled")
	for name, tc := range map[string]struct {
		fails           func(n int) error
		asked, problems int
		more            bool
	}{
		"no table":     {noTable, 18, 1, true},
		"resets":       {reset, 18, 1, true},
		"one of each":  {func(n int) error { return []func(int) error{noTable, reset}[n%2](n) }, 18, 2, true},
		"a busy shard": {func(n int) error { return map[int]error{4: throttled}[n] }, protocol.Shards, 1, false},
		"here and there": {func(n int) error {
			if n%3 == 0 {
				return nil
			}
			return throttled
		}, protocol.Shards, 1, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRig(t, refund)
			var mu sync.Mutex
			asked := 0
			r.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
				mu.Lock()
				asked++
				n := asked
				mu.Unlock()
				time.Sleep(time.Duration(n) * time.Millisecond) // they end in the order in which they began
				if err := tc.fails(n); err != nil {
					return &idem.StoreError{Op: "Due", Err: err}
				}
				return c.Do(ctx)
			}, idemtest.Due)
			report, err := r.sweeper(reconcile.SweepOptions{}).Sweep(t.Context())
			require.ErrorIs(t, err, idem.ErrStoreUnavailable)
			require.Equal(t, tc.asked, asked)
			require.Len(t, report.Problems, tc.problems)
			require.Equal(t, tc.more, report.More)
			require.Len(t, strings.Split(err.Error(), "\n"), tc.problems, "the error says each once too")
		})
	}
}

// A dry run reports what a sweep would do, makes no write, asks no provider and raises no alarm.
func TestADryRunWritesNothing(t *testing.T) {
	for _, e := range endings() {
		t.Run(e.name, func(t *testing.T) {
			op := e.op
			r := newRig(t, op.Operation)
			lapsed(r)
			if op.Probe != nil {
				op.Probe = func(context.Context, reconcile.Question) (reconcile.Answer, error) { panic("not in a dry run") }
			}
			if op.OnAbandoned != nil {
				op.OnAbandoned = func(context.Context, reconcile.Question) error { panic("not in a dry run") }
			}
			dry := r.sweeper(reconcile.SweepOptions{DryRun: true, Operations: []reconcile.Operation{op}})
			before := r.record()
			r.notices = nil
			for range 2 {
				r.Faults.Reset()
				report := r.report(dry)
				require.True(t, report.DryRun)
				require.NotEmpty(t, report.Actions)
				for _, method := range r.Faults.Calls() {
					require.Contains(t, []idemtest.Method{idemtest.Due, idemtest.Get, idemtest.ReadPaused}, method)
				}
				require.Equal(t, before, r.record())
				r.Clock.Advance(24 * time.Hour) // then operators would get it
			}
			require.Empty(t, r.escalations)
			require.Empty(t, r.notices)
			require.Empty(t, r.changes(r.key))
		})
	}
}

// What cannot be read or written, and a probe that panics, is counted and reported, and the rest goes on.
func TestTroubleWithOneRecordDoesNotStopTheOthers(t *testing.T) {
	bad := refund.Key("acme", "3")
	faulty := func(fault idemtest.Fault) idemtest.Fault {
		return func(ctx context.Context, c *idemtest.Call) error {
			if c.ID == bad.ID() {
				return fault(ctx, c)
			}
			return c.Do(ctx)
		}
	}
	panics := func(_ context.Context, q reconcile.Question) (reconcile.Answer, error) {
		if q.ID == bad.ID() {
			return reconcile.Answer{}, new(textless)
		}
		return tookEffect, nil
	}
	for name, tc := range map[string]struct {
		trouble move
		probe   probe
		kind    notice.Kind
		state   idem.State
		problem string
	}{
		"it is unreadable": {always(faulty(idemtest.Unreadable), idemtest.Get), nil, notice.Unreadable, idem.InProgress,
			"idemtest: Get"},
		"it cannot be read": {always(faulty(idemtest.Refuse), idemtest.Get), nil, notice.SweepFailed, idem.InProgress,
			"refused"},
		"it cannot be moved": {always(faulty(idemtest.Deny), idemtest.Settle), nil, notice.SweepFailed, idem.InProgress,
			"denied"},
		"its probe's error has no text": {times(0), panics, notice.SweepFailed, idem.Unknown,
			`a function of the sweep panicked at sweep_test\.go:\d+: a value of type string$`},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, refund)
			for i := range 10 {
				r.killed(refund.Key("acme", fmt.Sprint(i)))
			}
			r.play(lapse, tc.trouble)
			report := r.report(r.probing(tc.probe))
			require.Equal(t, []int{10, 1}, []int{report.Listed, report.Unreadable + report.Failed})
			require.Equal(t, 9, map[bool]int{true: report.Resolved, false: report.Postponed}[tc.probe != nil])
			require.Contains(t, kinds(report), tc.kind)
			require.Len(t, report.Problems, 1)
			require.Regexp(t, tc.problem, report.Problems[0])
			require.Equal(t, tc.state, r.Record(bad).State)
		})
	}
}

// textless is an error whose text cannot be had.
type textless struct{}

func (*textless) Error() string { panic("no text") }

// outboxes keeps what it is sent.
type outboxes struct{ messages []outbox.Message }

func (o *outboxes) Send(_ context.Context, m []outbox.Message) []outbox.Sent {
	o.messages = append(o.messages, m...)
	return make([]outbox.Sent, len(m))
}

// What operators get says all that they need, and nothing of what was asked for.
func TestTheMessageOfAnEscalation(t *testing.T) {
	for _, texts := range []bool{false, true} {
		op := idem.Operation{Name: "re/fund #2", Values: idem.KeepValues} // which the sweep does not know
		r, sender := newRig(t, op), &outboxes{}
		key := op.Key("a c/me", "r-1")
		r.end(key, errPlain)
		rec := r.Record(key)
		r.Clock.Advance(reconcile.DefaultEscalateAfter)
		s, err := reconcile.NewSweeper(r.Reconciler,
			&reconcile.SweepOptions{Escalate: reconcile.SendTo(sender), IncludeErrorMessages: texts})
		require.NoError(t, err)
		require.Equal(t, 1, r.report(s).Escalated)
		require.Len(t, sender.messages, 1)
		m := sender.messages[0]
		id := outbox.MessageID(key.ID(), rec.OpenSince, "idem:escalated")
		require.Equal(t, []string{id, "escalations", "idem.escalated", "application/json"},
			[]string{m.ID, m.Destination, m.Type, m.ContentType})
		var body map[string]any
		require.NoError(t, json.Unmarshal(m.Body, &body))
		at := func(at time.Time) string { b, _ := at.MarshalText(); return string(b) }
		want := map[string]any{
			"message": id, "record": key.ID(), "tenant": "a c/me", "operation": "re/fund #2", "value": "r-1",
			"state": "unknown", "attempt": 1.0, "created_at": at(rec.CreatedAt), "since": at(rec.OpenSince), "probes": 0.0,
			"reason":     "no provider can be asked about it",
			"error_type": rec.Failure.Type, "token": protocol.Token(key.ID(), ""), "help": reconcile.DefaultHelp,
		}
		if texts {
			want["error_message"] = errPlain.Error()
		}
		require.Equal(t, want, body)
	}
}

// Every kind of action has its line in the log, its notice and its count, and the lines
// say nothing of values and results.
func TestEveryActionIsReported(t *testing.T) {
	seen := map[notice.Kind]bool{}
	check := func(known reconcile.Operation, leave ...move) {
		r := newRig(t, known.Operation)
		r.play(leave...)
		var log bytes.Buffer
		var noticed []notice.Notice
		s, err := reconcile.NewSweeper(r.Reconciler, &reconcile.SweepOptions{
			Operations: []reconcile.Operation{known}, Log: slog.New(slog.NewJSONHandler(&log, nil)),
			Observer: func(_ context.Context, n notice.Notice) {
				noticed = append(noticed, n)
				panic("the observer is broken")
			},
		})
		require.NoError(t, err)
		for range 4 {
			noticed = nil
			report := r.report(s)
			require.Len(t, noticed, len(report.Actions))
			var lines []map[string]any
			for in := json.NewDecoder(&log); in.More(); {
				var line map[string]any
				require.NoError(t, in.Decode(&line))
				if line["kind"] != nil {
					lines = append(lines, line)
				}
			}
			require.Len(t, lines, len(report.Actions))
			for i, a := range report.Actions {
				seen[a.Kind] = true
				require.Equal(t, []any{string(a.Kind), r.key.ID(), "acme", known.Operation.Name, string(a.From), string(a.To)},
					[]any{lines[i]["kind"], lines[i]["record"], lines[i]["tenant"], lines[i]["operation"],
						lines[i]["from"], lines[i]["to"]})
				require.Equal(t, []any{a.Kind, r.key.ID(), "acme", a.Operation, a.Attempt, a.To},
					[]any{noticed[i].Kind, noticed[i].ID, noticed[i].Tenant, noticed[i].Operation,
						noticed[i].Attempt, noticed[i].State})
			}
			r.Clock.Advance(time.Hour)
		}
	}
	for _, e := range endings() {
		check(e.op, lapsed)
	}
	check(reconcile.Operation{Operation: refund}, lapsed, next(idemtest.Get, idemtest.Unreadable, idemtest.Refuse))
	check(reconcile.Operation{Operation: refund}, accepted, wait(later.DefaultStartWithin), lapse)
	source, err := os.ReadFile("../notice/notice.go")
	require.NoError(t, err)
	_, sweeps, found := bytes.Cut(source, []byte("// Kinds of notices of a sweep"))
	require.True(t, found)
	for _, m := range regexp.MustCompile(`Kind = "(\w+)"`).FindAllSubmatch(sweeps, -1) {
		require.True(t, seen[notice.Kind(m[1])], "nothing led to %s", m[1])
	}
	require.True(t, seen[notice.Unreadable])
}

func TestMistakesOfASweeper(t *testing.T) {
	r := newRig(t, refund)
	_, err := reconcile.NewSweeper(nil, nil)
	require.ErrorAs(t, err, new(*idem.ConfigError))
	for _, o := range []reconcile.SweepOptions{
		{Concurrency: -1}, {ProbeTimeout: -1}, {Operations: []reconcile.Operation{{}}},
		{Operations: []reconcile.Operation{{Operation: refund}, {Operation: refund}}},
		{Operations: []reconcile.Operation{{Operation: refund, EscalateAfter: -1}}},
	} {
		_, err := reconcile.NewSweeper(r.Reconciler, &o)
		require.ErrorAs(t, err, new(*idem.ConfigError))
	}
	_, err = reconcile.NewSweeper(r.Reconciler, nil)
	require.NoError(t, err)
}

// table has in each segment so many pages of items.
type table struct {
	pages, items int
	asked        []protocol.ExpiredQuery
	err          error
}

func (s *table) RemoveExpired(_ context.Context, q protocol.ExpiredQuery) (protocol.ExpiredPage, error) {
	time.Sleep(100 * time.Millisecond)
	s.asked = append(s.asked, q)
	page := protocol.ExpiredPage{Looked: s.items, Removed: 2, Next: q.Page + "."}
	if len(page.Next) == s.pages {
		page.Next = ""
	}
	return page, s.err
}

func TestASweepRemovesWhatHasExpired(t *testing.T) {
	for name, tc := range map[string]struct {
		table    table
		dry      bool
		asked    int
		problems int
		failed   bool
	}{
		"a small table":            {table{pages: 1}, false, 100, 0, false},
		"a table":                  {table{pages: 1, items: 100}, false, 50, 0, false},
		"a table of many segments": {table{pages: 3, items: 250}, false, 21, 0, false},
		"a large segment":          {table{pages: 150, items: 250}, false, 150, 0, false},
		"an error":                 {table{pages: 3, err: errPlain}, false, 1, 1, true},
		"a dry run":                {table{pages: 3}, true, 0, 0, false},
	} {
		inBubble(t, name, func(t *testing.T) {
			r := newRig(t, refund)
			s := r.sweeper(reconcile.SweepOptions{Expired: &tc.table, DryRun: tc.dry})
			report, err := s.Sweep(t.Context())
			require.Equal(t, tc.failed, err != nil)
			require.Len(t, tc.table.asked, tc.asked)
			require.Len(t, report.Problems, tc.problems)
			require.Equal(t, 2*tc.asked, report.Expired)
			for n, q := range tc.table.asked {
				first := tc.table.asked[0].Segment
				require.Equal(t, []int{8192, (first + n/tc.table.pages) % 8192}, []int{q.Segments, q.Segment})
				require.Len(t, q.Page, n%tc.table.pages)
				require.LessOrEqual(t, q.Limit, 250)
				require.GreaterOrEqual(t, r.Clock.Now().Sub(q.Before), 24*time.Hour+idem.DefaultMargin)
			}
		})
	}
}

// Another sweep begins at another segment, and what is due comes first.
func TestRemovingTakesTheTimeThatIsLeft(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, table := newRig(t, refund), &table{pages: 1, items: 5000}
		s := r.sweeper(reconcile.SweepOptions{Expired: table})
		seen := map[int]bool{}
		for range 100 {
			r.report(s)
			seen[table.asked[len(table.asked)-1].Segment] = true
		}
		require.Len(t, table.asked, 100)
		require.Greater(t, len(seen), 50)

		table.pages, table.asked = 1000, nil
		report := r.within(2100*time.Millisecond, s)
		require.Empty(t, report.Problems)
		require.Len(t, table.asked, 16, "a quarter of the time is for the last writes")
	})
}
