package sim

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Explore plays a scenario without a fault, then with each fault of a call of its first two deliveries, then with pairs
// of faults, so many times at most.
func Explore(most int, play func(Plan) (*World, error)) (*Report, error) {
	r := newReport()
	run := func(plan Plan) (*World, error) {
		w, err := play(plan)
		if err == nil {
			err = w.mistake
		}
		if err == nil && len(plan) == 0 {
			r.expected, r.once = w.stands(), w.once
			err = w.calm(r.expected)
		}
		if err == nil {
			r.add(w, len(plan) < 2)
		}
		return w, err
	}
	calm, err := run(nil)
	if err != nil {
		return nil, err
	}
	var pairs []Plan
	for _, at := range calm.points[:calm.first] {
		for _, fate := range at.fates() {
			w, err := run(Plan{at: fate})
			if err != nil {
				return nil, err
			}
			for _, later := range w.points[1+slices.Index(w.points, at):] {
				for _, second := range later.fates() {
					if w.replays[later] {
						continue // it changes nothing
					}
					pairs = append(pairs, Plan{at: fate, later: second})
				}
			}
		}
	}
	r.all = r.runs + len(pairs)
	// If there are too many, some are taken: the same ones each time.
	rand.New(rand.NewPCG(1, 1)).Shuffle(len(pairs), func(i, j int) { pairs[i], pairs[j] = pairs[j], pairs[i] })
	for _, plan := range pairs[:max(0, min(len(pairs), most-r.runs))] {
		if _, err := run(plan); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Wander plays a scenario with each seed. The first runs have one fault, the last ones seven.
func Wander(seeds int, play func(func(*World)) (*World, error)) (*Report, error) {
	return byChance(seeds, play, func(w *World, seed int) { w.Wander(uint64(seed), 1+7*seed/seeds) })
}

// Crowd plays a scenario with each seed, with callers at the same time.
func Crowd(seeds int, play func(func(*World)) (*World, error)) (*Report, error) {
	return byChance(seeds, play, func(w *World, seed int) { w.Crowd(uint64(seed)) })
}

func byChance(seeds int, play func(func(*World)) (*World, error), begin func(*World, int)) (*Report, error) {
	r := newReport()
	calm, err := play(func(*World) {})
	if err != nil {
		return nil, err
	}
	r.expected, r.once = calm.stands(), calm.once
	for seed := range seeds {
		w, err := play(func(w *World) { begin(w, seed) })
		if err == nil {
			err = w.mistake
		}
		if err != nil {
			return nil, err
		}
		r.add(w, false)
	}
	return r, nil
}

// Report is what became of the runs of an exploration.
type Report struct {
	// Found has the shortest run of each finding, of those with the fewest faults.
	Found map[string][]string

	// Saw counts the fates that have come, and the states that records have ended in.
	Saw map[string]int

	faults   map[string]int // in the run of each finding
	expected map[string]int // how often each effect stands where nothing goes wrong
	once     map[string]int // and when each request has come once
	rows     []row
	runs     int
	all      int // runs that there are
}

// calm says why a scenario in which nothing went wrong cannot be explored.
func (w *World) calm(stands map[string]int) error {
	if w.rekeyed != "" && w.answers[0].Err == nil {
		return errors.New("where nothing goes wrong " + w.rekeyed)
	}
	if err := w.answers[len(w.answers)-1].Err; err != nil {
		return fmt.Errorf("where nothing goes wrong the last caller gets an error, and the scenario must be one that "+
			"succeeds: %w%s", err, w.astray())
	}
	for _, system := range slices.Sorted(maps.Keys(w.systems)) {
		if w.systems[system] {
			continue // its effects may be missing
		}
		of := func(name string) bool { return strings.HasPrefix(name, system+": ") }
		if !slices.ContainsFunc(slices.Collect(maps.Keys(w.effects)), of) {
			return fmt.Errorf("where nothing goes wrong %s has no effect: its fake must call Provider.Do, unless the scenario "+
				"makes it with World.Optional", system)
		}
	}
	if len(stands) == 0 {
		return errors.New("where nothing goes wrong there is no effect: give the handler a fake that calls a Provider")
	}
	return nil
}

// compareKeys notes that a delivery has claimed a new key of an operation, although there were records of it.
func (w *World) compareKeys(delivery int, before []*protocol.Record) {
	for _, rec := range w.Store.Records() {
		_, operation, _ := protocol.ParseRecordID(rec.ID)
		same := func(old *protocol.Record) bool { return old.ID == rec.ID }
		kin := func(old *protocol.Record) bool {
			_, of, _ := protocol.ParseRecordID(old.ID)
			return of == operation && of != ""
		}
		if w.rekeyed == "" && slices.ContainsFunc(before, kin) && !slices.ContainsFunc(before, same) {
			w.rekeyed = fmt.Sprintf("delivery %d has another key of %s than delivery 1: derive the key from what is the same "+
				"in each delivery of the request", delivery, operation)
		}
	}
}

// astray names the messages that have no worker, and the workers that nothing has come for.
func (w *World) astray() (says string) {
	sent := map[string]bool{}
	for _, u := range w.Store.Units() {
		if p, ok := u.(interface{ Messages() []outbox.Message }); ok {
			for _, m := range p.Messages() {
				sent[m.Destination] = true
			}
		}
	}
	changed := map[string]bool{}
	for _, rec := range w.Store.Records() {
		_, operation, _ := protocol.ParseRecordID(rec.ID)
		changed[operation] = changed[operation] || rec.Ticket != ""
	}
	for _, destination := range slices.Sorted(maps.Keys(sent)) {
		if w.workers[destination] == nil {
			says += fmt.Sprintf("; no World.Worker is there for the message to %q", destination)
		}
	}
	for _, destination := range slices.Sorted(maps.Keys(w.workers)) {
		if !sent[destination] {
			says += fmt.Sprintf("; the World.Worker of %q gets no message", destination)
		}
	}
	for _, operation := range slices.Sorted(maps.Keys(w.streamed)) {
		if !changed[operation] {
			says += fmt.Sprintf("; the World.StreamWorker of %q gets no change", operation)
		}
	}
	return says
}

func newReport() *Report {
	return &Report{Found: map[string][]string{}, Saw: map[string]int{}, faults: map[string]int{}}
}

func (r *Report) add(w *World, listed bool) {
	for fate, n := range w.fates {
		r.Saw[string(fate)] += n
	}
	for _, rec := range w.Store.Records() {
		r.Saw[string(rec.State)]++
	}
	if r.runs++; listed {
		r.rows = append(r.rows, w.row())
	}
	for _, found := range w.findings(r.expected, r.once) {
		shortest, few := r.Found[found], r.faults[found]
		if shortest == nil || w.fired < few || w.fired == few && len(w.lines) < len(shortest) {
			r.Found[found], r.faults[found] = w.lines, w.fired
		}
	}
}

// String is a table of the runs with one fault.
func (r *Report) String() string {
	lines := "fault\teffects\tfirst caller\tlast caller\trecord\n"
	for _, row := range r.rows {
		lines += fmt.Sprintf("%s\t%s\t%s\t%s\t%s\n", row.fault, row.effects, row.first, row.last, row.records)
	}
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	_, _ = table.Write([]byte(lines)) // to memory
	_ = table.Flush()
	fmt.Fprintf(&b, "%d runs of %d\n", r.runs, r.all)
	return b.String()
}

// row is a world in a line of a table.
type row struct{ fault, effects, first, last, records string }

func (w *World) row() (r row) {
	for _, at := range w.points {
		if fate := w.plan[at]; fate != Pass {
			r.fault = join(r.fault, fmt.Sprintf("%s %s", at, fate))
		}
	}
	stands := w.stands()
	for _, name := range slices.Sorted(maps.Keys(stands)) {
		r.effects = join(r.effects, name)
		if n := stands[name]; n > 1 {
			r.effects += fmt.Sprintf(" (%d times)", n)
		}
	}
	r.last = w.answers[len(w.answers)-1].Kind()
	for _, a := range w.answers {
		if a.Delivery == 1 {
			r.first = a.Kind()
		}
	}
	for _, rec := range w.Store.Records() {
		r.records = join(r.records, string(rec.State))
	}
	return r
}

func join(list, more string) string {
	if list == "" {
		return more
	}
	return list + ", " + more
}
