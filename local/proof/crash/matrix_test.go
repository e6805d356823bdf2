package crash

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
)

var update = flag.Bool("update", false, "write the golden matrix and the README's table again")

// setup is where a cell plays.
type setup struct {
	// order is the caller's value.
	order string
	// start gives a new process its store; it may put something of its own around it.
	store func(*process) idem.Store
	put   func(context.Context, string) error
	rows  func(context.Context) ([]string, error)
	// pass lets the lease lapse.
	pass func()
	opts idem.Options
	pad  string
}

// result is what became of a cell.
type result struct {
	state idem.State
	// omitted says that the result is lost.
	omitted bool
	runs    map[string]int
	calls   [][]string // of each delivery
}

const most = 8 // deliveries

// play delivers the request until it has ended, the first deliveries with a fault
// each, and holds the end to what must be true of every cell.
func play(t *testing.T, s *setup, sc scenario, repeat idem.Repeat, faults ...fault) result {
	t.Helper()
	w := &business{runs: map[string]int{}, recorded: map[string]bool{}, put: s.put, pad: s.pad}
	key := idem.Operation{Name: "order", Repeat: repeat}.Key("acme", s.order)
	var p *process
	var out result
	var answers []string
	died := false
	deliver := func(f fault) (string, error) {
		p = s.alive(t, p, w)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		p.deliver(f, cancel)
		v, err := idem.Do(ctx, p.engine, key, "an order",
			func(ctx context.Context, _ string) (string, error) { return sc.handler(w, ctx) })
		p.mu.Lock()
		out.calls = append(out.calls, p.calls)
		p.mu.Unlock()
		if p.isDead() {
			died = true
			return "", errDead
		}
		if err == nil {
			answers = append(answers, v)
		}
		s.pass()
		return v, err
	}
	look := s.store(&process{w: w})
	record := func() *idem.Record {
		rec, err := look.Get(t.Context(), key.ID())
		require.NoError(t, err)
		noticed(t, rec, w.counts()["charge"] > 0)
		return rec
	}
	var rec *idem.Record
	for n := range most {
		f := fault{}
		if n < len(faults) {
			f = faults[n]
		}
		_, _ = deliver(f)
		if p.isDead() {
			s.pass()
		}
		if rec = record(); rec != nil && (rec.State == idem.Completed || rec.State == idem.Failed ||
			rec.State == idem.Unknown) {
			break
		}
	}
	require.NotNil(t, rec)
	v, err := deliver(fault{})
	require.NoError(t, p.engine.Flush(t.Context()))
	out.state, out.runs = record().State, w.counts()
	require.Equal(t, rec.State, out.state, "it stays as it ended")

	rows, rErr := s.rows(t.Context())
	require.NoError(t, rErr)
	require.Empty(t, w.wrong)
	require.LessOrEqual(t, out.runs["charge"], 1, "the at-most-once step")
	if sc.refers && len(out.runs) > 0 {
		require.Equal(t, "payment-1", record().Ref, "the provider can be asked about it by name")
	}
	const whole = "reserve, charge, ship"
	switch out.state {
	case idem.Completed:
		require.Equal(t, []string{whole}, rows, "the transaction took effect once")
		if out.omitted = record().Omitted; out.omitted {
			require.ErrorIs(t, err, idem.ErrOutcomeUnavailable)
			require.True(t, sc.scant && died, "the result is lost with the process that had it")
			return out
		}
		require.NoError(t, err)
		require.Equal(t, whole, v)
	case idem.Failed:
		require.EqualError(t, err, "no carrier delivers there")
		require.Empty(t, rows)
		require.Positive(t, out.runs["undo reserve"])
		require.Positive(t, out.runs["undo charge"])
	default:
		require.Equal(t, idem.Unknown, out.state, "after %v", out.calls)
		require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
		require.Empty(t, rows)
	}
	for _, a := range answers {
		require.Equal(t, whole, a)
		require.Equal(t, idem.Completed, out.state, "what was answered is recorded")
	}
	return out
}

