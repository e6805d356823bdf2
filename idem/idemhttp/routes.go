package idemhttp

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/keys"
	"github.com/idem-go/idempotency/idem/internal/pathtemplate"
)

// Routes declares the operation of each method and route template, written as
// API Gateway writes them: "POST /payments/{id}/refunds", or as [net/http.ServeMux]
// does. If the gateway matches no declared template, the path itself is looked up, and then
// the template that it matches: "{name}" stands for one segment, "{name+}" and "{name...}"
// for the rest. Of several templates the one that is literal for longest wins.
//
// A route that needs a key and is not declared is refused with 500 operation_undeclared, and logged as a
// warning to slog.Default. Declare [Unprotected] for those that are to be left alone.
type Routes map[string]idem.Operation

// AnyRoute declares one operation for every route of a function that has only
// one. The route is still part of the fingerprint.
func AnyRoute(op idem.Operation) Routes { return Routes{anyRoute: op} }

const anyRoute = "*"

type route struct{ method, location string }

// declared is what a contract knows of a route.
type declared struct {
	RouteOptions
	op          idem.Operation
	unprotected bool
	guessable   atomic.Bool // a key that is easy to guess is logged
}

// logGuessable logs the first key of the route that is easy to guess. It is a key like any other until two requests
// have it, and only the service sees the keys of all of its clients.
func (d *declared) logGuessable(ctx context.Context, r *Request, key string) {
	if d.guessable.Load() || !keys.Guessable(key) || d.guessable.Swap(true) {
		return
	}
	slog.WarnContext(ctx, "idemhttp: a request has a key that is easy to guess: one repeated character, or it ends in a "+
		"short number. Another request with the same one is refused, or gets this one's answer. Have clients send random "+
		"UUIDs, unless it is the number of what they ask for", "operation", d.op.Name, "method", r.Method, "route", r.Route)
}

// passes reports whether requests of the route need no key.
func (d *declared) passes() bool { return d != nil && d.unprotected }

// compile checks the routes and makes their table.
func (r Routes) compile(methods []string) (map[route]*declared, error) {
	if len(r) == 0 {
		return nil, mistake("there are no routes: declare an operation for each, such as {\"POST /payments\": Charge}")
	}
	table := make(map[route]*declared, len(r))
	repeats := map[string]idem.Repeat{}
	for _, name := range slices.Sorted(maps.Keys(r)) {
		d := &declared{op: outcomeOf(r[name])}
		if _, d.unprotected = d.op.Values.(unprotected); !d.unprotected {
			if err := d.op.Check(); err != nil {
				return nil, fmt.Errorf("idemhttp: route %q: %w", name, err)
			}
			// Routes may share an operation, and with it their keys, but then the declarations
			// must be the same.
			if repeat, ok := repeats[d.op.Name]; ok && repeat != d.op.Repeat {
				return nil, mistake("route %q: another route declares operation %q with the other Repeat: give them two names, "+
					"or one declaration", name, d.op.Name)
			}
			repeats[d.op.Name] = d.op.Repeat
		}
		if name == anyRoute {
			switch {
			case len(r) > 1:
				return nil, mistake("the routes mix AnyRoute with others: declare every route, or only AnyRoute")
			case d.unprotected:
				return nil, mistake("AnyRoute(Unprotected) leaves nothing to protect: declare the operations of the routes " +
					"that need a key, and Unprotected for single others")
			}
			table[route{}] = d
			continue
		}
		method, location, ok := parseRoute(name)
		switch {
		case !ok:
			return nil, mistake("route %q: write method and path template, such as \"POST /payments/{id}\"", name)
		case !pathtemplate.Valid(location):
			return nil, mistake("route %q: a parameter is a whole segment in braces, such as \"{id}\"", name)
		case d.unprotected && (isRest(location) || strings.HasSuffix(location, "/")):
			return nil, mistake("route %q: Unprotected would also take a protected path in another spelling, such as with a "+
				"doubled slash: name each route that is to be left alone", name)
		case !slices.Contains(methods, method):
			return nil, mistake("route %q: %s needs no key, so its declaration would never be used: add it to Methods "+
				"or remove the route", name, method)
		}
		table[route{method, location}] = d
	}
	return table, nil
}

// named returns what is declared for a route that an option names.
func (c *Contract) named(option, name string) (*declared, error) {
	method, location, ok := parseRoute(name)
	d := c.routes[route{method, location}]
	switch {
	case !ok || d == nil:
		return nil, mistake("%s has the route %q, which is not declared: declare its operation in the routes, by the same "+
			"name", option, name)
	case d.passes():
		return nil, mistake("%s has the route %q, which is Unprotected: declare an operation for it, or leave it out of %s",
			option, name, option)
	}
	return d, nil
}

// parseRoute splits "POST /payments/{id}".
func parseRoute(name string) (method, location string, ok bool) {
	method, location, ok = strings.Cut(name, " ")
	ok = ok && isToken(method) && method == strings.ToUpper(method) && strings.HasPrefix(location, "/") &&
		!strings.ContainsAny(location, " ?#")
	return method, location, ok
}

// byTemplate finds the declared template that the path matches, for
// gateways that match no templates themselves. Of several templates the one that is literal
// for longest wins, as in API Gateway.
func (c *Contract) byTemplate(method, path string, fits func(pathtemplate.Segment, string) bool) (found *declared) {
	var best string
	method = strings.ToUpper(method)
	for at, d := range c.routes {
		if at.method != method {
			continue
		}
		rank, ok := pathtemplate.Match(path, at.location, fits)
		if rank += at.location; ok && (best == "" || rank < best) {
			best, found = rank, d
		}
	}
	return found
}

// isLiteral takes any part for a parameter.
func isLiteral(s pathtemplate.Segment, part string) bool {
	return s.Kind != pathtemplate.Literal || s.Text == part
}

// isDecoded is isLiteral for gateways that decode each segment.
func isDecoded(s pathtemplate.Segment, part string) bool {
	return s.Kind != pathtemplate.Literal || same(part, s.Text)
}

// WithoutBase removes what precedes a route's template in a path: the stage, or the base
// path of a custom domain. A path that does not end in the template with these parameters
// is returned unchanged. It is for adapters of services that send template and parameters
// in addition to the path.
func WithoutBase(path, template string, parameters map[string]string) string {
	switch template {
	case "":
		return path
	case "/":
		return template
	}
	template = "/" + strings.Trim(template, "/")
	fits := func(s pathtemplate.Segment, part string) bool {
		switch s.Kind {
		case pathtemplate.Parameter:
			return same(part, parameters[s.Text])
		case pathtemplate.Rest:
			return same(part, strings.Trim(parameters[s.Text], "/"))
		}
		return same(part, s.Text)
	}
	for have := "/" + strings.Trim(path, "/"); ; {
		if _, ok := pathtemplate.Match(have, template, fits); ok {
			return have
		}
		next := strings.IndexByte(have[1:], '/')
		if next < 0 {
			return path
		}
		have = have[1+next:]
	}
}

// same compares a part of a path with the service's value for it. Only one of them may
// be decoded.
func same(a, b string) bool {
	if a == b {
		return true
	}
	decoded, err := url.PathUnescape(a)
	return err == nil && decoded == b
}
