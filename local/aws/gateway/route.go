package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	defaultRoute = "$default"
	anyMethod    = "ANY"
)

var methods = []string{
	anyMethod, http.MethodDelete, http.MethodGet, http.MethodHead, http.MethodOptions,
	http.MethodPatch, http.MethodPost, http.MethodPut,
}

var parameterName = regexp.MustCompile(`\{[^}+]*`)

type segmentKind int

// In the order in which the service prefers them.
const (
	literal segmentKind = iota
	parameter
	greedy
)

type segment struct {
	kind segmentKind
	text string // of a literal, or the parameter's name
}

type route struct {
	key      string
	method   string
	segments []segment
	invoke   Invoke
}

// table is the routes, most specific first; fallback is $default or nil.
type table struct {
	routes   []route
	fallback *route
}

func newTable(routes map[string]Invoke) (table, error) {
	if len(routes) == 0 {
		return table{}, errors.New(`gateway: no routes; give at least one, such as "POST /payments"`)
	}
	var t table
	shapes := map[string]string{} // the same for routes that match the same requests
	for key, invoke := range routes {
		if invoke == nil {
			return table{}, fmt.Errorf("gateway: route %q has no function", key)
		}
		if key == defaultRoute {
			t.fallback = &route{key: key, invoke: invoke}
			continue
		}
		parsed, err := parseRoute(key)
		if err != nil {
			return table{}, err
		}
		shape := parameterName.ReplaceAllString(key, "{")
		if other, taken := shapes[shape]; taken {
			return table{}, fmt.Errorf("gateway: routes %q and %q match the same requests", min(key, other), max(key, other))
		}
		shapes[shape] = key
		parsed.invoke = invoke
		t.routes = append(t.routes, parsed)
	}
	slices.SortFunc(t.routes, func(a, b route) int {
		bySegment := slices.CompareFunc(a.segments, b.segments, func(a, b segment) int { return cmp.Compare(a.kind, b.kind) })
		switch {
		case bySegment != 0:
			return bySegment
		case a.method == anyMethod && b.method != anyMethod:
			return 1
		case b.method == anyMethod && a.method != anyMethod:
			return -1
		}
		return cmp.Compare(a.key, b.key)
	})
	return t, nil
}

func parseRoute(key string) (route, error) {
	method, path, ok := strings.Cut(key, " ")
	if !ok || !strings.HasPrefix(path, "/") || strings.ContainsAny(path, " ?#") {
		return route{}, fmt.Errorf(`gateway: route %q is neither "$default" nor like "POST /payments/{id}"`, key)
	}
	if !slices.Contains(methods, method) {
		return route{}, fmt.Errorf("gateway: route %q: method is not one of %s", key, strings.Join(methods, ", "))
	}
	parsed := route{key: key, method: method}
	texts := strings.Split(path[1:], "/")
	names := map[string]bool{}
	for i, text := range texts {
		name, isParameter := strings.CutPrefix(text, "{")
		if !isParameter {
			if strings.ContainsAny(text, "{}") {
				return route{}, fmt.Errorf("gateway: route %q: a parameter is a whole segment", key)
			}
			parsed.segments = append(parsed.segments, segment{literal, text})
			continue
		}
		name, closed := strings.CutSuffix(name, "}")
		name, isGreedy := strings.CutSuffix(name, "+")
		switch {
		case !closed || name == "" || strings.ContainsAny(name, "{}+"):
			return route{}, fmt.Errorf("gateway: route %q: malformed parameter %q", key, text)
		case isGreedy && i != len(texts)-1:
			return route{}, fmt.Errorf("gateway: route %q: %q must be the last segment", key, text)
		case names[name]:
			return route{}, fmt.Errorf("gateway: route %q names parameter %q twice", key, name)
		}
		names[name] = true
		kind := parameter
		if isGreedy {
			kind = greedy
		}
		parsed.segments = append(parsed.segments, segment{kind, name})
	}
	return parsed, nil
}

// match finds the route and its path parameters; nil if there is none.
func (t table) match(method, escapedPath string) (*route, map[string]string) {
	texts := strings.Split(strings.TrimPrefix(escapedPath, "/"), "/")
	for i, text := range texts {
		// The server has parsed the path, so its escapes are valid.
		texts[i], _ = url.PathUnescape(text)
	}
	for i := range t.routes {
		if parameters, ok := t.routes[i].match(method, texts); ok {
			return &t.routes[i], parameters
		}
	}
	return t.fallback, nil
}

func (r *route) match(method string, texts []string) (map[string]string, bool) {
	if r.method != anyMethod && r.method != method {
		return nil, false
	}
	parameters := map[string]string{}
	for i, s := range r.segments {
		if i >= len(texts) {
			return nil, false
		}
		switch s.kind {
		case literal:
			if s.text != texts[i] {
				return nil, false
			}
		case parameter:
			if texts[i] == "" {
				return nil, false
			}
			parameters[s.text] = texts[i]
		case greedy:
			rest := strings.Join(texts[i:], "/")
			parameters[s.text] = rest
			return parameters, rest != ""
		}
	}
	return parameters, len(texts) == len(r.segments)
}

// path is the key without the method.
func (r *route) path() string {
	_, path, _ := strings.Cut(r.key, " ")
	return path
}
