package console

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// typed is what the operator fills in.
type typed struct {
	Why, Says, Ref, Message, Type, Code string
	// Result is also the body of an HTTP response.
	Known, Result, Status, Headers string

	Days   string
	Undone bool
	Steps  []stepAnswer
	// Look asks what the decision would do, and changes nothing.
	Look bool
}

// mistake is what is wrong with what was typed, in the field with the id; of the form if that is empty.
type mistake struct{ Field, Text string }

// typeable reports whether an operator can type a result for the record.
func typeable(rec *idem.Record) bool { return rec.Codec == "" || view.OverHTTP(rec.Codec) }

// typedResponse is the HTTP response that is typed.
func typedResponse(t typed) (*idemhttp.Response, error) {
	status, err := strconv.Atoi(strings.TrimSpace(t.Status))
	if err != nil {
		return nil, &view.MistypedError{Field: "status",
			Problem: fmt.Sprintf("the status is %q: it is a number such as 201", t.Status)}
	}
	var lines []string
	for line := range strings.Lines(t.Headers) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return view.TypedResponse(status, lines, []byte(strings.ReplaceAll(t.Result, "\r\n", "\n")))
}

// change makes the decision, as it was typed, or says what is wrong with that.
func (c *console) change(rec *idem.Record, to string, d reconcile.Decision,
	t typed) (do func(context.Context, reconcile.Change) error, m mistake) {
	if t.Why == "" {
		return nil, mistake{"why", "The reason is missing: say why, for those who read it in a year."}
	}
	switch to {
	case forgotten:
		return func(ctx context.Context, by reconcile.Change) error { return c.r.Forget(ctx, rec.ID, by) }, mistake{}
	case extended:
		if !slices.ContainsFunc(days, func(d choice) bool { return d.Value == t.Days }) {
			return nil, mistake{"days", "Choose for how long the record is kept."}
		}
		n, _ := strconv.Atoi(t.Days) // one of them
		until := c.opts.Now().Add(time.Duration(n) * 24 * time.Hour)
		if !until.After(rec.ExpiresAt) {
			return nil, mistake{"days", "The record is kept as long already: choose a longer time."}
		}
		return func(ctx context.Context, by reconcile.Change) error { return c.r.Extend(ctx, rec.ID, until, by) }, mistake{}
	}
	res, m := c.resolution(rec, d, t)
	if would := c.r.Preview(rec, res); m == (mistake{}) && (would.Repeats || would.Again) && t.Says == "" {
		m = mistake{"says", "The provider's answer is missing: ask it, and say what it answered."}
	}
	return func(ctx context.Context, by reconcile.Change) error { return c.r.Resolve(ctx, rec.ID, res, by) }, m
}

// resolution is what the operator has found out, or what is wrong with what was typed.
func (c *console) resolution(rec *idem.Record, d reconcile.Decision,
	t typed) (res reconcile.Resolution, m mistake) {
	res = reconcile.Resolution{To: d.To, Replace: d.Again, Attempt: rec.Attempt, Ref: t.Ref}
	if len(d.Undo) > 0 && !t.Undone {
		return res, mistake{"undone", "The steps have not been undone: undo them by hand, and then say so."}
	}
	res.CompensatedManually = t.Undone && len(d.Undo) > 0
	switch d.To {
	case idem.Released:
		res.Steps, m = answers(t.Steps)
		return res, m
	case idem.Failed:
		if strings.TrimSpace(t.Message) == "" {
			return res, mistake{"message", "The message is missing: say what the failure is. Later calls get it."}
		}
		res.Failure = &idem.Failure{Message: t.Message, Type: t.Type, Code: t.Code}
	case idem.Completed:
		if t.Known != "yes" && t.Result+t.Status+t.Headers != "" {
			return res, mistake{"known", "A result is typed, and it is chosen that it is not known: choose one of them."}
		}
		if t.Known != "yes" {
			return res, mistake{}
		}
		if rec.Codec == "" && t.Result == "" {
			return res, mistake{"result", "The result is missing: give it, or say that it is not known."}
		}
		if rec.Codec == "" {
			res.Result = &protocol.Encoded{Body: []byte(t.Result)}
			return res, mistake{}
		}
		if !typeable(rec) {
			return res, mistake{"known",
				"The results of this record are neither JSON nor HTTP responses: say that it is not known."}
		}
		response, err := typedResponse(t)
		if err != nil {
			typo, _ := errors.AsType[*view.MistypedError](err)
			return res, mistake{typo.Field, "The response cannot be recorded: " + err.Error() + "."}
		}
		encoded, err := c.opts.Encode(rec, response)
		if err != nil {
			return res, mistake{"result", "The response cannot be recorded: " + err.Error() + "."}
		}
		res.Result, res.CompensatedManually = &encoded, t.Undone && (res.CompensatedManually || encoded.Failed)
		if undo := c.r.Preview(rec, res).Undo; len(undo) > 0 && !t.Undone {
			return res, mistake{"undone",
				"The response is a failure, and the steps have not been undone: undo them by hand, and then say so."}
		}
	}
	return res, mistake{}
}

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
