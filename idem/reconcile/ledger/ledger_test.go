package ledger

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

var (
	from = time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	to   = from.AddDate(0, 0, 1)
	noon = from.Add(12 * time.Hour)
	now  = to.Add(4 * time.Hour)
)

const week = 7 * 24 * time.Hour

func id(n any) string { return fmt.Sprintf("acme#refund#%v", n) }

// completed is a record whose result is the amount.
func completed(n any, at time.Time, amount string) *protocol.Record {
	body, _ := json.Marshal(amount)
	return &protocol.Record{ID: id(n), State: protocol.Completed, Owner: "o", Write: "w", Attempt: 1,
		CreatedAt: at.Add(-time.Second), UpdatedAt: at, ExpiresAt: at.Add(week), Retention: week, Ref: fmt.Sprint("re_", n),
		Body: protocol.Body{Data: body, Size: len(body), Stored: len(body)}}
}

func (w *world) in(state protocol.State, n any, at time.Time, change ...func(*protocol.Record)) {
	rec := &protocol.Record{ID: id(n), State: state, Owner: "o", Write: "w", Attempt: 1, CreatedAt: at, UpdatedAt: at,
		LeaseUntil: at.Add(30 * time.Second)}
	for _, c := range change {
		c(rec)
	}
	w.put(rec)
}

// entry is the provider's for the record with the number.
func entry(n any, at time.Time, amount string) Entry {
	return Entry{Token: protocol.Token(id(n), ""), Ref: fmt.Sprint("re_", n), Value: amount, At: at}
}

func amountOf(ctx context.Context, rec Record) (x Expected, err error) {
	if rec.State != protocol.Completed {
		return x, nil
	}
	body, err := rec.Result(ctx)
	if err == nil {
		err = json.Unmarshal(body, &x.Value)
	}
	x.Effect = x.Value != "declined"
	return x, err
}

// world has a table and a provider.
type world struct {
	t       testing.TB
	store   *memstore.Store
	scans   Store // the store, unless a test puts another one in front
	entries []Entry
	fails   error // after the entries
	opts    Options
	memory  int
	now     time.Time
}

func newWorld(t testing.TB) *world {
	w := &world{t: t, store: memstore.New(), opts: Options{Operation: "refund", Expect: amountOf}, memory: memory,
		now: now}
	w.scans = w.store
	return w
}

func (w *world) put(rec *protocol.Record) {
	w.t.Helper()
	require.NoError(w.t, w.store.Acquire(w.t.Context(), rec.UpdatedAt, protocol.Claim{Record: *rec}))
}

func (w *world) ledger() *Ledger {
	w.t.Helper()
	o := w.opts
	o.Now = func() time.Time { return w.now }
	if o.Entries == nil {
		o.Entries = func(context.Context, time.Time, time.Time) iter.Seq2[Entry, error] {
			return func(yield func(Entry, error) bool) {
				for _, e := range w.entries {
					if !yield(e, nil) {
						return
					}
				}
				if w.fails != nil {
					yield(Entry{}, w.fails)
				}
			}
		}
	}
	l, err := New(w.scans, o)
	require.NoError(w.t, err)
	l.memory = w.memory
	return l
}

// compare has the findings of a day in short.
func (w *world) compare(from time.Time) (Report, []string) {
	w.t.Helper()
	var all []Finding
	report, err := w.ledger().Compare(w.t.Context(), from, from.AddDate(0, 0, 1), func(f Finding) error {
		all = append(all, f)
		return nil
	})
	require.NoError(w.t, err)
	require.False(w.t, report.Incomplete)
	last := all[len(all)-1]
	require.Equal(w.t, Finding{Kind: Complete, Report: &report}, last)
	var short []string
	for _, f := range all[:len(all)-1] {
		short = append(short, brief(f))
	}
	slices.Sort(short)
	return report, short
}

func brief(f Finding) string {
	s := string(f.Kind)
	for _, part := range []string{strings.TrimPrefix(f.Record, "acme#refund#"), string(f.RecordState)} {
		s += " " + cmp.Or(part, "-")
	}
	for _, e := range []*Entry{f.Here, f.There, f.First} {
		if e == nil {
			s += " -"
			continue
		}
		s += " " + cmp.Or(e.Ref, "?") + "/" + cmp.Or(e.Value, "?")
	}
	if f.Why != "" {
		s += " why" + strings.TrimPrefix(f.Why, protocol.ErrRecordUnreadable.Error())
	}
	if f.FirstRecord != "" {
		s += " " + strings.TrimPrefix(f.FirstRecord, "acme#refund#")
	}
	return s
}

