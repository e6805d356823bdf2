package ledger

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// row is a record or an entry, under the name by which it is sorted.
type row struct {
	name   string
	Record *record `json:"r,omitempty"`
	Entry  *Entry  `json:"e,omitempty"`
}

// record is what is compared of a record.
type record struct {
	ID    string         `json:"id"`
	State protocol.State `json:"s,omitempty"`
	Here  Entry          `json:"h"`
	// Created is when its first attempt began, and so the earliest time of an effect.
	Created time.Time `json:"c,omitzero"`
	// Effect says that it expects one, Open that it has no outcome, Running that an attempt may still run, Unread why
	// what it expects is not known, Past that it ended before the time and its margin: an entry is of another effect.
	Effect  bool   `json:"e,omitempty"`
	Open    bool   `json:"o,omitempty"`
	Running bool   `json:"r,omitempty"`
	Unread  string `json:"n,omitempty"`
	Past    bool   `json:"p,omitempty"`
}

// names are those of the first sort: an entry has the first one, a record all. Those of the second are ids of records.
func (e *Entry) names() (all []string) {
	if e.Token != "" {
		all = append(all, "token "+e.Token)
	}
	if e.Ref != "" {
		all = append(all, "ref "+e.Ref)
	}
	return all
}

// line is the row for a sort. Rows of one name have the records first, those that expect an effect before the others,
// those of before after those of the time, and all states of one record together, and then the entries by their times.
// Equal rows are equal lines.
func (r row) line() (string, error) {
	name, _ := json.Marshal(r.name) // without tabs and ends of lines
	text, err := json.Marshal(r)
	order := ""
	switch {
	case r.Entry != nil:
		order = fmt.Sprintf("4 %020d", r.Entry.At.UnixNano())
	case r.Record.Effect && !r.Record.Past:
		order = "1"
	case r.Record.Effect:
		order = "2"
	default:
		order = "3"
	}
	return string(name) + "\t" + order + "\t" + string(text), err
}

func parse(line string) (r row, err error) {
	name, rest, _ := strings.Cut(line, "\t")
	_, text, _ := strings.Cut(rest, "\t")
	if err = json.Unmarshal([]byte(name), &r.name); err == nil {
		err = json.Unmarshal([]byte(text), &r)
	}
	return r, err
}

// maxText bounds what a row has of others' texts.
const maxText = 1 << 10

// checkTexts refuses what no row may have.
func (e *Entry) checkTexts() error {
	for _, text := range []string{e.Token, e.Ref, e.Value, e.State} {
		if len(text) > maxText {
			return fmt.Errorf("a text of %d bytes, and at most %d are compared", len(text), maxText)
		}
	}
	return nil
}
