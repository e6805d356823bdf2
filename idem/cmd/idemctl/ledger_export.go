package main

import (
	"bufio"
	"cmp"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/reconcile/ledger"
)

// row has the text in a column; false if the row does not have it.
type row = func(column string) (text string, there bool)

// export is a provider's file: a JSON object in each line if it begins with a brace, else CSV.
type export struct {
	closes io.Closer // nil for the standard input
	next   func() (row, error)
}

// utf8Mark begins files of spreadsheets.
const utf8Mark = "\uFEFF"

func openExport(name string, in io.Reader, columns []string) (*export, error) {
	x := &export{}
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return nil, misuse("the export cannot be read: %v", err)
		}
		x.closes, in = f, f
	}
	r := bufio.NewReader(in)
	if mark, _ := r.Peek(len(utf8Mark)); string(mark) == utf8Mark {
		_, _ = r.Discard(len(utf8Mark))
	}
	var err error
	switch start, _ := r.Peek(1); string(start) {
	case "{":
		x.next = jsonRows(r)
	case "[":
		err = misuse("the export is a JSON array: write a line for each element, such as with jq -c '.[]'")
	default:
		x.next, err = csvRows(r, columns)
	}
	if err != nil {
		x.close()
	}
	return x, err
}

func (x *export) close() {
	if x.closes != nil {
		_ = x.closes.Close()
	}
}

func jsonRows(in io.Reader) func() (row, error) {
	dec := json.NewDecoder(in)
	dec.UseNumber()
	return func() (row, error) {
		var members map[string]any
		err := dec.Decode(&members)
		return func(column string) (string, bool) {
			v, there := members[column]
			if v == nil {
				return "", there
			}
			return fmt.Sprint(v), there
		}, err
	}
}

// csvRows reads the header. The separator is the one that it has most of.
func csvRows(in *bufio.Reader, columns []string) (func() (row, error), error) {
	start, _ := in.Peek(4096)
	header, _, _ := strings.Cut(string(start), "\n")
	rows := csv.NewReader(in)
	for _, separator := range ";\t" {
		if strings.Count(header, string(separator)) > strings.Count(header, string(rows.Comma)) {
			rows.Comma = separator
		}
	}
	names, err := rows.Read()
	if err != nil && err != io.EOF {
		return nil, fmt.Errorf("the export's header cannot be read: %w", err)
	}
	place := map[string]int{}
	for i, name := range names {
		name = strings.TrimSpace(name)
		if _, twice := place[name]; twice && name != "" && slices.Contains(columns, name) {
			return nil, misuse("the export has two columns %q: give one of them another name, and name the one that is meant",
				name)
		}
		place[name] = i
	}
	for _, name := range columns {
		if _, there := place[name]; name != "" && !there {
			return nil, misuse("the export has no column %q: it has %s", name, line(strings.Join(names, ", ")))
		}
	}
	return func() (row, error) {
		texts, err := rows.Read()
		return func(column string) (string, bool) {
			i, there := place[column]
			if !there {
				return "", false
			}
			return texts[i], true
		}, err
	}, nil
}

// columns are those that the flags name.
func (c *ledgerCmd) columns() []string {
	return slices.Concat([]string{c.TokenColumn, c.RefColumn, c.TimeColumn, c.StateColumn}, c.ValueColumn)
}

// entries has the file's entries, once. It fails if there are rows, and none has a state, or is of the day, or has what
// is compared.
func (c *ledgerCmd) entries(x *export, from, to time.Time) iter.Seq2[ledger.Entry, error] {
	return func(yield func(ledger.Entry, error) bool) {
		all, ofDay, valued, state := 0, 0, false, ""
		for n := 1; ; n++ {
			var e ledger.Entry
			effect := false
			r, err := x.next()
			if err == io.EOF {
				switch {
				case all == 0 && n > 1:
					yield(e, fmt.Errorf("no row of the export has a state that --state names, and the last one has %q", state))
				case all > 0 && ofDay == 0:
					yield(e, fmt.Errorf("no row of the export is of %s: look at --day, --time-zone and --time-column",
						c.date.Format(time.DateOnly)))
				case ofDay > 0 && len(c.ValueColumn) > 0 && !valued:
					yield(e, fmt.Errorf("no row of %s has anything in %s, so that nothing would be compared: look at "+
						"--value-column", c.date.Format(time.DateOnly), strings.Join(c.ValueColumn, ", ")))
				}
				return
			}
			if err == nil {
				e, effect, err = c.entry(r)
				state = e.State
			}
			if effect {
				all++
				if !e.At.Before(from) && e.At.Before(to) {
					ofDay++
					valued = valued || e.Value != ""
				}
			}
			switch {
			case err != nil:
				yield(e, fmt.Errorf("row %d of the export: %w", n, err))
				return
			case effect && !yield(e, nil):
				return
			}
		}
	}
}

// entry reads a row, and whether it has had an effect.
func (c *ledgerCmd) entry(r row) (e ledger.Entry, effect bool, err error) {
	get := func(column string) string {
		if column == "" {
			return ""
		}
		text, there := r(column)
		// Without a token it has a reference, or the other way round.
		if !there && column != c.TokenColumn && column != c.RefColumn {
			err = cmp.Or(err, errors.New("it has no "+strconv.Quote(column)))
		}
		return strings.TrimSpace(text)
	}
	e = ledger.Entry{Token: get(c.TokenColumn), Ref: get(c.RefColumn), State: get(c.StateColumn)}
	values := make([]string, len(c.ValueColumn))
	for i, column := range c.ValueColumn {
		values[i] = get(column)
	}
	e.Value = joined(values)
	at := get(c.TimeColumn)
	if err != nil || len(c.State) > 0 && !slices.Contains(c.State, e.State) {
		return e, false, err
	}
	e.At, err = c.time(at)
	return e, true, err
}

// joined is what is compared of values: nothing if all are empty.
func joined(values []string) string {
	if strings.Join(values, "") == "" {
		return ""
	}
	return strings.Join(values, " ")
}

// time reads a time in one of the forms in which providers export them.
func (c *ledgerCmd) time(text string) (time.Time, error) {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n > 0 {
		switch len(text) { // 20260301 is none of them
		case len("1772323200"):
			return time.Unix(n, 0), nil
		case len("1772323200000"):
			return time.UnixMilli(n), nil
		}
	}
	for _, form := range []string{time.RFC3339, "2006-01-02 15:04:05Z07:00", time.DateTime, "2006-01-02T15:04:05"} {
		if at, err := time.ParseInLocation(form, text, c.zone); err == nil {
			return at, nil
		}
	}
	return time.Time{}, fmt.Errorf("%q is no time: use 2026-03-01T12:00:00Z, 2026-03-01 12:00:00, or the 10 digits of "+
		"seconds since 1970", text)
}