func TestFindings(t *testing.T) {
	late := func(rec *protocol.Record) *protocol.Record { rec.CreatedAt = from.Add(-24*time.Hour - 1); return rec }
	byRef := func(e Entry) Entry { e.Token = ""; return e }
	byToken := func(e Entry) Entry { e.Ref = ""; return e }
	unref := func(rec *protocol.Record) *protocol.Record { rec.Ref = ""; return rec }
	for name, tc := range map[string]struct {
		set  func(w *world)
		want []string
		sums Report
	}{
		"nothing": {set: func(*world) {}},
		"the same": {func(w *world) {
			w.put(completed(1, noon, "100 EUR"))
			w.entries = []Entry{entry(1, noon, "100 EUR")}
		}, nil, Report{Entries: 1, Records: 1, Compared: 1}},
		"the same by reference alone": {func(w *world) {
			w.put(completed(1, noon, "100 EUR"))
			w.entries = []Entry{byRef(entry(1, noon, "100 EUR"))}
		}, nil, Report{Entries: 1, Records: 1, Compared: 1}},
		"the same by token alone": {func(w *world) {
			w.put(unref(completed(1, noon, "100 EUR")))
			w.entries = []Entry{byToken(entry(1, noon, "100 EUR"))}
		}, nil, Report{Entries: 1, Records: 1, Compared: 1}},
		"missing here": {func(w *world) {
			w.put(completed(1, noon, "100 EUR"))
			w.entries = []Entry{entry(1, noon, "100 EUR"), entry(2, noon, "7 EUR"), byRef(entry(3, noon, "8 EUR"))}
		}, []string{"missing_here - - - re_2/7 EUR -", "missing_here - - - re_3/8 EUR -"},
			Report{Entries: 3, Records: 1, Compared: 1, MissingHere: 2}},
		"missing here, and the record says otherwise": {func(w *world) {
			w.in(protocol.Failed, "failed", noon, func(r *protocol.Record) { r.Failure = &protocol.Failure{Message: "no"} })
			w.in(protocol.Released, "released", noon)
			w.in(protocol.Unknown, "unknown", noon, func(r *protocol.Record) { r.OpenSince, r.Due = noon, noon })
			w.in(protocol.InProgress, "died", noon)
			w.put(completed("refused", noon, "declined"))
			for _, n := range []string{"failed", "released", "unknown", "died", "refused"} {
				w.entries = append(w.entries, entry(n, noon, "1"))
			}
		}, []string{
			"missing_here died in_progress ?/? re_died/1 -", "missing_here failed failed ?/? re_failed/1 -",
			"missing_here refused completed re_refused/declined re_refused/1 -",
			"missing_here released released ?/? re_released/1 -", "missing_here unknown unknown ?/? re_unknown/1 -",
		}, Report{Entries: 5, Records: 5, MissingHere: 5}},
		"missing there": {func(w *world) {
			w.put(completed(1, noon, "100 EUR"))
			w.put(completed("refused", noon, "declined"))
			w.in(protocol.Failed, "failed", noon, func(r *protocol.Record) { r.Failure = &protocol.Failure{Message: "no"} })
		}, []string{"missing_there 1 completed re_1/100 EUR - -"}, Report{Records: 3, MissingThere: 1}},
		"different": {func(w *world) {
			w.put(completed(1, noon, "100 EUR"))
			w.entries = []Entry{entry(1, noon, "120 EUR")}
		}, []string{"different 1 completed re_1/100 EUR re_1/120 EUR -"},
			Report{Entries: 1, Records: 1, Compared: 1, Different: 1}},
		"another state": {func(w *world) {
			w.opts.Expect = func(context.Context, Record) (Expected, error) {
				return Expected{Effect: true, State: "succeeded"}, nil
			}
			w.put(completed(1, noon, "100 EUR"))
			w.put(completed(2, noon, "100 EUR"))
			failed, silent := entry(1, noon, "100 EUR"), entry(2, noon, "100 EUR")
			failed.State = "failed"
			w.entries = []Entry{failed, silent}
		}, []string{"different 1 completed re_1/? re_1/100 EUR -"},
			Report{Entries: 2, Records: 2, Compared: 2, Different: 1}},
		"doubled": {func(w *world) {
			w.put(completed(1, noon, "100 EUR"))
			second, byHand := entry(1, noon.Add(time.Second), "100 EUR"), entry(1, noon.Add(time.Hour), "100 EUR")
			second.Ref, byHand.Token = "re_1b", ""
			w.entries = []Entry{byHand, second, entry(1, noon, "100 EUR")}
		}, []string{"doubled 1 completed re_1/100 EUR re_1/100 EUR re_1b/100 EUR",
			"doubled 1 completed re_1/100 EUR re_1b/100 EUR re_1/100 EUR"},
			Report{Entries: 3, Records: 1, Compared: 1, Doubled: 2}},
		"doubled and missing here": {func(w *world) {
			w.put(completed(9, noon, "declined"))
			w.entries = []Entry{entry(1, noon, "1"), entry(1, noon.Add(time.Second), "1")}
		}, []string{"doubled - - - re_1/1 re_1/1", "missing_here - - - re_1/1 -"},
			Report{Entries: 2, Records: 1, MissingHere: 1, Doubled: 1}},
		"two records with one reference": {func(w *world) {
			one, other := completed(1, noon, "1"), completed(2, noon, "1")
			other.Ref = one.Ref
			w.put(one)
			w.put(other)
			w.entries = []Entry{entry(1, noon, "1"), entry(2, noon, "1")}
		}, []string{"doubled 2 completed re_1/? - - 1"}, Report{Entries: 2, Records: 2, Compared: 2, Doubled: 1}},
		"a reference of a record without effect too": {func(w *world) {
			w.in(protocol.Failed, 0, noon, func(r *protocol.Record) {
				r.Failure, r.Ref = &protocol.Failure{Message: "no"}, "re_1"
			})
			w.put(completed(1, noon, "1"))
			w.entries = []Entry{byRef(entry(1, noon, "1"))}
		}, nil, Report{Entries: 1, Records: 2, Compared: 1}},
		"pages overlap": {func(w *world) {
			w.put(completed(1, noon, "1"))
			again := entry(1, noon.In(time.FixedZone("there", 3600)), "1")
			w.entries = []Entry{entry(1, noon, "1"), entry(2, noon, "1"), again, entry(2, noon, "1")}
		}, []string{"missing_here - - - re_2/1 -"}, Report{Entries: 2, Records: 1, Compared: 1, MissingHere: 1}},
		"effects of records that ended before": {func(w *world) {
			before := noon.AddDate(0, 0, -2)
			w.put(completed(1, before, "1"))
			w.put(completed("refused", before, "declined"))
			w.put(completed("without an entry", before, "1"))
			w.in(protocol.Released, "released", before)
			again := entry(1, noon.Add(time.Second), "1")
			again.Ref = "re_1b"
			w.entries = []Entry{entry(1, noon, "1"), again, entry("refused", noon, "1"), entry("released", noon, "1")}
		}, []string{"doubled 1 completed re_1/1 re_1/1 -", "doubled 1 completed re_1/1 re_1b/1 re_1/1",
			"missing_here refused completed re_refused/declined re_refused/1 -",
			"missing_here released released ?/? re_released/1 -"},
			Report{Entries: 4, MissingHere: 2, Doubled: 2}},
		"a reference of a record that ended before": {func(w *world) {
			one, other := completed(2, noon.AddDate(0, 0, -2), "1"), completed(1, noon, "1")
			other.Ref = one.Ref
			w.put(one)
			w.put(other)
			w.entries = []Entry{byRef(entry(2, noon, "1"))}
		}, []string{"doubled 2 completed re_2/? - - 1"}, Report{Entries: 1, Records: 1, Compared: 1, Doubled: 1}},
		"two effects of one second": {func(w *world) {
			w.put(completed(1, noon, "1"))
			e := byToken(entry(1, noon, "1"))
			w.entries = []Entry{e, e}
		}, []string{"doubled 1 completed re_1/1 ?/1 ?/1"}, Report{Entries: 2, Records: 1, Compared: 1, Doubled: 1}},
		"two rows of a file": {func(w *world) {
			w.opts.Distinct = true
			w.put(completed(1, noon, "1"))
			w.entries = []Entry{entry(1, noon, "1"), entry(1, noon, "1")}
		}, []string{"doubled 1 completed re_1/1 re_1/1 re_1/1"}, Report{Entries: 2, Records: 1, Compared: 1, Doubled: 1}},
		"open": {func(w *world) {
			w.in(protocol.Unknown, "unknown", noon, func(r *protocol.Record) { r.OpenSince, r.Due = noon, noon })
			w.in(protocol.InProgress, "died", noon)
			w.in(protocol.Pending, "pending", noon, func(r *protocol.Record) { r.Due = noon })
			w.in(protocol.Released, "stepped", noon, func(r *protocol.Record) {
				r.OpenSince, r.Due, r.Steps = noon, noon, map[string]protocol.RecordedStep{"a": {}}
			})
			w.in(protocol.Released, "released", noon)
			w.in(protocol.Unknown, "days ago", from.Add(-48*time.Hour))
			w.in(protocol.Unknown, "the next day's", to)
			w.in(protocol.InProgress, "the day before's", from.Add(-time.Second))
		}, []string{"open died in_progress ?/? - -", "open pending pending ?/? - -", "open stepped released ?/? - -",
			"open unknown unknown ?/? - -"}, Report{Records: 7, Open: 4}},
		"an attempt that runs": {func(w *world) {
			w.in(protocol.InProgress, "runs", noon, func(r *protocol.Record) { r.LeaseUntil = now.Add(time.Second) })
			w.entries = []Entry{entry("runs", noon, "1")}
		}, []string{"open runs in_progress ?/? re_runs/1 -"}, Report{Entries: 1, Records: 1, Open: 1}},
		"undecided": {func(w *world) {
			w.put(late(completed(1, noon, "1")))
			w.put(late(completed(2, noon, "1")))
			w.entries = []Entry{entry(2, noon, "1")}
		}, []string{"undecided 1 completed re_1/1 - -", "undecided 2 completed re_2/1 re_2/1 -"},
			Report{Entries: 1, Records: 2, Compared: 1, Undecided: 2}},
		// The record of an effect may be older than the first entry that is read, and the effect not, where clocks differ.
		"the first entry is of another clock": {func(w *world) {
			rec := completed(1, noon, "1")
			rec.CreatedAt, rec.Attempt = from.Add(-25*time.Hour+time.Minute), 2
			w.put(rec)
			w.entries = []Entry{entry(1, rec.CreatedAt.Add(-2*time.Minute), "1")}
		}, []string{"undecided 1 completed re_1/1 - -"}, Report{Records: 1, Ignored: 1, Undecided: 1}},
		"the first of two entries is of another clock": {func(w *world) {
			rec, two := completed(1, noon, "1"), entry(1, noon, "1")
			rec.CreatedAt, rec.Attempt, two.Ref = from.Add(-25*time.Hour+time.Minute), 2, "re_1b"
			w.put(rec)
			w.entries = []Entry{entry(1, rec.CreatedAt.Add(-2*time.Minute), "1"), two}
		}, []string{"undecided 1 completed re_1/1 re_1b/1 -"},
			Report{Entries: 1, Records: 1, Ignored: 1, Compared: 1, Undecided: 1}},
		"an attempt that began on the day before": {func(w *world) {
			rec := completed(1, from.Add(time.Minute), "1")
			rec.CreatedAt = from.Add(-24 * time.Hour)
			w.put(rec)
		}, []string{"missing_there 1 completed re_1/1 - -"}, Report{Records: 1, MissingThere: 1}},
		"written while it is scanned": {func(w *world) {
			one, other := completed(1, noon, "1"), completed(2, noon, "2")
			other.Ref = one.Ref
			w.put(one)
			w.put(other)
			w.scans = &changing{w.store}
			w.entries = []Entry{entry(1, noon, "1"), entry(2, noon, "2")}
		}, []string{"doubled 2 completed re_1/? - - 1"}, Report{Entries: 2, Records: 2, Compared: 2, Doubled: 1}},
		"without results": {func(w *world) {
			rec := completed(1, noon, "1")
			rec.Omitted = true
			other := completed(2, noon, "1")
			other.Omitted = true
			w.put(rec)
			w.put(other)
			w.entries = []Entry{entry(1, noon, "2")}
		}, []string{"missing_there 2 completed re_2/? - -", "unread 1 completed re_1/? re_1/2 - why: it has no result"},
			Report{Entries: 1, Records: 2, MissingThere: 1, Unread: 1}},
		"results that cannot be read": {func(w *world) {
			w.opts.Expect = func(context.Context, Record) (Expected, error) { return Expected{}, protocol.ErrRecordUnreadable }
			w.put(completed(1, noon, "1"))
			w.in(protocol.Failed, 2, noon, func(r *protocol.Record) { r.Failure = &protocol.Failure{Message: "no"} })
			w.entries = []Entry{entry(1, noon, "999"), entry(2, noon, "1")}
		}, []string{"missing_here 2 failed ?/? re_2/1 -", "unread 1 completed re_1/? re_1/999 - why"},
			Report{Entries: 2, Records: 2, MissingHere: 1, Unread: 1}},
		"records that cannot be read": {func(w *world) {
			w.scans = &unreadable{w.store}
			w.put(completed(1, noon, "1"))
			w.put(completed(2, noon, "1"))
			w.entries = []Entry{entry(1, noon, "1")}
		}, []string{"open 2 unreadable ?/? - -", "unread 1 unreadable ?/? re_1/1 - why"},
			Report{Entries: 1, Records: 2, Open: 1, Unread: 1}},
		"others' records": {func(w *world) {
			for _, other := range []string{"acme#charge#1", "acme#refund#1#shadow", "#refund#"} {
				rec := completed(1, noon, "1")
				rec.ID, rec.Ref = other, ""
				w.put(rec)
			}
			of := completed(1, noon, "1") // of a service without tenants
			of.ID = "#refund#1"
			w.put(of)
			w.entries = []Entry{byRef(entry(1, noon, "1"))}
		}, nil, Report{Entries: 1, Records: 1, Compared: 1}},
		"another token": {func(w *world) {
			w.opts.Token = func(rec *protocol.Record) string { return protocol.Token(rec.ID, "charge") }
			w.put(completed(1, noon, "1"))
			e := entry(1, noon, "1")
			e.Token = protocol.Token(id(1), "charge")
			w.entries = []Entry{e}
		}, nil, Report{Entries: 1, Records: 1, Compared: 1}},
		"no text is UTF-8": {func(w *world) {
			w.memory = 1
			rec := completed(1, noon, "1")
			rec.Ref = "a\xff\xfeb"
			w.put(rec)
			e := entry(1, noon, "1")
			e.Token, e.Ref = "", rec.Ref
			w.entries = []Entry{e}
		}, nil, Report{Entries: 1, Records: 1, Compared: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.set(w)
			report, got := w.compare(from)
			require.Equal(t, tc.want, got)
			tc.sums.Operation, tc.sums.From, tc.sums.To = "refund", from, to
			require.Equal(t, tc.sums, report)
		})
	}
}

