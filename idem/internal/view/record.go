// Package view turns records and their changes into the words and values that operators read: one
// form for the command line and for the console.
package view

import (
	"cmp"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Record is what operators may see of a record. It has the caller's value and the texts of errors
// only if they are asked for, and no results.
type Record struct {
	ID          string     `json:"id"`
	Tenant      string     `json:"tenant,omitempty"`
	Operation   string     `json:"operation"`
	Shadow      bool       `json:"shadow,omitempty"` // a trial's, no outcome of the live mode
	Value       string     `json:"value,omitempty"`
	State       idem.State `json:"state"`
	Repeatable  bool       `json:"repeatable"`
	Attempt     int        `json:"attempt"`
	CreatedAt   time.Time  `json:"created_at"`
	UpdatedAt   time.Time  `json:"updated_at"`
	LeaseUntil  time.Time  `json:"lease_until,omitzero"`
	ExpiresAt   time.Time  `json:"expires_at,omitzero"`
	OpenSince   time.Time  `json:"open_since,omitzero"`
	Due         time.Time  `json:"due,omitzero"`
	Probes      int        `json:"probes,omitempty"`
	EscalatedAt time.Time  `json:"escalated_at,omitzero"`
	Resolved    bool       `json:"resolved,omitempty"`
	Uncertain   bool       `json:"uncertain,omitempty"`
	Ref         string     `json:"ref,omitempty"`
	Token       string     `json:"token"`
	Codec       string     `json:"codec,omitempty"`
	Size        int        `json:"result_size,omitempty"`
	Omitted     bool       `json:"result_omitted,omitempty"`
	Sealed      bool       `json:"results_encrypted,omitempty"`
	Failure     *Failure   `json:"failure,omitempty"`
	Steps       []Step     `json:"steps,omitempty"` // in the order of their names
	// Write is what a change may be made conditional on.
	Write string `json:"write"`
}

// Reveal says what of a record is shown that may be personal or secret.
type Reveal struct {
	ShowValue  bool `help:"Show the caller's value, if the record keeps it."`
	ShowError  bool `help:"Show the text of errors, which may have personal data."`
	ShowResult bool `help:"Show the result, and the text of a recorded failure."`
}

// Of returns what may be shown of a record.
func Of(rec *idem.Record, show Reveal) Record {
	live, shadow := protocol.LiveID(rec.ID)
	tenant, operation, _ := protocol.ParseRecordID(live)
	v := Record{
		ID: rec.ID, Tenant: tenant, Operation: operation,
		Shadow: shadow, State: rec.State, Repeatable: rec.Repeat == protocol.Repeatable, Attempt: rec.Attempt,
		CreatedAt: rec.CreatedAt, UpdatedAt: rec.UpdatedAt, LeaseUntil: rec.LeaseUntil, ExpiresAt: rec.ExpiresAt,
		OpenSince: rec.OpenSince, Due: rec.Due, Probes: rec.Probes, EscalatedAt: rec.EscalatedAt,
		Resolved: rec.Resolved, Uncertain: rec.Uncertain, Ref: rec.Ref, Token: protocol.Token(rec.ID, ""),
		Codec: rec.Codec, Size: max(rec.Body.Size, 0), Omitted: rec.Omitted, Sealed: rec.Sealed, Write: rec.Write,
	}
	if show.ShowValue {
		v.Value = rec.Value
	}
	text := show.ShowError || show.ShowResult && rec.State == idem.Failed
	v.Failure = failureOf(rec.Failure, text)
	for _, name := range slices.Sorted(maps.Keys(rec.Steps)) {
		v.Steps = append(v.Steps, stepOf(rec, name, text))
	}
	return v
}

// Token is what a provider knows the operation, or a step of it, by.
type Token struct {
	Token string
	// Of says whose it is; empty if it is the only one.
	Of string
}

// Tokens are those of the interrupted steps, about which an operator must ask, and the operation's.
func (r Record) Tokens() (all []Token) {
	for _, step := range r.Steps {
		if step.Interrupted {
			all = append(all, Token{step.Token, "of step " + step.Name + ", which was interrupted"})
		}
	}
	if len(r.Steps) > 0 {
		return append(all, Token{r.Token, "outside steps"})
	}
	return []Token{{Token: r.Token}}
}

// Interrupted are the names of the steps that began and left no outcome.
func (r Record) Interrupted() (names []string) {
	for _, step := range r.Steps {
		if step.Interrupted {
			names = append(names, step.Name)
		}
	}
	return names
}

// Since is when a record became an open question; of a claim, when its lease ends.
func Since(rec *idem.Record) time.Time {
	if rec.OpenSince.IsZero() {
		return rec.LeaseUntil
	}
	return rec.OpenSince
}

// Sort brings the oldest question first.
func Sort(recs []*idem.Record) {
	slices.SortStableFunc(recs, func(a, b *idem.Record) int {
		return cmp.Or(Since(a).Compare(Since(b)), cmp.Compare(a.ID, b.ID))
	})
}

// Step is a recorded step.
type Step struct {
	Name        string   `json:"name"`
	State       string   `json:"state"`
	Interrupted bool     `json:"interrupted,omitempty"` // ask the provider with Token
	Token       string   `json:"token"`
	Compensates bool     `json:"compensates,omitempty"`
	Undone      bool     `json:"undone,omitempty"`
	Failure     *Failure `json:"failure,omitempty"`

	BegunAt time.Time `json:"-"`
	// HasResult says that a result is recorded, of Size bytes.
	HasResult bool `json:"-"`
	Size      int  `json:"-"`
}

func stepOf(rec *idem.Record, name string, text bool) Step {
	s := rec.Steps[name]
	v := Step{
		Name: name, Interrupted: s.Begun, Token: protocol.Token(rec.ID, name), Compensates: s.Compensates,
		Undone: rec.Undone(name), Failure: failureOf(s.Failure, text), BegunAt: s.BegunAt, Size: s.Body.Size,
	}
	switch {
	case s.Begun:
		v.State = "begun, without outcome"
	case s.NotExecuted:
		v.State = "not executed"
	case s.Omitted:
		v.State = "done, without result"
	case s.Failure != nil:
		v.State = "failed"
	default:
		v.State, v.HasResult = "done", name != protocol.CompensatingStep
	}
	return v
}

// Marker reports whether the step is no work of the handler: it says that the operation is undone.
func (s Step) Marker() bool { return s.Name == protocol.CompensatingStep }

// Text is what became of the step.
func (s Step) Text() string {
	undoes, isUndo := strings.CutPrefix(s.Name, protocol.UndoingPrefix)
	switch {
	case s.Marker():
		return "the operation has failed, and is being undone"
	case isUndo:
		return s.State + ", undoes " + undoes
	case s.Undone:
		return s.State + ", and undone"
	case s.Compensates:
		return s.State + ", has a compensation that has not run"
	}
	return s.State
}

// Failure is a recorded error; Message is empty unless it is asked for.
type Failure struct {
	Type    string `json:"type,omitempty"`
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

func failureOf(f *idem.Failure, text bool) *Failure {
	if f == nil {
		return nil
	}
	v := &Failure{Type: f.Type, Code: f.Code}
	if text {
		v.Message = f.Message
	}
	return v
}

// Text is the failure in a line; empty if it has only a message that is not shown.
func (f Failure) Text() string {
	text := f.Type
	if f.Code != "" {
		text += " (code " + f.Code + ")"
	}
	if text != "" && f.Message != "" {
		text += ": "
	}
	return text + f.Message
}
