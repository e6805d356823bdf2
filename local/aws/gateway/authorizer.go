package gateway

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/local/aws/iam"
)

// Authorizer stands for what authorizes the requests of an API. It returns who sends a request, or why it is refused:
// Unauthorized or Forbidden. Any other error is that of an authorizer that has failed, HTTP status 500.
type Authorizer func(Request) (Caller, error)

// Caller is who sends a request, as the event says it. One field is set at most.
type Caller struct {
	// Claims are those of a token. The events of a load balancer have only the token itself.
	Claims map[string]string
	// Signer is who has signed the request.
	Signer *Principal
	// Context is what a function says about the caller.
	Context map[string]any
}

// Principal is an IAM principal that signed a request.
type Principal struct {
	AccountID string
	// UserID is its unique id; a role's is followed by ":" and the session's name.
	UserID string
	ARN    string
}

// refused is an authorizer's error.
type refused struct {
	refusal
	reason string
}

func (r refused) Error() string { return "gateway: " + r.reason }

// Unauthorized refuses a request whose caller is not known: HTTP status 401.
func Unauthorized(reason string) error { return refused{unauthorized, reason} }

// Forbidden refuses a request that its caller may not send: HTTP status 403.
func Forbidden(reason string) error { return refused{forbidden, reason} }

// refusalOf is the answer to an authorizer's error.
func refusalOf(err error) refusal {
	if r, ok := errors.AsType[refused](err); ok {
		return r.refusal
	}
	return misauthorized
}

// Tokens stands for a JWT authorizer (HTTPAPI), a Cognito user pool's (RESTAPI) or a listener's JWT verification (ALB).
// The function returns the claims of the caller, such as Issuer.Claims, or false to answer 401. No claims and true mean
// no authorizer in the event.
func Tokens(claims func(*http.Request) (map[string]string, bool)) Authorizer {
	return func(r Request) (Caller, error) {
		has, ok := claims(r.Request)
		if !ok {
			return Caller{}, Unauthorized("it has no valid token")
		}
		return Caller{Claims: has}, nil
	}
}

// Function is an authorizer of Lambda. What it answers is not kept for later requests.
type Function struct {
	Invoke Invoke
	// Version is the payload format of its events. The default, "1.0", is that of a REST API.
	Version string
	// Simple functions answer {"isAuthorized": true}, others with a policy.
	Simple bool
	// Token functions of a REST API get the value of the one identity source alone, and only if it matches Valid.
	Token bool
	Valid *regexp.Regexp // nil: each value does
	// Sources are where a request says who sends it, such as "$request.header.Authorization" or
	// "method.request.querystring.key". One without all of them is refused without asking the function.
	Sources []string
}

// source is a header or a query parameter.
var source = regexp.MustCompile(`^(?:\$|method\.)request\.(header|querystring)\.(.+)$`)

// SourceFor says whether a text can be one of Function.Sources.
func SourceFor(text string) bool { return source.MatchString(text) }

// Authorize is an Authorizer.
func (f Function) Authorize(r Request) (Caller, error) {
	var identity []string
	for _, s := range f.Sources {
		value := ""
		switch parts := source.FindStringSubmatch(s); {
		case parts == nil:
			return Caller{}, fmt.Errorf("gateway: %q is no header and no query parameter", s)
		case parts[1] == "header":
			value = r.Header.Get(parts[2])
		default:
			value = r.URL.Query().Get(parts[2])
		}
		if value == "" || f.Valid != nil && !f.Valid.MatchString(value) {
			return Caller{}, Unauthorized("it has no valid " + s)
		}
		identity = append(identity, value)
	}
	event, arn, err := f.event(r, identity)
	if err != nil {
		return Caller{}, err
	}
	answer, err := f.Invoke(context.WithoutCancel(r.Context()), event)
	if err != nil {
		if strings.HasSuffix(err.Error(), ": Unauthorized") { // the one error that the service knows
			return Caller{}, Unauthorized("its authorizer says so")
		}
		return Caller{}, fmt.Errorf("gateway: the authorizer has failed: %w", err)
	}
	return f.decide(answer, arn, r.handler.options.Flavour == RESTAPI)
}