// A pair that is on different days of the two sides matches on both, and each finding is of one day.
func TestMidnight(t *testing.T) {
	before, after := from.Add(-time.Second), from.Add(time.Second)
	w := newWorld(t)
	w.now = now.AddDate(0, 0, 2)
	w.put(completed("a", after, "1"))
	w.put(completed("b", before, "1"))
	w.put(completed("c", after, "1"))
	w.put(completed("d", before, "1"))
	w.put(completed("e", after, "1"))
	w.in(protocol.Unknown, "u", from.Add(-10*time.Minute))
	second := entry("e", after, "1")
	second.Ref = "re_e2"
	w.entries = []Entry{entry("a", before, "1"), entry("b", after, "1"), entry("c", before, "2"),
		entry("x", before, "9"), entry("y", after, "9"), entry("e", before, "1"), second,
		entry("z", from.Add(-Margin), "9"), entry("z2", from.Add(-Margin-1), "9")}
	days := map[time.Time][]string{}
	for _, day := range []time.Time{from.AddDate(0, 0, -1), from, to} {
		report, got := w.compare(day)
		days[day] = got
		require.Equal(t, map[time.Time]int{from.AddDate(0, 0, -1): 3, from: 1}[day], report.Compared, day)
	}
	require.Equal(t, map[time.Time][]string{
		from.AddDate(0, 0, -1): {"different c completed re_c/1 re_c/2 -", "missing_here - - - re_x/9 -",
			"missing_here - - - re_z/9 -", "missing_here - - - re_z2/9 -", "missing_there d completed re_d/1 - -",
			"open u unknown ?/? - -"},
		from: {"doubled e completed re_e/1 re_e2/1 re_e/1", "missing_here - - - re_y/9 -"},
		to:   nil,
	}, days)
}

