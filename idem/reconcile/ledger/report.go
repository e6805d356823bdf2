package ledger

import (
	"encoding/json"
	"io"
	"iter"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Kind says what a [Finding] is.
type Kind string

// Kinds of findings: see the package's doc. The last one of a comparison is Complete, with its report: without
// it a report file is of a comparison that has failed.
const (
	MissingHere  Kind = "missing_here"
	MissingThere Kind = "missing_there"
	Different    Kind = "different"
	Doubled      Kind = "doubled"
	Unread       Kind = "unread"
	Open         Kind = "open"
	Undecided    Kind = "undecided"
	Complete     Kind = "complete"
)

// Unreadable is the state that a finding has of a record that cannot be read.
const Unreadable protocol.State = "unreadable"

// Finding is one result of a comparison.
type Finding struct {
	Kind Kind `json:"kind"`
	// Record is the record's id, and RecordState its state; empty if there is none.
	Record      string         `json:"record,omitempty"`
	RecordState protocol.State `json:"record_state,omitempty"`
	// Here is what the record says of the effect, There the provider's entry. Nil if there is none.
	Here  *Entry `json:"here,omitempty"`
	There *Entry `json:"there,omitempty"`
	// Why an Unread one cannot be read.
	Why string `json:"why,omitempty"`
	// First is the entry before that of a Doubled one, and FirstRecord the id of the other record.
	First       *Entry `json:"first,omitempty"`
	FirstRecord string `json:"first_record,omitempty"`
	// Report of the comparison, of a Complete one.
	Report *Report `json:"report,omitempty"`
}

// Lines returns a function for [Ledger.Compare] that writes each finding as a line of JSON.
func Lines(w io.Writer) func(Finding) error {
	enc := json.NewEncoder(w)
	enc.SetEscapeHTML(false)
	return func(f Finding) error { return enc.Encode(f) }
}

// Report says what a comparison has found.
type Report struct {
	Operation string    `json:"operation"`
	From      time.Time `json:"from"`
	To        time.Time `json:"to"`
	// Incomplete says that the comparison has failed: the numbers are those until then.
	Incomplete bool `json:"incomplete,omitempty"`
	// Entries and Records were read of the time with its margins. Ignored entries are of another time.
	Entries int `json:"entries"`
	Records int `json:"records"`
	Ignored int `json:"ignored,omitempty"`
	// Compared is how many entries have a record that expects them.
	Compared int `json:"compared"`
	// The differences, by their kinds.
	MissingHere  int `json:"missing_here"`
	MissingThere int `json:"missing_there"`
	Different    int `json:"different"`
	Doubled      int `json:"doubled"`
	Unread       int `json:"unread"`
	// Open and Undecided records are no differences.
	Open      int `json:"open"`
	Undecided int `json:"undecided"`
	// Units are what the scan has cost, as far as the store says so.
	Units float64 `json:"read_units,omitempty"`
}

// Differences is how many there are.
func (r Report) Differences() int {
	return r.MissingHere + r.MissingThere + r.Different + r.Doubled + r.Unread
}

// Counts has as metrics, by the names of package schema, what a comparison has found. One that has failed
// has none.
func (r Report) Counts() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		_ = r.Incomplete || yield(schema.MetricLedgerDifferences, r.Differences()) &&
			yield(schema.MetricLedgerMissingHere, r.MissingHere) &&
			yield(schema.MetricLedgerMissingThere, r.MissingThere) &&
			yield(schema.MetricLedgerDifferent, r.Different) && yield(schema.MetricLedgerDoubled, r.Doubled) &&
			yield(schema.MetricLedgerUnread, r.Unread) && yield(schema.MetricLedgerCompared, r.Compared)
	}
}

// count adds a finding to the report.
func (r *Report) count(k Kind) {
	switch k {
	case MissingHere:
		r.MissingHere++
	case MissingThere:
		r.MissingThere++
	case Different:
		r.Different++
	case Doubled:
		r.Doubled++
	case Unread:
		r.Unread++
	case Open:
		r.Open++
	case Undecided:
		r.Undecided++
	}
}
