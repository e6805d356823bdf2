package cloud

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/local/aws/iam"
)

// policies are the properties with policies, which have the same names in all types.
type policies struct {
	PolicyName, RoleName                string
	Roles, ManagedPolicyArns            []string
	PolicyDocument, PermissionsBoundary any
	Policies                            []policies
}

// findRoles collects the policies of all roles. What cannot be read becomes a note, and is not evaluated.
func (p *Plan) findRoles() {
	roles, managed := map[string]*iam.Role{}, map[string]func(*iam.Role){}
	var later []func() // when all roles and managed policies are known
	give := func(policy func(*iam.Role), names ...string) {
		later = append(later, func() {
			for _, name := range names {
				if roles[name] == nil {
					roles[name] = &iam.Role{Name: name, NotEvaluated: []string{"its policies outside of the templates"}}
				}
				policy(roles[name])
			}
		})
	}
	read := func(name string, document any) func(*iam.Role) {
		policy, err := iam.Parse(name, document)
		if err != nil {
			p.Notes = append(p.Notes, err.Error())
			return func(to *iam.Role) { to.NotEvaluated = append(to.NotEvaluated, name) }
		}
		return func(to *iam.Role) { to.Policies = append(to.Policies, policy) }
	}
	for _, r := range p.resources() {
		if !strings.HasPrefix(r.Type, "AWS::IAM::") {
			continue
		}
		is := p.policiesOf(r)
		switch own, _ := r.attribute("Arn"); r.Type { // its error is also that of what refers to it
		case "AWS::IAM::Policy":
			give(read(r.String(), is.PolicyDocument), is.Roles...)
		case "AWS::IAM::RolePolicy":
			give(read(r.String(), is.PolicyDocument), is.RoleName)
		case "AWS::IAM::ManagedPolicy":
			policy := read(r.String(), is.PolicyDocument)
			managed[text(own)] = policy
			give(policy, is.Roles...)
		case "AWS::IAM::Role":
			name := lastRole(text(own))
			roles[name] = &iam.Role{Name: name}
			for _, inline := range is.Policies {
				give(read(r.String()+"/"+inline.PolicyName, inline.PolicyDocument), name)
			}
			for _, arn := range is.ManagedPolicyArns {
				give(func(to *iam.Role) {
					if policy, known := iam.Managed(arn); known {
						to.Policies = append(to.Policies, policy)
					} else if managed[arn] != nil {
						managed[arn](to)
					} else {
						to.NotEvaluated = append(to.NotEvaluated, arn)
					}
				}, name)
			}
			if is.PermissionsBoundary != nil {
				p.Notes = append(p.Notes, r.String()+": PermissionsBoundary is not evaluated")
			}
		}
	}
	for _, f := range p.Functions {
		give(func(*iam.Role) {}, f.Role)
	}
	for _, step := range later {
		step()
	}
	p.Roles = map[string]iam.Role{}
	for name, role := range roles {
		p.Roles[name] = *role
	}
}

// policiesOf reads the policies of a resource.
func (p *Plan) policiesOf(r *resource) (is policies) {
	properties := maps.Clone(r.Properties)
	delete(properties, "AssumeRolePolicyDocument")
	text, err := json.Marshal(p.plain(r, properties))
	if err == nil {
		err = json.Unmarshal(text, &is)
	}
	if err != nil {
		p.Notes = append(p.Notes, fmt.Sprintf("%s: a part of its policies is not evaluated: %v", r, err))
	}
	return is
}

// plain is a value with its functions evaluated. One that cannot be becomes a policy variable, which may be anything.
func (p *Plan) plain(r *resource, v any) any {
	switch v := v.(type) {
	case map[string]any:
		out := map[string]any{}
		for _, key := range slices.Sorted(maps.Keys(v)) {
			if key == "Ref" || strings.HasPrefix(key, "Fn::") {
				value, err := r.stack.scope.Eval(v)
				if err == nil {
					return value
				}
				if note := fmt.Sprintf("%s: a part of its policy is not evaluated: %v", r, err); !slices.Contains(p.Notes, note) {
					p.Notes = append(p.Notes, note)
				}
				return "${" + key + "}"
			}
			if member := p.plain(r, v[key]); member != nil {
				out[key] = member
			}
		}
		return out
	case []any:
		var out []any
		for _, m := range v {
			if member := p.plain(r, m); member != nil {
				out = append(out, member)
			}
		}
		return out
	}
	return v
}

// partitionKey is the name of a table's partition key, or empty if there is no such table.
func (p *Plan) partitionKey(table string) string {
	for _, t := range p.Tables {
		for _, k := range t.Create.KeySchema {
			if t.Name == table && k.KeyType == types.KeyTypeHash {
				return *k.AttributeName
			}
		}
	}
	return ""
}

// refused reports a call that the role of its function does not grant, and answers it where such calls are denied.
func (r *Running) refused(w http.ResponseWriter, c Call) bool {
	p := r.granting.Load()
	f := p.function(c.Function)
	if f == nil || f.Role == "" {
		return false
	}
	requests, err := []iam.Request{iam.Invoke(c.invokes)}, error(nil)
	if c.invokes == "" {
		requests, err = iam.Requests(c.Header, c.Body, p.partitionKey)
	}
	role := p.Roles[f.Role]
	if err != nil { // it passes
		requests = []iam.Request{{Action: c.Service + ":" + c.Operation, Resource: "what it names"}}
		role = iam.Role{Name: f.Role, NotEvaluated: []string{"the request itself: " + err.Error()}}
	}
	for _, q := range requests {
		d := role.Allows(q)
		if line := r.grants.Add(f.of.String(), role, q, d); line != "" {
			r.report("%s", line)
		}
		if r.options.Deny && !d.Granted() {
			iam.Refuse(w, c.Function, role, q, d)
			return true
		}
	}
	return false
}

// Ungranted lists what mappings need, and what the functions have called, and their roles do not grant, or grant only
// as far as that is evaluated here.
func (r *Running) Ungranted() []string { return append(r.Plan().missing(), r.grants.Lines()...) }

// missing are the event source mappings whose function's role must not do what they need. Lambda refuses to create
// such a mapping.
func (p *Plan) missing() (lines []string) {
	for _, m := range p.Mappings {
		var lacks []string
		role := p.Roles[p.function(m.Function).Role]
		for _, q := range iam.Polls(m.Queue, m.Table) {
			if !role.Allows(q).Granted() {
				lacks = append(lacks, q.Action)
			}
		}
		if lacks != nil {
			lines = append(lines, fmt.Sprintf("%s: role %s lacks %s on %s, so Lambda refuses to create the mapping", m.of,
				role.Name, strings.Join(lacks, ", "), cmp.Or(m.Queue, "the stream of "+m.Table)))
		}
	}
	return lines
}