// What an attempt records that ran when its day was compared is compared when the day is compared again.
func TestAnAttemptThatRanIsComparedAgain(t *testing.T) {
	began := to.Add(-10 * time.Minute)
	w := newWorld(t)
	w.in(protocol.InProgress, "runs", began, func(r *protocol.Record) { r.LeaseUntil = now.Add(time.Second) })
	w.entries = []Entry{entry("runs", began, "120 EUR")}
	_, got := w.compare(from)
	require.Equal(t, []string{"open runs in_progress ?/? re_runs/120 EUR -"}, got)

	w.store = memstore.New()
	w.scans, w.now = w.store, now.AddDate(0, 0, 1)
	rec := completed("runs", now.Add(time.Minute), "100 EUR")
	rec.CreatedAt = began
	w.put(rec)
	_, got = w.compare(to)
	require.Empty(t, got)
	_, got = w.compare(from)
	require.Equal(t, []string{"different runs completed re_runs/100 EUR re_runs/120 EUR -"}, got)
}

// What a takeover does again is found on its day, whatever day the first effect was on.
func TestAnEffectIsDoubledAcrossMidnight(t *testing.T) {
	for _, c := range []struct{ first, second time.Duration }{
		{-4 * time.Hour, 90 * time.Minute}, // 20:00, and 1:30
		{-4 * time.Hour, 23 * time.Hour},
		{-61 * time.Minute, time.Minute}, // not in the margin, and in it
		{-59 * time.Minute, time.Minute},
	} {
		w := newWorld(t)
		rec := completed(1, from.Add(c.second), "1")
		rec.CreatedAt, rec.Attempt = from.Add(c.first), 2 // a takeover keeps the time
		w.put(rec)
		w.put(completed(2, noon, "1"))
		two := entry(1, from.Add(c.second), "1")
		two.Ref = "re_1b"
		w.entries = []Entry{entry(1, from.Add(c.first), "1"), two, // and without a record
			entry(3, from.Add(c.first), "1"), entry(3, from.Add(c.second), "1"), entry(2, noon, "1")}
		report, got := w.compare(from)
		require.Equal(t, []string{"doubled - - - re_3/1 re_3/1", "doubled 1 completed re_1/1 re_1b/1 re_1/1"}, got)
		require.Equal(t, 1, report.Compared)
		_, got = w.compare(from.AddDate(0, 0, -1))
		require.Equal(t, []string{"missing_here - - - re_3/1 -"}, got)
	}
}

