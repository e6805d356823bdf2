package idemhttp

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"reflect"
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// FromRequest makes a [TenantFunc] of a function of the net/http request, whose context may
// hold what an authenticating middleware has verified. It is only for
// [Contract.Middleware]: a request of another gateway is an error. A nil f panics.
func FromRequest(f func(*http.Request) (string, error)) TenantFunc {
	if f == nil {
		panic(&idem.ConfigError{What: "idemhttp.FromRequest", Problem: "the function is nil"})
	}
	return func(_ context.Context, r *Request) (string, error) {
		given, ok := r.Source.(*http.Request)
		if !ok {
			return "", mistake("idemhttp.FromRequest reads requests of net/http, and this one is a %T", r.Source)
		}
		tenant, err := f(given)
		if err != nil {
			return "", err
		}
		return present(tenant)
	}
}

// located is the part of the contract's request by which its route is found.
func (o *MiddlewareOptions) located(r *http.Request) *Request {
	at := &Request{Method: r.Method, Path: r.URL.EscapedPath(), Route: templateOf(r.Pattern)}
	if o.Route != nil {
		// A panic comes again where the whole request is made. In shadow it is only reported.
		safely(func() bool { at.Route = o.Route(withBody(r.WithContext(r.Context()), nil)); return true })
	}
	return at
}

// request makes the contract's request, without its body. Inside is the pattern of a mux inside, if
// there is one.
func (o *MiddlewareOptions) request(r *http.Request, inside string) *Request {
	out := &Request{
		Method: r.Method,
		Path:   r.URL.EscapedPath(),
		Prefix: cmp.Or(hostOf(r.Pattern), hostOf(inside)) + prefixOf(r),
		Header: r.Header,
	}
	out.setBody(r, nil)
	out.Query, out.RawQuery = queryOf(r.URL.RawQuery)
	if o.Identity != nil {
		out.Identity = o.Identity(withBody(r.WithContext(r.Context()), nil))
	}
	if o.Route != nil {
		// The router does not report which parameters it found, so the path counts.
		if out.Route = o.Route(withBody(r.WithContext(r.Context()), nil)); out.Route != "" {
			out.PathParameters = map[string]string{wholePath: out.Path}
		}
		return out
	}
	out.Route = templateOf(r.Pattern)
	if out.Route == "" {
		return out
	}
	out.PathParameters = map[string]string{}
	for segment := range strings.SplitSeq(out.Route, "/") {
		name, ok := strings.CutPrefix(segment, "{")
		if name = strings.TrimSuffix(strings.TrimSuffix(name, "}"), "..."); ok && name != "$" {
			out.PathParameters[name] = r.PathValue(name)
		}
	}
	// A template that ends in a slash stands for all paths below.
	if strings.HasSuffix(out.Route, "/") {
		out.PathParameters[wholePath] = out.Path
	}
	return out
}

// setBody sets the body, and gives the source one of its own to read.
func (r *Request) setBody(source *http.Request, body []byte) {
	r.Body, r.Source = body, withBody(source.WithContext(source.Context()), body)
}

// wholePath is the parameter that holds the path if the template's own parameters do not
// tell all of it. No template can name it.
const wholePath = ""

// templateOf removes method and host from a pattern of [http.ServeMux].
func templateOf(pattern string) string {
	if i := strings.IndexByte(pattern, '/'); i >= 0 {
		return pattern[i:]
	}
	return ""
}

// hostOf is the host in a pattern of [http.ServeMux], if there is one: the same path of
// another host is then another resource.
func hostOf(pattern string) string {
	before, _, _ := strings.Cut(pattern, "/")
	return before[strings.LastIndexAny(before, " \t")+1:]
}

// prefixOf is the part of the client's path that [http.StripPrefix] or a mux has removed,
// such as an account. If the path was changed in another way, it is the whole path.
func prefixOf(r *http.Request) string {
	sent := r.RequestURI
	if u, err := url.ParseRequestURI(sent); err == nil {
		sent = u.EscapedPath()
	}
	prefix, _ := strings.CutSuffix(sent, r.URL.EscapedPath())
	return prefix
}

// queryOf decodes a query. One that is not well-formed counts as it is.
func queryOf(raw string) (query map[string][]string, invalid string) {
	if raw == "" {
		return nil, ""
	}
	q, err := url.ParseQuery(raw)
	if err != nil {
		return nil, raw
	}
	return q, ""
}

// within is the pattern by which a mux inside will route the request. Routed is false if the mux
// has no handler for it: the mux then answers 404 or 405, or redirects the client to the path's
// clean form. The key counts for the redirect's target, so the redirect must not use it up.
func within(next http.Handler, r *http.Request) (pattern string, routed bool) {
	mux, ok := next.(*http.ServeMux)
	if !ok {
		return "", true
	}
	h, pattern := mux.Handler(r)
	return pattern, pattern != "" && reflect.TypeOf(h) != redirects
}

var redirects = reflect.TypeOf(http.RedirectHandler("/", http.StatusTemporaryRedirect))
