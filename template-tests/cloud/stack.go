package cloud

import (
	"encoding/xml"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"
)

// stack as CloudFormation keeps it.
type stack struct {
	name, status string
	template     string
	proposed     string // the template of the change set; empty: there is none
}

// actions are the calls of STS and CloudFormation. They return the members of the result.
var actions = map[string]func(*Server, url.Values) (string, *fault){
	"sts:GetCallerIdentity": func(*Server, url.Values) (string, *fault) {
		return tag("Account", account) + tag("Arn", "arn:aws:iam::"+account+":user/tester"), nil
	},
	"sts:AssumeRole": func(_ *Server, form url.Values) (string, *fault) {
		if role := form.Get("RoleArn"); !strings.HasPrefix(role, "arn:aws:iam::"+account+":role/cdk-") {
			return "", &fault{"AccessDenied", "no role " + role}
		}
		return tag("Credentials", tag("AccessKeyId", "ASIALOCALLOCALLOCAL1"), tag("SecretAccessKey", "secret"),
			tag("SessionToken", "token"), tag("Expiration", stamp(time.Now().Add(time.Hour)))), nil
	},
	"cloudformation:CreateChangeSet": (*Server).propose,
	"cloudformation:DescribeStacks": of(func(st *stack) (string, *fault) {
		return tag("Stacks", tag("member", tag("StackName", st.name), tag("StackId", st.id()),
			tag("StackStatus", st.status), tag("CreationTime", stamp(time.Now())))), nil
	}),
	"cloudformation:GetTemplate": of(func(st *stack) (string, *fault) {
		return text("TemplateBody", st.template), nil
	}),
	"cloudformation:DescribeStackEvents": of(func(*stack) (string, *fault) { return tag("StackEvents"), nil }),
	"cloudformation:DescribeChangeSet":   of((*stack).describe),
	"cloudformation:DeleteChangeSet": of(func(st *stack) (string, *fault) {
		st.proposed = ""
		return "", nil
	}),
	"cloudformation:ExecuteChangeSet": func(s *Server, form url.Values) (string, *fault) {
		return of(func(st *stack) (string, *fault) {
			st.status, st.template, st.proposed = "CREATE_COMPLETE", st.proposed, ""
			s.deployed = append(s.deployed, st.name)
			return "", nil
		})(s, form)
	},
}

// of is a call about a stack that must exist.
func of(do func(*stack) (string, *fault)) func(*Server, url.Values) (string, *fault) {
	return func(s *Server, form url.Values) (string, *fault) {
		name := form.Get("StackName")
		for _, st := range s.stacks {
			if st.name == name || st.id() == name {
				return do(st)
			}
		}
		return "", &fault{"ValidationError", "Stack with id " + name + " does not exist"}
	}
}

// fault is what an action answers if it fails.
type fault struct{ code, message string }

// propose makes a change set of a template in the bucket.
func (s *Server) propose(form url.Values) (string, *fault) {
	body, ok := s.objects[path.Base(form.Get("TemplateURL"))]
	if !ok {
		return "", &fault{"ValidationError", "no object at " + form.Get("TemplateURL")}
	}
	name := form.Get("StackName")
	if s.stacks[name] == nil {
		s.stacks[name] = &stack{name: name, status: "REVIEW_IN_PROGRESS"}
	}
	s.stacks[name].proposed = string(body)
	return s.stacks[name].changeSet(), nil
}

// describe is the change set, by which the command line sees whether there are changes.
func (st *stack) describe() (string, *fault) {
	status, reason := "CREATE_COMPLETE", ""
	switch st.proposed {
	case "":
		return "", &fault{"ChangeSetNotFound", "there is no change set"}
	case st.template:
		status, reason = "FAILED", "The submitted information didn't contain changes."
	}
	return st.changeSet() + tag("StackName", st.name) + tag("Status", status) + text("StatusReason", reason) +
		tag("CreationTime", stamp(time.Now())), nil
}

func (st *stack) id() string {
	return "arn:aws:cloudformation:" + region + ":" + account + ":stack/" + st.name + "/1"
}

func (st *stack) changeSet() string {
	id := strings.Replace(st.id(), ":stack/", ":changeSet/", 1)
	return tag("Id", id) + tag("ChangeSetId", id) + tag("StackId", st.id())
}

func stamp(t time.Time) string { return t.UTC().Format(time.RFC3339) }

// tag is an element of XML.
func tag(name string, content ...string) string {
	return "<" + name + ">" + strings.Join(content, "") + "</" + name + ">"
}

// text is an element of text, which is escaped.
func text(name, s string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(s))
	return tag(name, b.String())
}

func write(w http.ResponseWriter, status int, content string) {
	w.Header().Set("Content-Type", "text/xml")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(content))
}