// The provider is asked for the day with its margins and the day before. Nothing of the day before counts, and what
// it gives beyond them is ignored.
func TestTheProviderIsAskedForTheDayAndTheDayBefore(t *testing.T) {
	w := newWorld(t)
	w.put(completed(1, noon, "declined"))
	w.opts.Entries = func(_ context.Context, since, until time.Time) iter.Seq2[Entry, error] {
		require.Equal(t, from.Add(-25*time.Hour), since)
		require.Equal(t, to.Add(time.Hour), until)
		return func(yield func(Entry, error) bool) {
			before := from.Add(-Margin)
			for _, at := range []time.Time{since.Add(-1), since, before.Add(-1), before, until.Add(-1), until} {
				require.True(t, yield(entry(at.Unix(), at, "1"), nil))
			}
		}
	}
	report, got := w.compare(from)
	require.Empty(t, got)
	require.Equal(t, 2, report.Entries)
	require.Equal(t, 2, report.Ignored)
}

// pages is a provider of pages. One fails.
func pages(entries []Entry, size int, fails func(page int) error) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		n := 0
		for page := range slices.Chunk(entries, size) {
			if err := fails(n); err != nil {
				yield(Entry{}, err)
				return
			}
			for _, e := range page {
				if !yield(e, nil) {
					return
				}
			}
			n++
		}
	}
}

// scanning is a store whose scan has small pages, and may fail.
type scanning struct {
	Store
	limit int
	fail  func(page int) error
	pages int
	units float64
}

func (s *scanning) Scan(ctx context.Context, q protocol.ScanQuery) (protocol.ScanPage, error) {
	if s.fail != nil {
		if err := s.fail(s.pages); err != nil {
			return protocol.ScanPage{}, err
		}
	}
	s.pages++
	q.Limit = s.limit
	p, err := s.Store.Scan(ctx, q)
	p.Units = s.units
	return p, err
}

// changing is a store whose records are completed for the second time while they are scanned: with another amount
// than before, and from an attempt before that.
type changing struct{ Store }

func (s *changing) Scan(ctx context.Context, q protocol.ScanQuery) (protocol.ScanPage, error) {
	p, err := s.Store.Scan(ctx, q)
	for _, rec := range slices.Clone(p.Records) {
		before, runs := *rec, *rec
		before.UpdatedAt = rec.UpdatedAt.Add(-time.Millisecond)
		before.Body = protocol.Body{Data: []byte(`"0"`), Size: 3, Stored: 3}
		runs.State, runs.Body, runs.UpdatedAt = protocol.InProgress, protocol.Body{}, rec.UpdatedAt.Add(-time.Second)
		p.Records = append(p.Records, &before, &runs)
	}
	return p, err
}

// unreadable is a store whose records are all damaged.
type unreadable struct{ Store }

func (s *unreadable) Scan(ctx context.Context, q protocol.ScanQuery) (protocol.ScanPage, error) {
	p, err := s.Store.Scan(ctx, q)
	for _, rec := range p.Records {
		p.Unreadable = append(p.Unreadable, rec.ID)
	}
	p.Records = nil
	return p, err
}

// Half a ledger says nothing of what is missing: nothing is reported, and the next run reports all.
func TestHalfALedgerReportsNothing(t *testing.T) {
	errPage := errors.New("502 Bad Gateway")
	for name, fail := range map[string]func(w *world, entries []Entry, cancel func()) string{
		"a page of the provider": func(w *world, entries []Entry, _ func()) string {
			w.opts.Entries = func(context.Context, time.Time, time.Time) iter.Seq2[Entry, error] {
				return pages(entries, 7, func(page int) error {
					if page == 3 {
						return errPage
					}
					return nil
				})
			}
			return "the provider's entries cannot be read to the end, so that nothing is reported: 502 Bad Gateway"
		},
		"an iterator that ends with its context": func(w *world, entries []Entry, cancel func()) string {
			w.opts.Entries = func(context.Context, time.Time, time.Time) iter.Seq2[Entry, error] {
				return func(yield func(Entry, error) bool) {
					yield(entries[0], nil)
					cancel()
				}
			}
			return "the provider's entries cannot be read to the end, so that nothing is reported: context canceled"
		},
		"a page of the table": func(w *world, entries []Entry, _ func()) string {
			w.scans = &scanning{Store: w.store, limit: 7, fail: func(page int) error {
				if page == 3 {
					return errPage
				}
				return nil
			}}
			return "the records cannot be read to the end, so that nothing is reported: 502 Bad Gateway"
		},
		"the end of the time": func(w *world, entries []Entry, cancel func()) string {
			w.scans = &scanning{Store: w.store, limit: 7, units: 1e9, fail: func(int) error { cancel(); return nil }}
			return "the records cannot be read to the end, so that nothing is reported: "
		},
		"an entry without a name": func(w *world, entries []Entry, _ func()) string {
			w.entries = append(w.entries, Entry{At: noon, Value: "1"})
			return "has neither Token nor Ref"
		},
		"an entry without a time": func(w *world, entries []Entry, _ func()) string {
			w.entries = append(w.entries, Entry{Ref: "re_1", Value: "1"})
			return `entry "re_1" has no time`
		},
		"an entry of megabytes": func(w *world, entries []Entry, _ func()) string {
			w.entries = append(w.entries, Entry{Ref: "re_1", Value: strings.Repeat("1", 5<<20), At: noon})
			return `entry "re_1" has a text of 5242880 bytes`
		},
		"a value of megabytes": func(w *world, entries []Entry, _ func()) string {
			w.opts.Expect = func(context.Context, Record) (Expected, error) {
				return Expected{Effect: true, Value: strings.Repeat("1", 5<<20)}, nil
			}
			return `has or expects a text of 5242880 bytes`
		},
		"a function of the caller's": func(w *world, entries []Entry, _ func()) string {
			w.opts.Expect = func(context.Context, Record) (Expected, error) { return Expected{}, errPage }
			return `Options.Expect of record "acme#refund#0": 502 Bad Gateway`
		},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			for n := range 40 {
				w.put(completed(n, noon, "1"))
				w.entries = append(w.entries, entry(n, noon, "1"))
			}
			w.entries = w.entries[5:] // missing there
			whole := *w
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			says := fail(w, w.entries, cancel)
			report, err := w.ledger().Compare(ctx, from, to, func(f Finding) error {
				require.Fail(t, "a finding of half a ledger", "%v", f)
				return nil
			})
			require.ErrorContains(t, err, says)
			require.True(t, report.Incomplete)
			require.Empty(t, maps.Collect(report.Counts()))
			report, got := whole.compare(from)
			require.Len(t, got, 5)
			require.Equal(t, map[string]int{
				schema.MetricLedgerDifferences: 5, schema.MetricLedgerMissingThere: 5, schema.MetricLedgerMissingHere: 0,
				schema.MetricLedgerDifferent: 0, schema.MetricLedgerDoubled: 0, schema.MetricLedgerUnread: 0,
				schema.MetricLedgerCompared: 35,
			}, maps.Collect(report.Counts()))
		})
	}
}

