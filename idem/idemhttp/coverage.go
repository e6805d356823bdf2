package idemhttp

import (
	"slices"
)

const (
	// anyMethod is how API Gateway writes a route for all methods.
	anyMethod = "ANY"
	// defaultRoute is API Gateway's route for requests that match no other.
	defaultRoute = "$default"
)

// MissingRoutes returns the routes of an API that need a key and declare neither an operation nor
// [Unprotected]: requests to them would be refused with 500. The API's routes are written as in
// [Routes]. "ANY /payments" stands for all methods; "$default" has no template and
// only [AnyRoute] covers it. The methods are those of [Options.Methods]; none mean POST
// and PATCH. Routes with other methods are ignored.
//
// The result is sorted, and has one entry for each method and template. It is empty if
// all routes are covered. Templates match if they are written in the same way, including
// the names of parameters, because requests find their operation like that. A route or
// method that cannot be read is a [*idem.ConfigError]. Package coverage reads the routes
// from an OpenAPI document.
func MissingRoutes(routes Routes, api []string, methods ...string) ([]string, error) {
	methods, problem := keyedMethods(methods)
	if problem != "" {
		return nil, mistake("%s", problem)
	}
	_, all := routes[anyRoute]
	var missing []string
	for _, name := range api {
		if name == defaultRoute {
			if !all {
				missing = append(missing, name)
			}
			continue
		}
		method, location, ok := parseRoute(name)
		if !ok {
			return nil,
				mistake("route %q of the API: write method and path template, such as \"POST /payments/{id}\", or $default", name)
		}
		for _, m := range methods {
			if method != m && method != anyMethod {
				continue
			}
			if _, declared := routes[m+" "+location]; !declared && !all {
				missing = append(missing, m+" "+location)
			}
		}
	}
	slices.Sort(missing)
	return slices.Compact(missing), nil
}
