package view

import (
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

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