// Where findings cannot be written, the report is not complete.
func TestAReportThatCannotBeWritten(t *testing.T) {
	for n := range 2 {
		w := newWorld(t)
		w.put(completed(1, noon, "1"))
		report, err := w.ledger().Compare(t.Context(), from, to, func(Finding) error {
			if n--; n < 0 {
				return errors.New("no space left on device")
			}
			return nil
		})
		require.ErrorContains(t, err, "the findings cannot be passed on: no space left on device")
		require.True(t, report.Incomplete)
	}
}

// What has been deleted cannot be compared. A comparison that would take it for missing fails.
func TestRecordsThatMayHaveBeenDeleted(t *testing.T) {
	for name, tc := range map[string]struct {
		set  func(w *world)
		says string
	}{
		"a day": {func(w *world) {
			rec := completed(1, noon, "1")
			rec.ExpiresAt = noon.Add(24 * time.Hour)
			w.put(rec)
		}, "are kept for 24h0m0s, and those from 2026-02-28 23:00:00 +0000 UTC may have been deleted"},
		"in the margin before the day": {func(w *world) {
			rec := completed(1, noon, "1")
			rec.ExpiresAt = noon.Add(29*time.Hour - time.Second)
			w.put(rec)
		}, "are kept for 28h59m59s"},
		"later records have been kept as long": {func(w *world) {
			rec := completed(1, to.Add(2*time.Hour), "1")
			rec.ExpiresAt = to.Add(12 * time.Hour)
			w.put(rec)
		}, "are kept for 10h0m0s"},
		"of another day": {func(w *world) {
			rec := completed(1, from.Add(-Margin-1), "declined")
			rec.ExpiresAt = from // and not deleted yet
			w.put(rec)
		}, ""},
		"long enough": {func(w *world) {
			rec := completed(1, noon, "declined")
			rec.ExpiresAt = noon.Add(29 * time.Hour)
			w.put(rec)
		}, ""},
		"for ever": {func(w *world) {
			rec := completed(1, noon, "declined")
			rec.ExpiresAt = time.Time{}
			w.put(rec)
		}, ""},
		"none of the operation": {func(w *world) { w.opts.Operation = "refunds" },
			`the provider has 1 entries, and the table no record of operation "refunds"`},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			tc.set(w)
			w.entries = []Entry{entry(9, noon, "1")}
			report, err := w.ledger().Compare(t.Context(), from, to, func(Finding) error { return nil })
			if tc.says == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, tc.says)
			require.True(t, report.Incomplete)
			w.entries = nil
			report, err = w.ledger().Compare(t.Context(), from, to, func(Finding) error { return nil })
			if w.opts.Operation == "refunds" {
				require.NoError(t, err, "neither side has anything")
				return
			}
			require.ErrorContains(t, err, tc.says, "what was deleted may be missing there")
			require.True(t, report.Incomplete)
		})
	}
}

// Days follow each other where a clock skips midnight, which time.Date takes for an hour before.
func TestADayWithoutMidnight(t *testing.T) {
	santiago, err := time.LoadLocation("America/Santiago")
	require.NoError(t, err)
	for _, tc := range []struct {
		day    int
		length time.Duration
	}{{5, 24 * time.Hour}, {6, 23 * time.Hour}, {7, 24 * time.Hour}} {
		from, to := Day(2026, 9, tc.day, santiago)
		require.Equal(t, tc.day, from.Day())
		require.Equal(t, tc.length, to.Sub(from), from)
	}
}

func TestMistakes(t *testing.T) {
	w := newWorld(t)
	none := func(context.Context, time.Time, time.Time) iter.Seq2[Entry, error] { return nil }
	for says, make := range map[string]func() error{
		"store is nil":    func() error { _, err := New(nil, Options{Operation: "a", Entries: none}); return err },
		"Entries is nil":  func() error { _, err := New(w.store, Options{Operation: "a"}); return err },
		"Operation is em": func() error { _, err := New(w.store, Options{Entries: none}); return err },
		"Rate is -1": func() error {
			_, err := New(w.store, Options{Operation: "a", Entries: none, Rate: -1})
			return err
		},
		"Rate is NaN": func() error {
			_, err := New(w.store, Options{Operation: "a", Entries: none, Rate: math.NaN()})
			return err
		},
		"up to 2026-03-01 00:00:00": func() error { _, err := w.ledger().Compare(t.Context(), from, from, nil); return err },
		"entries may still come: compare it from 2026-03-02 01:00:00": func() error {
			w.now = to.Add(Margin - 1)
			_, err := w.ledger().Compare(t.Context(), from, to, nil)
			return err
		},
	} {
		err := make()
		var mistake *protocol.ConfigError
		require.ErrorAs(t, err, &mistake, says)
		require.ErrorContains(t, err, says)
	}
}

