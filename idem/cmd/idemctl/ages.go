package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"slices"
	"sort"
	"time"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"github.com/idem-go/idempotency/idem"
)

// ages count duplicates by how long after the execution that they repeat began they came.
type ages struct {
	Minute int `json:"under_1m"`
	Hour   int `json:"1m_to_1h"`
	Day    int `json:"1h_to_1d"`
	Later  int `json:"over_1d"`
	// Unknown: the log does not have the execution, or not the times.
	Unknown int `json:"unknown"`
	// Longest of those that are known.
	Longest float64 `json:"longest_seconds"`
}

func (a *ages) count(age time.Duration) {
	switch {
	case age < time.Minute:
		a.Minute++
	case age < time.Hour:
		a.Hour++
	case age < 24*time.Hour:
		a.Day++
	default:
		a.Later++
	}
	a.Longest = max(a.Longest, age.Seconds())
}

func (a *ages) add(b ages) {
	a.Minute, a.Hour, a.Day, a.Later, a.Unknown = a.Minute+b.Minute, a.Hour+b.Hour, a.Day+b.Day, a.Later+b.Later, a.Unknown+b.Unknown
	a.Longest = max(a.Longest, b.Longest)
}

// moment is a time in the life of the record with a digest. A trial has millions of them.
type moment struct {
	record uint64
	at     int64 // in milliseconds
}

// repeated is a duplicate.
type repeated struct {
	moment
	of *observedOp
}

// ofRecord is what the line says of its record at a time.
func (l *logLine) ofRecord(at time.Time) moment {
	h := fnv.New64a()
	_, _ = h.Write([]byte(l.Record)) // never fails
	return moment{h.Sum64(), at.UnixMilli()}
}

// execution notes when the execution began whose end the line tells.
func (t *tally) execution(l *logLine) {
	var elapsed time.Duration
	if at := l.at(); !at.IsZero() && json.Unmarshal(l.Elapsed, &elapsed) == nil {
		t.executions = append(t.executions, l.ofRecord(at.Add(-elapsed)))
	}
}

// duplicate notes when a duplicate came.
func (t *tally) duplicate(l *logLine, op *observedOp) {
	if at := l.at(); !at.IsZero() {
		t.duplicates = append(t.duplicates, repeated{l.ofRecord(at), op})
		return
	}
	op.Ages.Unknown++
}

// age counts the duplicates by their ages. Lines may come in any order: an execution is logged at
// its end, after the duplicates beside it, and each process has a log of its own.
func (t *tally) age() {
	slices.SortFunc(t.executions, func(a, b moment) int { return cmp.Or(cmp.Compare(a.record, b.record), cmp.Compare(a.at, b.at)) })
	for _, d := range t.duplicates {
		next := sort.Search(len(t.executions), func(i int) bool {
			e := t.executions[i]
			return e.record > d.record || e.record == d.record && e.at > d.at
		})
		switch {
		case next > 0 && t.executions[next-1].record == d.record:
			d.of.Ages.count(time.Duration(d.at-t.executions[next-1].at) * time.Millisecond)
		case next < len(t.executions) && t.executions[next].record == d.record && t.executions[next].at-d.at < idem.DefaultMargin.Milliseconds():
			d.of.Ages.count(0) // by the clock of another machine
		default:
			d.of.Ages.Unknown++
		}
	}
}

// ages writes those of each operation with duplicates.
func (s *session) ages(all []*observedOp) {
	w := newTable(s.out)
	w.AppendHeader(table.Row{"operation", "to 1m", "to 1h", "to 1d", "later", "longest", "not known"})
	for _, op := range all {
		if a := op.Ages; a != (ages{}) {
			longest := "-"
			if a.Unknown < op.Replayed+op.InFlight+op.Unknown {
				longest = span(time.Duration(a.Longest * float64(time.Second)))
			}
			w.AppendRow(table.Row{text.Trim(line(op.Operation), 16), a.Minute, a.Hour, a.Day, a.Later, longest, a.Unknown})
		}
	}
	if w.Length() > 0 {
		fmt.Fprintln(s.out, "\nDuplicates by how long after the execution that they repeat began:")
		w.Render()
	}
}
