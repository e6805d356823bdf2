// Package coverage compares an API's description with the operations that a service
// declares. It is for tests:
//
//	func TestEveryRouteIsProtected(t *testing.T) {
//		coverage.Require(t, routes, "openapi.yaml")
//	}
//
// It sees no keys: a contract logs those that are easy to guess, and idemctl check counts them.
//
// It is a package of its own because it reads OpenAPI 3 in YAML or JSON with a library that
// no handler needs.
package coverage

import (
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"

	"github.com/getkin/kin-openapi/openapi3"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

// TB is the part of [testing.TB] that [Require] needs.
type TB interface {
	Helper()
	Fatalf(format string, args ...any)
}

// Require fails the test if the API that an OpenAPI file describes has routes that
// need a key and declare no operation, and names them. Methods are those of
// [idemhttp.Options.Methods]; none mean POST and PATCH.
func Require(t TB, routes idemhttp.Routes, file string, methods ...string) {
	t.Helper()
	api, err := FromFile(file)
	if err != nil {
		t.Fatalf("%v", err)
		return
	}
	missing, err := idemhttp.MissingRoutes(routes, api, methods...)
	if err != nil {
		t.Fatalf("%s: %v", file, err)
		return
	}
	if len(missing) > 0 {
		t.Fatalf("%s has routes that need a key and declare no operation: declare one for each in idemhttp.Routes, or "+
			"idemhttp.Unprotected, with the template as it is written here:\n\t%s", file, strings.Join(missing, "\n\t"))
	}
}

// FromFile returns the routes of the API that an OpenAPI 3 file describes, sorted
// and as [idemhttp.MissingRoutes] takes them. Path items may be in other files next to
// it; nothing is fetched from a network. API Gateway's exports are understood:
// x-amazon-apigateway-any-method is ANY, the path /$default is $default. The
// servers' base paths are not part of a route, just as stages are not for a handler.
// [FromDocument] takes a document in memory.
func FromFile(file string) ([]string, error) {
	absolute, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("coverage: %w", err)
	}
	return load(file, func(l *openapi3.Loader) (*openapi3.T, error) {
		l.ReadFromURIFunc = onlyFiles
		return l.LoadFromFile(absolute)
	})
}

// FromDocument is [FromFile] for a document in memory, such as an embedded one. It
// cannot refer to other files.
func FromDocument(document []byte) ([]string, error) {
	return load("the document", func(l *openapi3.Loader) (*openapi3.T, error) { return l.LoadFromData(document) })
}

const anyExtension = "x-amazon-apigateway-any-method"

func load(name string, read func(*openapi3.Loader) (*openapi3.T, error)) ([]string, error) {
	doc, err := read(openapi3.NewLoader())
	if err != nil {
		return nil, fmt.Errorf("coverage: %s is not an OpenAPI 3 document that can be read: %w", name, err)
	}
	if !strings.HasPrefix(doc.OpenAPI, "3.") {
		return nil, fmt.Errorf("coverage: %s is not an OpenAPI 3 document: its openapi field is %q (export or convert "+
			"it as 3.0 or later)", name, doc.OpenAPI)
	}
	var routes []string
	for path, item := range doc.Paths.Map() {
		if path == "/$default" {
			routes = append(routes, "$default")
			continue
		}
		if item == nil {
			continue
		}
		for method := range item.Operations() {
			routes = append(routes, method+" "+path)
		}
		if _, all := item.Extensions[anyExtension]; all {
			routes = append(routes, "ANY "+path)
		}
	}
	if len(routes) == 0 {
		return nil, fmt.Errorf("coverage: %s describes no routes: an API without any would pass every check", name)
	}
	slices.Sort(routes)
	return routes, nil
}

var errNotLocal = errors.New("it refers to another place than a local file: bundle the document first")

func onlyFiles(l *openapi3.Loader, at *url.URL) ([]byte, error) {
	if at.Host != "" || at.Scheme != "" && at.Scheme != "file" {
		return nil, fmt.Errorf("%s: %w", at, errNotLocal)
	}
	return openapi3.ReadFromFile(l, at)
}