// naive is a comparison with maps, of entries that have tokens.
func naive(records map[string]*protocol.Record, entries []Entry) (all []string) {
	type name struct{ token, ref string }
	by := map[name]string{}
	for id, rec := range records {
		if !rec.CreatedAt.Before(to.Add(time.Hour)) {
			continue
		}
		by[name{token: protocol.Token(id, "")}] = id
		if rec.Ref != "" {
			by[name{ref: rec.Ref}] = id
		}
	}
	of := map[string][]Entry{}
	unique := map[Entry]bool{}
	for _, e := range entries {
		if unique[e] || e.At.Before(from.Add(-25*time.Hour)) || !e.At.Before(to.Add(time.Hour)) {
			continue
		}
		unique[e] = e.Ref != ""
		n := name{token: e.Token}
		if e.Token == "" {
			n = name{ref: e.Ref}
		}
		owner := by[n]
		if owner == "" {
			owner = "none " + n.token + n.ref
		}
		of[owner] = append(of[owner], e)
	}
	during := func(at time.Time) bool { return !at.Before(from) && at.Before(to) }
	for owner, list := range of {
		slices.SortFunc(list, func(a, b Entry) int {
			left, _ := row{Entry: &a}.line()
			right, _ := row{Entry: &b}.line()
			return strings.Compare(left, right)
		})
		rec := records[owner]
		for i, e := range list {
			f := Finding{There: &e}
			if rec != nil {
				here := Entry{Ref: rec.Ref, Value: strings.Trim(string(rec.Body.Data), `"`)}
				f.Record, f.RecordState, f.Here = rec.ID, rec.State, &here
			}
			switch {
			case !during(e.At):
				continue
			case i > 0:
				f.Kind, f.First = Doubled, &list[i-1]
			case rec != nil && rec.State == protocol.Completed && rec.UpdatedAt.Before(from.Add(-time.Hour)):
				f.Kind = Doubled
			case rec == nil || rec.State != protocol.Completed:
				f.Kind = MissingHere
			case f.Here.Value != e.Value:
				f.Kind = Different
			case rec.CreatedAt.Before(from.Add(-24 * time.Hour)):
				f.Kind = Undecided
			default:
				continue
			}
			all = append(all, brief(f))
		}
	}
	for id, rec := range records {
		f := Finding{Record: id, RecordState: rec.State, Here: &Entry{Ref: rec.Ref,
			Value: strings.Trim(string(rec.Body.Data), `"`)}}
		switch {
		case len(of[id]) > 0, rec.State == protocol.Released, !during(rec.UpdatedAt):
			continue
		case rec.State == protocol.Completed && rec.CreatedAt.Before(from.Add(-24*time.Hour)):
			f.Kind = Undecided
		case rec.State == protocol.Completed:
			f.Kind = MissingThere
		default:
			f.Kind = Open
		}
		all = append(all, brief(f))
	}
	slices.Sort(all)
	return all
}

// With any records and entries of three days, in any order and with any memory, the sorts find what maps find.
func TestAnyLedgerIsComparedAsWithMaps(t *testing.T) {
	for seed := range uint64(300) {
		r := rand.New(rand.NewPCG(seed, 1))
		hours := func(n int) time.Duration { return time.Duration(r.IntN(n*3600)) * time.Second }
		w := newWorld(t)
		records := map[string]*protocol.Record{}
		for n := range r.IntN(60) {
			rec := completed(n, from.Add(hours(72)-24*time.Hour), fmt.Sprint(r.IntN(3)))
			switch r.IntN(8) {
			case 0:
				rec.State, rec.Body = protocol.Unknown, protocol.Body{}
			case 1:
				rec.State, rec.Body = protocol.Released, protocol.Body{}
			case 2:
				rec.Ref = ""
			}
			if r.IntN(2) == 0 {
				rec.CreatedAt = rec.UpdatedAt.Add(-hours(72))
			}
			records[rec.ID] = rec
			w.put(rec)
		}
		for range r.IntN(90) {
			n := r.IntN(70)
			e := entry(n, from.Add(hours(78)-27*time.Hour).Truncate(time.Hour), fmt.Sprint(r.IntN(3)))
			switch r.IntN(6) {
			case 0:
				e.Token = ""
			case 1:
				e.Ref = ""
			case 2:
				e.Ref += "b"
			}
			if e.Token+e.Ref != "" {
				w.entries = append(w.entries, e)
			}
		}
		if len(records) == 0 {
			w.entries = nil
		}
		want := naive(records, w.entries)
		for _, w.memory = range []int{1, 3000, memory} {
			r.Shuffle(len(w.entries), func(i, j int) { w.entries[i], w.entries[j] = w.entries[j], w.entries[i] })
			_, got := w.compare(from)
			require.Equal(t, want, got, "seed %d, memory %d", seed, w.memory)
		}
	}
}

// Of the records of earlier days few but those with an entry are asked what they expect.
func TestEarlierDaysCostLittle(t *testing.T) {
	w := newWorld(t)
	asked := 0
	w.opts.Expect = func(context.Context, Record) (Expected, error) { asked++; return Expected{Effect: true}, nil }
	for n := range 1000 {
		rec := completed(n, noon.AddDate(0, 0, -1), "1")
		rec.Ref = "" // as that of entries with a token alone
		w.put(rec)
		its, e := entry(n, rec.UpdatedAt, "1"), entry(n+990, noon, "1")
		its.Ref, e.Ref = "", ""
		w.entries = append(w.entries, its, e)
	}
	w.memory = 16 << 10
	report, _ := w.compare(from)
	require.Equal(t, 10, report.Doubled)
	require.Equal(t, 990, report.MissingHere)
	require.Less(t, asked, 10+40, "1% of the others")
}

