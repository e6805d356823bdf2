package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// keptLines bounds the memory of a stack that runs for days.
const keptLines = 100_000

// entry is one line of a log: it begins with the function's name and the process id in
// brackets.
type entry struct {
	at                   time.Time // if the line has none: that of its function's last line
	name, instance, text string
}

// book keeps the latest lines of the functions, and of the gateway and the poller that
// deliver to them. It is safe for concurrent use.
type book struct {
	mu      sync.Mutex
	entries []entry
	dropped int           // how many lines came before
	grown   chan struct{} // closed when there are more
	last    map[string]time.Time
}

func newBook() *book { return &book{grown: make(chan struct{}), last: map[string]time.Time{}} }

// page is the writer of one part of the stack, which writes a whole line each time.
type page struct {
	*book
	name string
}

func (p page) Write(line []byte) (int, error) {
	e := entry{name: p.name}
	e.instance, e.text, _ = strings.Cut(strings.TrimSuffix(string(line), "\n"), " ")
	var stamp struct{ Timestamp time.Time }
	_ = json.Unmarshal([]byte(e.text), &stamp) // not JSON: no time
	p.mu.Lock()
	defer p.mu.Unlock()
	if e.at = stamp.Timestamp; e.at.IsZero() {
		e.at = p.last[p.name]
	}
	p.last[p.name] = e.at
	p.entries = append(p.entries, e)
	if more := len(p.entries) - keptLines; more > 0 {
		p.entries, p.dropped = p.entries[more:], p.dropped+more
	}
	close(p.grown)
	p.grown = make(chan struct{})
	return len(line), nil
}

// since returns the lines after the first n, the number of lines, and a channel that is
// closed when there are more.
func (b *book) since(n int) ([]entry, int, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.entries[max(n-b.dropped, 0):]), b.dropped + len(b.entries), b.grown
}

// Names in the book beside those of the functions: errors behind the HTTP API, between
// the queues and their functions, between the schedules and the sweeper or the relay, and between
// the table's stream and the relay.
const (
	logHTTP     = "http"
	logQueue    = "queue"
	logSchedule = "schedule"
	logStream   = "stream"
)

type logsTask struct {
	Function        string
	Instance, Lines int
	Follow          bool
}

func (t *logsTask) flags(fs *flag.FlagSet, _ *options) {
	fs.StringVar(&t.Function, "function", "", "of this one only: "+functionNames()+", or http for errors behind the HTTP API")
	fs.IntVar(&t.Instance, "instance", 0, "of the instance with this process id only")
	fs.IntVar(&t.Lines, "lines", 50, "how many of the last lines; 0 for all")
	fs.BoolVar(&t.Follow, "follow", false, "keep printing what comes, until Ctrl-C")
}

func (t *logsTask) check() error {
	names := append([]string{logHTTP, logQueue, logSchedule, logStream}, functions...)
	if t.Function != "" && !slices.Contains(names, t.Function) {
		return misuse("-function is %q; there are: %s", t.Function, strings.Join(names, ", "))
	}
	return nil
}

// run prints the last lines of all instances in the order of their times.
func (t *logsTask) run(ctx context.Context, s *stack, out io.Writer) error {
	entries, next, grown := s.logs.since(0)
	entries = slices.DeleteFunc(entries, t.ignores)
	slices.SortStableFunc(entries, func(a, b entry) int { return a.at.Compare(b.at) })
	if before := len(entries) - t.Lines; t.Lines > 0 && before > 0 {
		entries = entries[before:]
		fmt.Fprintf(out, "(%d before; -lines 0 shows all)\n", before)
	}
	for {
		for _, e := range entries {
			if t.ignores(e) {
				continue
			}
			if _, err := fmt.Fprintln(out, e.instance, plainLine(e.text)); err != nil {
				return err
			}
		}
		if !t.Follow {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-grown:
			entries, next, grown = s.logs.since(next)
		}
	}
}

func (t *logsTask) ignores(e entry) bool {
	return t.Function != "" && e.name != t.Function ||
		t.Instance != 0 && !strings.HasSuffix(e.instance, "["+strconv.Itoa(t.Instance)+"]")
}

// plainLine writes a structured line for people: time, level, message, the rest.
// Anything else stays as it is.
func plainLine(line string) string {
	var fields map[string]any
	dec := json.NewDecoder(strings.NewReader(line))
	dec.UseNumber()
	if dec.Decode(&fields) != nil || fields["message"] == nil {
		return line
	}
	if ns, ok := fields["elapsed"].(json.Number); ok {
		if n, err := ns.Int64(); err == nil {
			fields["elapsed"] = time.Duration(n)
		}
	}
	at := fmt.Sprint(fields["timestamp"])
	if t, err := time.Parse(time.RFC3339Nano, at); err == nil {
		at = t.Local().Format("15:04:05.000")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %-5v %v", at, fields["level"], fields["message"])
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if !slices.Contains([]string{"timestamp", "level", "message"}, name) {
			fmt.Fprintf(&b, " %s=%v", name, fields[name])
		}
	}
	return b.String()
}
