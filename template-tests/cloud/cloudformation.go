package cloud

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

// find a stack by name or id; nil if there is none.
func (s *Server) find(name string) *stack {
	for _, st := range s.stacks {
		if st.name == name || st.id == name {
			return st
		}
	}
	return nil
}

func (s *Server) cloudformation(w http.ResponseWriter, form url.Values) {
	action, name := form.Get("Action"), form.Get("StackName")
	const invalid = "ValidationError"
	if action == "CreateChangeSet" {
		st, set, err := s.propose(form)
		if err != nil {
			fail(w, invalid, err.Error())
			return
		}
		answer(w, action, tag("Id", set.id), tag("StackId", st.id))
		return
	}
	st := s.find(name)
	if st == nil {
		fail(w, invalid, fmt.Sprintf("Stack with id %s does not exist", name))
		return
	}
	switch action {
	case "DescribeStacks":
		answer(w, action, list("Stacks", st.describe()))
	case "GetTemplate":
		answer(w, action, tag("TemplateBody", st.template), list("StagesAvailable"))
	case "DescribeStackEvents", "DescribeEvents":
		var all [][]element
		for _, e := range st.events {
			all = append(all, e.describe(st))
		}
		answer(w, action, list("StackEvents", all...))
	case "DescribeChangeSet", "DeleteChangeSet", "ExecuteChangeSet":
		s.changeSet(w, st, form)
	default:
		s.refuse(w, "cloudformation:"+action)
	}
}

func (s *Server) changeSet(w http.ResponseWriter, st *stack, form url.Values) {
	action, name := form.Get("Action"), form.Get("ChangeSetName")
	set := st.set
	if set == nil || set.name != name && set.id != name {
		if action == "DeleteChangeSet" {
			answer(w, action)
			return
		}
		fail(w, "ChangeSetNotFound", fmt.Sprintf("ChangeSet [%s] does not exist", name))
		return
	}
	switch action {
	case "DeleteChangeSet":
		st.set = nil
		answer(w, action)
	case "ExecuteChangeSet":
		if err := s.execute(st, form.Get("ClientRequestToken")); err != nil {
			fail(w, "ValidationError", err.Error())
			return
		}
		answer(w, action)
	default:
		can := "AVAILABLE"
		if set.status != "CREATE_COMPLETE" {
			can = "UNAVAILABLE"
		}
		var all [][]element
		for _, c := range set.changes {
			all = append(all, []element{tag("Type", "Resource"), group("ResourceChange",
				tag("Action", c.action), tag("LogicalResourceId", c.logical), tag("ResourceType", c.kind),
				tag("Replacement", "False"))})
		}
		answer(w, action, tag("ChangeSetName", set.name), tag("ChangeSetId", set.id), tag("StackId", st.id),
			tag("StackName", st.name),
			tag("Status", set.status), tag("StatusReason", set.reason), tag("ExecutionStatus", can),
			tag("CreationTime", stamp(time.Now())), list("Changes", all...))
	}
}

func (st *stack) describe() []element {
	var outputs [][]element
	for _, name := range slices.Sorted(maps.Keys(st.outputs)) {
		outputs = append(outputs, []element{tag("OutputKey", name), tag("OutputValue", st.outputs[name])})
	}
	return []element{
		tag("StackId", st.id), tag("StackName", st.name), tag("StackStatus", st.status),
		tag("Description", st.parsed.Description),
		tag("CreationTime", stamp(time.Now())), tag("EnableTerminationProtection", "false"), tag("DisableRollback", "false"),
		list("Outputs", outputs...), list("Tags"), list("NotificationARNs"), list("Capabilities"),
	}
}

func (e event) describe(st *stack) []element {
	physical := st.physical(e.logical)
	if e.logical == st.name && strings.HasSuffix(e.kind, "::Stack") {
		physical = st.id
	}
	return []element{
		tag("StackId", st.id), tag("StackName", st.name), tag("EventId", e.id), tag("LogicalResourceId", e.logical),
		tag("PhysicalResourceId", physical),
		tag("ResourceType", e.kind), tag("ResourceStatus", e.status), tag("ClientRequestToken", e.token),
		tag("Timestamp", stamp(e.at)),
	}
}

func stamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000Z") }

// Stack is what became of one.
type Stack struct {
	Status string
	// Template as the account has it.
	Template string
	// Outputs, resolved.
	Outputs map[string]string
	// Executed counts the change sets that were executed.
	Executed int
}

// Stack by name; nil if there is none.
func (s *Server) Stack(name string) *Stack {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.find(name)
	if st == nil {
		return nil
	}
	return &Stack{st.status, st.template, maps.Clone(st.outputs), st.updates}
}