// No comparison leaves a file, neither when it ends nor while it runs, and so neither when its process is killed.
func TestFilesHaveNoNames(t *testing.T) {
	if runtime.GOOS == "windows" {
		t.Skip("it cannot remove a file that is open")
	}
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	w := newWorld(t)
	w.memory = 1
	for n := range 100 {
		w.put(completed(n, noon, "1"))
	}
	seen := 0
	_, err := w.ledger().Compare(t.Context(), from, to, func(Finding) error {
		seen++
		open, err := filepath.Glob("/proc/self/fd/*")
		require.NoError(t, err)
		held := 0
		for _, fd := range open {
			if target, _ := os.Readlink(fd); strings.HasPrefix(target, folder) {
				held++
			}
		}
		require.True(t, runtime.GOOS != "linux" || held == 2, "both sorts have a file")
		left, err := os.ReadDir(folder)
		require.NoError(t, err)
		require.Empty(t, left)
		return nil
	})
	require.NoError(t, err)
	require.Equal(t, 101, seen)
	w.fails = errors.New("502")
	_, err = w.ledger().Compare(t.Context(), from, to, nil)
	require.Error(t, err)
	left, err := os.ReadDir(folder)
	require.NoError(t, err)
	require.Empty(t, left)
	t.Setenv("TMPDIR", filepath.Join(folder, "none"))
	w.fails = nil
	_, err = w.ledger().Compare(t.Context(), from, to, nil)
	require.ErrorContains(t, err, "a temporary file cannot be written in "+folder)
}

// A day of 100,000 operations, in any order; 30 differ. It takes no more memory than the two sorts have, which
// a fifth of them shows too.
func TestADayOfManyOperations(t *testing.T) {
	const mib = 1 << 20
	all := 20_000
	if os.Getenv("IDEM_LONG") == "1" {
		all = 100_000
	}
	w := newWorld(t)
	w.memory = 2 * mib
	var want []string
	for n := range all {
		at := from.Add(time.Second + time.Duration(n)*863*time.Millisecond)
		amount := fmt.Sprint(100+n, " EUR")
		rec := completed(n, at, amount)
		e := entry(n, at.Add(-300*time.Millisecond), amount)
		switch n % 10_000 {
		case 17: // the provider has it
			want = append(want, fmt.Sprintf("missing_here - - - re_%d/%s -", n, amount))
			w.entries = append(w.entries, e)
			continue
		case 18: // we have it
			want = append(want, fmt.Sprintf("missing_there %d completed re_%d/%s - -", n, n, amount))
			w.put(rec)
			continue
		case 19:
			e.Value = "1 EUR"
			want = append(want, fmt.Sprintf("different %d completed re_%d/%s re_%d/1 EUR -", n, n, amount, n))
		}
		w.put(rec)
		w.entries = append(w.entries, e)
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(w.entries), func(i, j int) {
		w.entries[i], w.entries[j] = w.entries[j], w.entries[i]
	})
	w.scans = &scanning{Store: w.store, limit: 50_000}
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	var got []string
	before, most := inUse(), uint64(0)
	report, err := w.ledger().Compare(t.Context(), from, to, func(f Finding) error {
		if f.Kind != Complete {
			got = append(got, brief(f))
		}
		if len(got)%6 == 1 {
			most = max(most, inUse())
		}
		return nil
	})
	require.NoError(t, err)
	slices.Sort(want)
	slices.Sort(got)
	require.Equal(t, want, got)
	require.Len(t, got, all/10_000*3)
	require.Equal(t, all-all/10_000*2, report.Compared)
	require.Less(t, int64(most)-int64(before), int64(3*2*mib), "two sorts of 2 MiB, and what they read ahead")
	t.Logf("beyond the table and the provider's list: %d KiB", (int64(most)-int64(before))/1024)
}

func TestLinesAreJSON(t *testing.T) {
	w := newWorld(t)
	w.put(completed(1, noon, "1 <EUR>"))
	w.entries = []Entry{entry(2, noon, "2")}
	var out bytes.Buffer
	_, err := w.ledger().Compare(t.Context(), from, to, Lines(&out))
	require.NoError(t, err)
	require.Equal(t, `{"kind":"missing_here","there":{"token":"`+protocol.Token(id(2), "")+
		`","ref":"re_2","value":"2","at":"2026-03-01T12:00:00Z"}}
{"kind":"missing_there","record":"acme#refund#1","record_state":"completed","here":{"token":"`+
		protocol.Token(id(1), "")+`","ref":"re_1","value":"1 <EUR>","at":"2026-03-01T12:00:00Z"}}
{"kind":"complete","report":{"operation":"refund","from":"2026-03-01T00:00:00Z","to":"2026-03-02T00:00:00Z",`+
		`"entries":1,"records":1,"compared":0,"missing_here":1,"missing_there":1,"different":0,"doubled":0,`+
		`"unread":0,"open":0,"undecided":0}}
`, out.String())
}

// A scan leaves the functions of the table what they need.
func TestTheScanPauses(t *testing.T) {
	w := newWorld(t)
	for n := range 3 {
		w.put(completed(n, noon, "declined"))
	}
	w.scans = &scanning{Store: w.store, limit: 1, units: 100}
	w.opts.Rate = 2000
	begun := time.Now()
	report, _ := w.compare(from)
	require.GreaterOrEqual(t, time.Since(begun), 100*time.Millisecond, "two pauses, of 100 units at 2,000 a second")
	require.Equal(t, 300.0, report.Units)
}
