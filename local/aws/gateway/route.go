package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strings"
)

const (
	defaultRoute = "$default"
	anyMethod    = "ANY"
)

// routeKey is a method and a path: literals, {parameters}, and last a {greedy+} one.
var routeKey = regexp.MustCompile(
	`^(ANY|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT) ((?:/(?:[^/{}?# ]*|\{[^/{}+]+\}))*(?:/\{[^/{}+]+\+\})?)$`)

type segmentKind byte

// In the order in which the service prefers them.
const (
	literal   segmentKind = '0'
	parameter segmentKind = '1'
	greedy    segmentKind = '2'
)

func kindOf(segment string) segmentKind {
	switch {
	case strings.HasSuffix(segment, "+}"):
		return greedy
	case strings.HasPrefix(segment, "{"):
		return parameter
	}
	return literal
}

type route struct {
	key, method, path string
	segments          []string
	order             string // of the kinds
	invoke            Invoke
}

// table is the routes, most specific first; fallback is $default or nil.
type table struct {
	routes   []route
	fallback *route
}

func newTable(routes map[string]Invoke) (t table, err error) {
	if len(routes) == 0 {
		return t, errors.New(`gateway: no routes; give at least one, such as "POST /payments"`)
	}
	for key, invoke := range routes {
		if invoke == nil {
			return t, fmt.Errorf("gateway: route %q has no function", key)
		}
		if key == defaultRoute {
			t.fallback = &route{key: key, invoke: invoke}
			continue
		}
		parts := routeKey.FindStringSubmatch(key)
		if parts == nil || parts[2] == "" {
			return t, fmt.Errorf(`gateway: route %q is neither "$default" nor like "POST /payments/{id}" or "ANY /{rest+}"`, key)
		}
		r := route{key: key, method: parts[1], path: parts[2], segments: strings.Split(parts[2][1:], "/"), invoke: invoke}
		for _, segment := range r.segments {
			r.order += string(kindOf(segment))
		}
		t.routes = append(t.routes, r)
	}
	any := func(r route) int {
		if r.method == anyMethod {
			return 1
		}
		return 0
	}
	slices.SortFunc(t.routes, func(a, b route) int {
		return cmp.Or(cmp.Compare(a.order, b.order), any(a)-any(b), cmp.Compare(a.key, b.key))
	})
	return t, nil
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
	for i, segment := range r.segments {
		if i >= len(texts) {
			return nil, false
		}
		name := strings.Trim(segment, "{+}")
		switch kindOf(segment) {
		case literal:
			if segment != texts[i] {
				return nil, false
			}
		case parameter:
			if texts[i] == "" {
				return nil, false
			}
			parameters[name] = texts[i]
		case greedy:
			parameters[name] = strings.Join(texts[i:], "/")
			return parameters, parameters[name] != ""
		}
	}
	return parameters, len(texts) == len(r.segments)
}
