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

	// The kinds of segments, in the order in which the service prefers them.
	literal, parameter, greedy = "0", "1", "2"
)

// routeKey is a method and a path: literals, {parameters}, and last a {greedy+} one.
var routeKey = regexp.MustCompile(
	`^(ANY|DELETE|GET|HEAD|OPTIONS|PATCH|POST|PUT) ((?:/(?:[^/{}?# ]*|\{[^/{}+]+\}))*(?:/\{[^/{}+]+\+\})?)$`)

type route struct {
	key, method, path string
	pattern           *regexp.Regexp // of an escaped path, with a group for each parameter
	parameters        []string
	order             string // of the segments' kinds
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
		r, err := newRoute(key, invoke)
		if err != nil {
			return t, err
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

func newRoute(key string, invoke Invoke) (route, error) {
	parts := routeKey.FindStringSubmatch(key)
	if parts == nil || parts[2] == "" {
		return route{},
			fmt.Errorf(`gateway: route %q is neither "$default" nor like "POST /payments/{id}" or "ANY /{rest+}"`, key)
	}
	r := route{key: key, method: parts[1], path: parts[2], invoke: invoke}
	pattern := "^"
	for segment := range strings.SplitSeq(r.path[1:], "/") {
		kind, group := parameter, "/([^/]+)"
		switch {
		case strings.HasSuffix(segment, "+}"):
			kind, group = greedy, "/(.+)"
		case !strings.HasPrefix(segment, "{"):
			kind, group = literal, "/"+regexp.QuoteMeta(url.PathEscape(segment))
		}
		r.order, pattern = r.order+kind, pattern+group
		if kind != literal {
			r.parameters = append(r.parameters, strings.Trim(segment, "{+}"))
		}
	}
	r.pattern = regexp.MustCompile(pattern + "$")
	return r, nil
}

// match finds the route and its path parameters; nil if there is none.
func (t table) match(method, escapedPath string) (*route, map[string]string) {
	// One spelling for each path behind the stage. The server has parsed it, so its escapes are valid.
	segments := strings.Split(escapedPath, "/")
	for i, segment := range segments {
		segment, _ = url.PathUnescape(segment)
		segments[i] = url.PathEscape(segment)
	}
	path := strings.Join(segments, "/")
	for i := range t.routes {
		r := &t.routes[i]
		values := r.pattern.FindStringSubmatch(path)
		if values == nil || r.method != anyMethod && r.method != method {
			continue
		}
		parameters := map[string]string{}
		for j, name := range r.parameters {
			parameters[name], _ = url.PathUnescape(values[j+1])
		}
		return r, parameters
	}
	return t.fallback, nil
}
