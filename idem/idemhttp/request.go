package idemhttp

import (
	"context"
	"maps"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// Request is a request in the contract's form, made by an adapter. The contract reads it
// before the handler runs and does not change it.
type Request struct {
	// Method in any case.
	Method string
	// Route is the path template that the gateway matched, such as "/payments/{id}";
	// empty if the gateway has none.
	Route string
	// Path is the concrete path, without a stage's prefix.
	Path string
	// Prefix is a part of the path that distinguishes requests and was removed before the
	// adapter, such as "/accounts/7". It begins with the host if that distinguishes requests
	// too. It is empty if nothing was removed.
	Prefix string
	// Stage of the API that got the request, such as "prod"; empty if the gateway has
	// none.
	Stage string
	// PathParameters are the template's parameters.
	PathParameters map[string]string
	// Query has every value of every parameter, decoded.
	Query map[string][]string
	// RawQuery is the part of the query that cannot be decoded, as the client sent it.
	RawQuery string
	// Header names may be in any case; the values are those of one field line each.
	Header map[string][]string
	// Body as the client sent it, without the gateway's Base64.
	Body []byte
	// Identity is what the gateway's authorizer has verified about the caller.
	Identity Identity
	// GatewayDeadline is when the gateway stops waiting for an answer and gives the
	// client its own: 29 s after it got the request for API Gateway's REST APIs, 30 s
	// for its HTTP APIs. Zero if it has no limit of its own. A concurrent
	// duplicate that waits is answered before it.
	GatewayDeadline time.Time
	// Fits reports whether the gateway can return a response and 256 bytes more, for the marks of a
	// replay. One that it cannot return is not kept: this caller and later ones get 409
	// outcome_unavailable. Nil if the gateway has no limit.
	Fits func(*Response) bool
	// Source is the gateway's own event or request, as a pointer, for a tenant function
	// of your own to read.
	Source any

	// load reads Body once the caller and the key of a header are known: who has neither must not
	// fill the memory. Nil if Body is there.
	load func() (*situation, error)
}

// Identity is what an authorizer knows about a caller. Fields that the gateway's
// authorizer does not give are empty.
type Identity struct {
	// Claims of a verified token (JWT authorizer, or a Cognito user pool's).
	Claims map[string]string
	// Authorizer is the context that a Lambda authorizer returned.
	Authorizer map[string]any
	// AccountID and UserID of the IAM principal that signed the request. UserID is
	// the principal's unique id; a role's is followed by ":" and the session's name.
	AccountID, UserID string
	// CognitoIdentityID is the identity pool's id of the IAM principal.
	CognitoIdentityID string
	// APIKeyID is the id, not the value, of the API key that came with the request.
	APIKeyID string
	// TenantID is the tenant that the Lambda invocation belongs to, in a function
	// with tenant isolation.
	TenantID string
}

// header returns all values of a header, whatever its spelling.
func (r *Request) header(name string) []string {
	var all []string
	for k, v := range r.Header {
		if strings.EqualFold(k, name) {
			if all == nil {
				all = v
			} else {
				all = append(all[:len(all):len(all)], v...)
			}
		}
	}
	return all
}

// isJSON reports whether the body is declared as JSON: application/json or a media type
// with the suffix +json (RFC 6839). A compressed body is not JSON.
func (r *Request) isJSON() bool {
	for _, coding := range r.header("Content-Encoding") {
		if coding != "" && !strings.EqualFold(coding, "identity") {
			return false
		}
	}
	types := r.header("Content-Type")
	if len(types) == 0 {
		return false
	}
	media, _, _ := strings.Cut(types[0], ";")
	media = strings.TrimSpace(media)
	if strings.EqualFold(media, "application/json") {
		return true
	}
	const suffix = "+json"
	n := len(media) - len(suffix)
	return n > 0 && strings.EqualFold(media[n:], suffix) && strings.Contains(media[:n], "/")
}

// location is the request's template, or its path if there is no template.
func (r *Request) location() string {
	if r.Route != "" {
		return r.Route
	}
	return r.Path
}

// Next is the handler behind the contract. A response in addition to an error counts only
// if [idem.Operation.Classify] calls the attempt completed.
type Next func(ctx context.Context) (*Response, error)

// fingerprint is the fingerprint of method, stage, route with its parameters and Prefix,
// query and body: JSON by its content, anything else by its bytes. An empty body counts as
// bytes, whatever its type. Only the headers about the body's form count: a retry may differ
// in all others.
func (c *Contract) fingerprint(r *Request) (idem.Fingerprint, error) {
	var b fingerprint.Builder
	b.Text("method", strings.ToUpper(r.Method))
	b.Text("stage", r.Stage)
	b.Text("prefix", r.Prefix)
	b.Text("route", r.location())
	b.Map("path", r.parameters())
	b.Values("query", r.Query)
	b.Text("raw query", r.RawQuery)
	if len(r.Body) > 0 && r.isJSON() {
		b.JSON("body", r.Body, c.opts.Select)
	} else {
		b.Bytes("body", r.Body)
	}
	return b.Sum()
}

// parameters are the values of the template's parameters. If the gateway does not pass all
// of them, the path counts too: two resources under one template are two requests.
func (r *Request) parameters() map[string]string {
	for rest := r.Route; ; {
		_, after, ok := strings.Cut(rest, "{")
		if !ok {
			return r.PathParameters
		}
		name, after, _ := strings.Cut(after, "}")
		rest = after
		name = strings.TrimSuffix(strings.TrimSuffix(name, "+"), "...")
		if name == "$" || r.PathParameters[name] != "" {
			continue
		}
		all := map[string]string{wholePath: r.Path}
		maps.Copy(all, r.PathParameters)
		return all
	}
}
