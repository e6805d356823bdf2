package cloud

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/local/aws/template"
)

// evaluate finds the values of all stacks' outputs, once the APIs are known. One that has no value here is noted.
func (p *Plan) evaluate() {
	p.Outputs = map[string]map[string]string{}
	for _, s := range p.stacks {
		values := map[string]string{}
		for _, name := range slices.Sorted(maps.Keys(s.Template.Outputs)) {
			o := s.Template.Outputs[name]
			there, err := s.scope.Exists(o.Condition)
			if err == nil && !there {
				continue
			}
			var v any
			if err == nil {
				v, err = s.scope.Eval(o.Value)
			}
			value := ""
			if err == nil {
				value, err = template.Text(v)
			}
			if err != nil {
				p.Notes = append(p.Notes, fmt.Sprintf("%s: the output %s has no value here: %v", s.Name, name, err))
				continue
			}
			values[name] = p.here(value)
		}
		if len(values) > 0 {
			p.Outputs[s.Name] = values
		}
	}
}

// here is a text with the URLs that APIs have on this machine, in place of those that templates make of their ids.
func (p *Plan) here(text string) string {
	for _, a := range p.APIs {
		text = strings.ReplaceAll(text, fmt.Sprintf("https://%s.execute-api.%s.amazonaws.com", a.Key, region),
			p.options.Endpoints.api(a.Key))
	}
	return text
}

// WriteOutputs writes the stacks' outputs to a file, as cdk deploy --outputs-file does: {"stack": {"output": "value"}}.
// A file with that content stays as it is: it may be in a folder whose changes are looked for.
func (p *Plan) WriteOutputs(path string) error {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	if err := e.Encode(p.Outputs); err != nil {
		return err
	}
	if had, err := os.ReadFile(path); err == nil && bytes.Equal(had, text.Bytes()) {
		return nil
	}
	if err := os.WriteFile(path, text.Bytes(), 0o644); err != nil {
		return fmt.Errorf("cannot write the outputs: %w", err)
	}
	return nil
}
