package main

import (
	"bytes"
	"encoding/json"
	"os"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// stepFlags say what became of interrupted steps.
type stepFlags struct {
	Step []string `sep:"none" placeholder:"NAME=WHAT" help:"To released: what became of an interrupted step: NAME=not-executed, NAME=done (it returns nothing; or its result is not known, at which most handlers fail for good, and if it has a compensation nothing is undone), NAME=failed:TEXT, or NAME=@FILE with its result as JSON, which is not null. Name all of them. Ask the provider with the step's token, which show prints."`

	bodies map[string][]byte // of the files, by step
}

// answers are what the flags say; nil if they say nothing.
func (f *stepFlags) answers() (map[string]reconcile.Answer, error) {
	var all map[string]reconcile.Answer
	for _, given := range f.Step {
		name, what, _ := strings.Cut(given, "=")
		var a reconcile.Answer
		failed, isFailed := strings.CutPrefix(what, "failed:")
		path, isFile := strings.CutPrefix(what, "@")
		switch {
		case name == "":
			return nil, misuse("--step is %q: begin with the step's name", given)
		case what == "not-executed":
			a = reconcile.NotExecuted()
		case what == "done":
			a = reconcile.CompletedWithoutResult()
		case isFailed && failed != "":
			a = reconcile.FailedWith(idem.Failure{Message: failed})
		case isFile:
			body, err := os.ReadFile(path)
			if err != nil {
				return nil, misuse("the step's result cannot be read: %v", err)
			}
			switch {
			case !json.Valid(body):
				return nil, misuse("the step's result in %s is not JSON", path)
			case string(bytes.TrimSpace(body)) == "null":
				return nil, misuse("the step's result in %s is null, which a handler reads as the empty value of any type: give what the step's function has returned, "+
					"or use %s=done if it returns nothing or that is not known", path, name)
			}
			a = reconcile.CompletedWith(json.RawMessage(body))
			if f.bodies == nil {
				f.bodies = map[string][]byte{}
			}
			f.bodies[name] = body
		default:
			return nil, misuse("--step is %q: use NAME=not-executed, NAME=done, NAME=failed:TEXT or NAME=@FILE", given)
		}
		if all == nil {
			all = map[string]reconcile.Answer{}
		}
		if _, twice := all[name]; twice {
			return nil, misuse("--step names %q twice: say once what became of it", name)
		}
		all[name] = a
	}
	return all, nil
}

// shows writes what is said of each step, and what its file holds.
func (f *stepFlags) shows(s *session) {
	for _, given := range f.Step {
		name, what, _ := strings.Cut(given, "=")
		file, isFile := strings.CutPrefix(what, "@")
		if !isFile {
			s.field("Step", "%s: %s", view.Plain(name), line(what))
			continue
		}
		s.field("Step", "%s: done, with %s:", view.Plain(name), source(file, f.bodies[name]))
		s.excerpt(f.bodies[name])
	}
}
