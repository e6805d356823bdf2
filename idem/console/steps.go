package console

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// stepAnswer is what an operator says of an interrupted step. ID begins the names of its
// fields.
type stepAnswer struct {
	ID, Name, Token string
	Compensates     bool // it has a compensation, which needs the result
	What            protocol.StepVerdict
	Result, Message string
}

// answersOf reads what the form says of the steps. The form is about the record that it shows,
// so their order is the same.
func answersOf(id string, steps []string, form url.Values) (all []stepAnswer) {
	for i, name := range steps {
		field := fmt.Sprintf("step-%d", i)
		all = append(all, stepAnswer{
			ID: field, Name: name, Token: protocol.Token(id, name), What: protocol.StepVerdict(form.Get(field)),
			Result: strings.TrimSpace(form.Get(field + "-result")), Message: strings.TrimSpace(form.Get(field + "-message")),
		})
	}
	return all
}

// answer is what the operator says, or what is wrong with it.
func (s stepAnswer) answer() (a reconcile.Answer, m mistake) {
	switch {
	case s.Result != "" && s.What != protocol.StepTookEffect:
		return a, s.wrong("", "A result of step %s is typed, and something else is chosen: choose one of them.")
	case s.Message != "" && s.What != protocol.StepFailed:
		return a, s.wrong("", "A failure of step %s is typed, and something else is chosen: choose one of them.")
	}
	switch s.What {
	case protocol.StepNotExecuted:
		return reconcile.NotExecuted(), mistake{}
	case protocol.StepWithoutResult:
		return reconcile.CompletedWithoutResult(), mistake{}
	case protocol.StepTookEffect:
		if !json.Valid([]byte(s.Result)) {
			return a, s.wrong("-result", "The result of step %s is not JSON: correct it, or say that it is not known.")
		}
		if strings.TrimSpace(s.Result) == "null" {
			return a, s.wrong("-result", "The result of step %s is null, which a handler reads as an empty one: correct it, or "+
				"say that it is not known.")
		}
		return reconcile.CompletedWith(json.RawMessage(s.Result)), mistake{}
	case protocol.StepFailed:
		if s.Message == "" {
			return a, s.wrong("-message", "The message of the failure of step %s is missing.")
		}
		return reconcile.FailedWith(idem.Failure{Message: s.Message}), mistake{}
	}
	return a, s.wrong("", "Say what became of step %s.")
}

// wrong is a mistake in what the operator says of the step: in the field with the ending, or in the choice.
func (s stepAnswer) wrong(field, format string) mistake {
	return mistake{s.ID + field, fmt.Sprintf(format, s.Name)}
}

// answers are the operator's answers about all interrupted steps.
func answers(all []stepAnswer) (map[string]reconcile.Answer, mistake) {
	if len(all) == 0 {
		return nil, mistake{}
	}
	byStep := make(map[string]reconcile.Answer, len(all))
	for _, s := range all {
		a, m := s.answer()
		if m != (mistake{}) {
			return nil, m
		}
		byStep[s.Name] = a
	}
	return byStep, mistake{}
}

// runsAgain is a release if none of the interrupted steps was executed.
func runsAgain(d reconcile.Decision) reconcile.Resolution {
	res := reconcile.Resolution{To: d.To, Replace: d.Again, Steps: map[string]reconcile.Answer{}}
	for _, name := range d.Steps {
		res.Steps[name] = reconcile.NotExecuted()
	}
	return res
}
