package cloud

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// stack as CloudFormation keeps it.
type stack struct {
	name, id, status string
	template         string // as it was sent
	parsed           template
	outputs          map[string]string
	exports          map[string]string // by name
	events           []event           // newest first
	set              *changeSet
	updates          int
}

type template struct {
	Description string
	Parameters  map[string]struct {
		Type    string
		Default any
	}
	Resources map[string]resource
	Outputs   map[string]struct {
		Value  any
		Export struct{ Name any }
	}
}

type resource struct {
	Type                string
	Properties          map[string]any
	DependsOn           any
	DeletionPolicy      string
	UpdateReplacePolicy string
	Metadata            any
}

type event struct {
	id, logical, kind, status, token string
	at                               time.Time
}

func (s *Server) happened(st *stack, logical, kind, status, token string) {
	st.events = slices.Insert(st.events, 0, event{s.next(), logical, kind, status, token, time.Now()})
}

func parse(text string) (template, error) {
	var t template
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return t, fmt.Errorf("the template is no JSON: %w", err)
	}
	if len(t.Resources) == 0 {
		return t, fmt.Errorf("at least one Resources member must be defined")
	}
	return t, nil
}

// physical is the id of a resource of a stack.
func (st *stack) physical(logical string) string { return st.name + "-" + logical }

// evaluation of a stack's template: its references resolved.
type evaluation struct {
	server *Server
	stack  *stack
	parsed template
}

// value resolves a value. What it refers to must be there: another resource, a
// parameter, another stack's export.
func (e *evaluation) value(v any) (any, error) {
	switch v := v.(type) {
	case []any:
		all := make([]any, len(v))
		for i := range v {
			var err error
			if all[i], err = e.value(v[i]); err != nil {
				return nil, err
			}
		}
		return all, nil
	case map[string]any:
		if len(v) == 1 {
			for f, in := range v {
				if f == "Ref" || strings.HasPrefix(f, "Fn::") {
					return e.call(f, in)
				}
			}
		}
		all := make(map[string]any, len(v))
		for name := range v {
			var err error
			if all[name], err = e.value(v[name]); err != nil {
				return nil, err
			}
		}
		return all, nil
	}
	return v, nil
}

func (e *evaluation) call(f string, in any) (any, error) {
	switch f {
	case "Ref":
		return e.ref(fmt.Sprint(in))
	case "Fn::Sub":
		text, ok := in.(string)
		if !ok {
			return nil, fmt.Errorf("Fn::Sub of %v is not known here", in)
		}
		for {
			start := strings.Index(text, "${")
			if start < 0 {
				return text, nil
			}
			end := strings.Index(text[start:], "}")
			if end < 0 {
				return nil, fmt.Errorf("Fn::Sub of %q has no end", text)
			}
			value, err := e.ref(text[start+2 : start+end])
			if err != nil {
				return nil, err
			}
			text = text[:start] + value + text[start+end+1:]
		}
	case "Fn::GetAtt":
		path, ok := in.([]any)
		if !ok || len(path) != 2 {
			return nil, fmt.Errorf("Fn::GetAtt of %v is not known here", in)
		}
		logical := fmt.Sprint(path[0])
		r, ok := e.parsed.Resources[logical]
		if !ok {
			return nil, fmt.Errorf("unresolved resource dependencies [%s]", logical)
		}
		return fmt.Sprintf("arn:aws:%s:%s:%s:%s/%v", strings.ToLower(strings.Split(r.Type, "::")[1]),
			e.server.Region, e.server.Account, e.stack.physical(logical), path[1]), nil
	}
	resolved, err := e.value(in)
	if err != nil {
		return nil, err
	}
	switch f {
	case "Fn::ImportValue":
		name := fmt.Sprint(resolved)
		for _, other := range e.server.stacks {
			if value, ok := other.exports[name]; ok && other != e.stack {
				return value, nil
			}
		}
		return nil, fmt.Errorf("no export named %s found", name)
	case "Fn::Join":
		args, ok := resolved.([]any)
		if !ok || len(args) != 2 {
			return nil, fmt.Errorf("Fn::Join of %v is not known here", in)
		}
		parts, ok := args[1].([]any)
		if !ok {
			return nil, fmt.Errorf("Fn::Join of %v is not known here", in)
		}
		texts := make([]string, len(parts))
		for i := range parts {
			texts[i] = fmt.Sprint(parts[i])
		}
		return strings.Join(texts, fmt.Sprint(args[0])), nil
	case "Fn::Select", "Fn::Split":
		return fmt.Sprintf("%s of %v", f, resolved), nil
	}
	return nil, fmt.Errorf("the function %s is not known here", f)
}

func (e *evaluation) ref(name string) (string, error) {
	switch name {
	case "AWS::Region":
		return e.server.Region, nil
	case "AWS::AccountId":
		return e.server.Account, nil
	case "AWS::Partition":
		return "aws", nil
	case "AWS::URLSuffix":
		return "amazonaws.com", nil
	}
	if _, ok := e.parsed.Resources[name]; ok {
		return e.stack.physical(name), nil
	}
	return "", fmt.Errorf("unresolved resource dependencies [%s]", name)
}