// noticed requires that a sweep finds what was charged, or may have been, and has no
// outcome, and nothing that has one.
func noticed(t *testing.T, rec *idem.Record, charged bool) {
	t.Helper()
	if rec == nil {
		require.False(t, charged)
		return
	}
	ended := rec.State == idem.Completed || rec.State == idem.Failed
	require.True(t, ended || !rec.Due.IsZero() || !charged && !rec.Interrupted(), "in silence: %+v", rec)
	require.True(t, !ended || rec.Due.IsZero(), "in the index for nothing: %+v", rec)
}

func inMemory(sc scenario) *setup {
	m := &memory{Store: memstore.New()}
	var store idem.Store = m
	if sc.scant {
		store = scant{m}
	}
	return &setup{
		order: "order-1", store: func(*process) idem.Store { return store }, put: putInMemory, rows: m.stored,
		pass: func() { time.Sleep(time.Minute) },
	}
}

// mustPark is the rule: where no process can know, and nowhere else.
func mustPark(sc scenario, repeat idem.Repeat, label string, k kind) bool {
	switch {
	case label == "claim":
		return repeat == idem.NotRepeatable && k == killAfter
	case label == "commit" && sc.refused:
		// Refused, it looks the same as one that has not been sent.
		return repeat == idem.NotRepeatable
	case label == "commit" || label == "fail":
		// What is not sent, or taken back, has not happened; what else the handler did
		// before is known only to a repeatable operation's steps.
		return repeat == idem.NotRepeatable && (k == killBefore || label == "commit" && k == loseRequest)
	case label == "let a part expire" || label == "add the result":
		return false // the outcome is recorded
	case repeat == idem.NotRepeatable:
		return true
	case label == "begin charge":
		return k == killAfter && !sc.asks
	case label == "record charge":
		return (k == killBefore || k == loseRequest) && !sc.asks
	}
	return false
}

// repeats are the declarations of the scenario: only a repeatable operation can ask.
func (sc scenario) repeats() []idem.Repeat {
	if sc.asks {
		return []idem.Repeat{idem.Repeatable}
	}
	return []idem.Repeat{idem.Repeatable, idem.NotRepeatable}
}

// TestMatrix plays every cell in process.
func TestMatrix(t *testing.T) {
	var golden strings.Builder
	var tables []table
	for _, sc := range scenarios {
		for _, repeat := range sc.repeats() {
			tb := table{sc: sc, repeat: repeat}
			var calls []string
			synctest.Test(t, func(t *testing.T) {
				whole := play(t, inMemory(sc), sc, repeat)
				require.Equal(t, sc.endOf(repeat), whole.state)
				calls = whole.calls[0]
			})
			for n, label := range calls {
				r := line{label: label}
				for _, k := range kinds {
					name := fmt.Sprintf("%s/%s/%s/%s", sc.name, repeat, label, k)
					inBubble(t, name, func(t *testing.T) {
						got := play(t, inMemory(sc), sc, repeat, fault{n + 1, k})
						want := sc.endOf(repeat)
						if mustPark(sc, repeat, label, k) {
							want = idem.Unknown
						}
						require.Equal(t, want, got.state)
						r.cells = append(r.cells, cellOf(got))
					})
				}
				tb.lines = append(tb.lines, r)
			}
			tables = append(tables, tb)
			golden.WriteString(tb.text(kinds))
		}
	}
	compare(t, "testdata/matrix.golden", golden.String())
	readme(t, tables)
}

// pairs plays every pair of faults, the second one anywhere on the way back from the first, and counts
// them. play returns the calls of each delivery.
func pairs(play func(faults ...fault) [][]string) (cells int) {
	for n := range play()[0] {
		for _, k := range kinds {
			first := fault{n + 1, k}
			for m := range play(first)[1] {
				for _, k := range kinds {
					play(first, fault{m + 1, k})
					cells++
				}
			}
		}
	}
	return cells
}