// event is what the function gets, with the ARN of what the request asks for.
func (f Function) event(r Request, identity []string) (event []byte, arn string, err error) {
	o := r.handler.options
	arn = strings.Join([]string{iam.ARN("execute-api", o.APIID), o.Stage, r.Method, strings.TrimPrefix(r.path, "/")}, "/")
	if f.Token {
		event, err = json.Marshal(map[string]string{"type": "TOKEN", "methodArn": arn,
			"authorizationToken": strings.Join(identity, "")})
		return event, arn, err
	}
	var like any
	more := map[string]any{"type": "REQUEST", "methodArn": arn}
	if f.Version == "2.0" {
		like, _ = r.handler.event(r)
		more = map[string]any{"type": "REQUEST", "routeArn": arn, "identitySource": identity}
	} else if like, _ = r.handler.restEvent(r); r.handler.options.Flavour == HTTPAPI {
		more["version"], more["identitySource"] = "1.0", strings.Join(identity, ",")
		more["authorizationToken"] = more["identitySource"]
	}
	fields := map[string]any{}
	text, err := json.Marshal(like)
	if err == nil {
		err = json.Unmarshal(text, &fields)
	}
	if err != nil {
		return nil, arn, err
	}
	delete(fields, "body")
	delete(fields, "isBase64Encoded")
	maps.Copy(fields, more)
	event, err = json.Marshal(fields)
	return event, arn, err
}

// decide reads the function's answer. All that a REST API's says about the caller becomes text.
func (f Function) decide(answer []byte, arn string, asText bool) (Caller, error) {
	var says struct {
		authorized *bool
		principal  string
		policy     *policy
		context    map[string]json.RawMessage
	}
	_, err := members(answer, map[string]any{"isAuthorized": &says.authorized, "principalId": &says.principal,
		"policyDocument": &says.policy, "context": &says.context})
	switch {
	case err != nil:
	case f.Simple && says.authorized == nil:
		err = errors.New("it has no isAuthorized")
	case !f.Simple && says.policy == nil:
		err = errors.New("it has no policyDocument")
	case f.Simple && !*says.authorized:
		return Caller{}, refused{denied, "its authorizer says so"}
	}
	if err != nil {
		return Caller{}, fmt.Errorf("gateway: the authorizer's answer: %w", err)
	}
	if !f.Simple {
		allowed := false
		for _, s := range says.policy.statements {
			switch {
			case !match(s.actions, "(?i)", "execute-api:Invoke") || !match(s.resources, "", arn):
			case s.effect == "Deny":
				return Caller{}, refused{deniedExplicitly, "its authorizer's policy denies " + arn}
			default:
				allowed = true
			}
		}
		if !allowed {
			return Caller{}, refused{denied, "its authorizer's policy does not allow " + arn}
		}
	}
	caller := Caller{Context: map[string]any{}}
	if asText {
		caller.Context["principalId"] = says.principal
	}
	for name, value := range says.context {
		caller.Context[name] = value
		if !asText {
			continue
		}
		text := ""
		if strings.ContainsAny(string(value[:1]), "[{") {
			return Caller{}, fmt.Errorf("gateway: the authorizer's answer: context %s is no text, number or truth value", name)
		}
		if json.Unmarshal(value, &text) != nil {
			text = string(value)
		}
		caller.Context[name] = text
	}
	return caller, nil
}

// members reads members of an object, and returns the names of the others. AWS takes a name only as it is written, and
// package json in any case.
func members(object []byte, into map[string]any) (others []string, err error) {
	var all map[string]json.RawMessage
	if err := json.Unmarshal(object, &all); err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if to, ok := into[name]; !ok {
			others = append(others, name)
		} else if err := json.Unmarshal(all[name], to); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return others, nil
}

// policy that a function answers with.
type policy struct{ statements iam.List[statement] }

func (p *policy) UnmarshalJSON(text []byte) error {
	_, err := members(text, map[string]any{"Statement": &p.statements})
	return err
}

// statement of a policy.
type statement struct {
	effect             string // Allow or Deny
	actions, resources iam.List[string]
}

// UnmarshalJSON reads a statement. Without what is not evaluated it would allow more, so that is an error.
func (s *statement) UnmarshalJSON(text []byte) error {
	var id string
	others, err := members(text, map[string]any{"Sid": &id, "Effect": &s.effect, "Action": &s.actions,
		"Resource": &s.resources})
	switch {
	case err != nil:
		return err
	case len(others) > 0:
		return fmt.Errorf("%s of a statement is not evaluated here, only Effect, Action and Resource",
			strings.Join(others, ", "))
	case s.effect != "Allow" && s.effect != "Deny" || len(s.actions) == 0 || len(s.resources) == 0:
		return errors.New("a statement needs an Effect, which is Allow or Deny, an Action and a Resource")
	}
	return nil
}

// match finds a pattern for a text: * stands for any text, and ? for any character. flags are those of package regexp.
func match(patterns []string, flags, text string) bool {
	return slices.ContainsFunc(patterns, func(p string) bool {
		quoted := strings.NewReplacer(`\*`, `.*`, `\?`, `.`).Replace(regexp.QuoteMeta(p))
		return regexp.MustCompile("(?s)" + flags + "^" + quoted + "$").MatchString(text)
	})
}