// TestTwoCrashes plays every pair of faults, the second one anywhere on the way back from the first.
func TestTwoCrashes(t *testing.T) {
	cells := 0
	for _, sc := range scenarios {
		for _, repeat := range sc.repeats() {
			synctest.Test(t, func(t *testing.T) {
				cells += pairs(func(faults ...fault) [][]string {
					got := play(t, inMemory(sc), sc, repeat, faults...)
					require.Contains(t, []idem.State{sc.end, idem.Unknown}, got.state)
					return got.calls
				})
			})
		}
	}
	require.Greater(t, cells, 1000)
}

// table is a scenario's part of the matrix.
type table struct {
	sc     scenario
	repeat idem.Repeat
	lines  []line
}

type line struct {
	label string
	cells []string
}

// cellOf tells the end, and which effects were not had just once.
func cellOf(s result) string {
	var odd, had []string
	for _, name := range []string{"reserve", "charge", "ship", "undo charge", "undo reserve"} {
		n := s.runs[name]
		if n > 0 {
			had = append(had, name)
		}
		if n > 1 {
			odd = append(odd, fmt.Sprintf("%s %d times", name, n))
		}
	}
	text := string(s.state)
	if s.state == idem.Unknown && len(had) > 0 {
		text += " after " + strings.Join(had, ", ")
	}
	if s.omitted {
		text += " without its result"
	}
	if len(odd) > 0 {
		text += "; " + strings.Join(odd, ", ")
	}
	return text
}

func (tb table) text(kinds []kind) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, %s\n", tb.sc.name, tb.repeat)
	for n, l := range tb.lines {
		fmt.Fprintf(&b, "  %d %s\n", n+1, l.label)
		for i, k := range kinds {
			if i < len(l.cells) {
				fmt.Fprintf(&b, "    %-12s  %s\n", k, l.cells[i])
			}
		}
	}
	return b.String()
}

func compare(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
	}
	want, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		err = fmt.Errorf("%w: run the test with -update", err)
	}
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run the test with -update and read the diff")
}

// readme holds the README's crash table to the matrix.
func readme(t *testing.T, tables []table) {
	t.Helper()
	const file, begin, end = "../../../idem/README.md", "<!-- crash table -->\n", "<!-- end of crash table -->"
	raw, err := os.ReadFile(file)
	require.NoError(t, err)
	before, rest, ok := strings.Cut(string(raw), begin)
	require.True(t, ok, "the README has no %q", begin)
	_, after, ok := strings.Cut(rest, end)
	require.True(t, ok, "the README has no %q", end)
	got := before + begin + crashTable(tables) + end + after
	if *update && got != string(raw) {
		require.NoError(t, os.WriteFile(file, []byte(got), 0o600))
		return
	}
	require.Equal(t, string(raw), got, "run the test with -update and read the diff")
}

// crashTable is the matrix for readers: the first and the last scenario, both
// declarations side by side, where the process dies.
func crashTable(tables []table) string {
	var b strings.Builder
	for _, name := range []string{"order", "order that is declined"} {
		at := slices.IndexFunc(tables, func(tb table) bool { return tb.sc.name == name && tb.repeat == idem.Repeatable })
		yes, no := tables[at], tables[at+1]
		fmt.Fprintf(&b, "\n**%s**\n\n", strings.ToUpper(name[:1])+name[1:])
		b.WriteString("| the process | `Repeatable`: a retry ends as | `NotRepeatable`: a retry ends as |\n|---|---|---|\n")
		for i, l := range yes.lines {
			for j, k := range []kind{killBefore, killAfter} {
				if len(l.cells) > j && len(no.lines[i].cells) > j {
					fmt.Fprintf(&b, "| %s *%s* | %s | %s |\n", k, l.label, l.cells[j], no.lines[i].cells[j])
				}
			}
		}
	}
	b.WriteString("\n")
	return b.String()
}
