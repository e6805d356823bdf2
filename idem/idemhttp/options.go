package idemhttp

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// DefaultKeyHeader is the header that carries the key, as the IETF draft
// draft-ietf-httpapi-idempotency-key-header names it.
const DefaultKeyHeader = "Idempotency-Key"

// Routes declares the operation of each method and route template, written as
// API Gateway writes them: "POST /payments/{id}/refunds". Where the front matches
// no template, the path itself is looked up.
type Routes map[string]idem.Operation

// AnyRoute declares one operation for every route of a function that has only
// one. The route is still part of the fingerprint.
func AnyRoute(op idem.Operation) Routes { return Routes{anyRoute: op} }

const anyRoute = "*"

// Options of a contract. Zero fields mean the defaults, but Tenant is required.
type Options struct {
	// Tenant says whose request it is: one of this package's functions or your own.
	// Required; say [NoTenant] if the service has none.
	Tenant TenantFunc

	// KeyHeader is the name of the key's header. Empty means [DefaultKeyHeader].
	KeyHeader string

	// MinKey is the least length of a key in characters, 1 to [MaxKey]. Zero means
	// [DefaultMinKey]. With short keys two clients meet by accident.
	MinKey int

	// Methods need a key; all others pass untouched. Empty means POST and PATCH,
	// which HTTP does not define as idempotent.
	Methods []string

	// Select says which parts of a JSON body tell one request from another; nil
	// means all. A body that is not JSON counts as a whole.
	Select *idem.Select
}

type route struct{ method, location string }

// check returns the options with their defaults, or what is wrong with them.
func (o *Options) check() (Options, error) {
	var out Options
	if o != nil {
		out = *o
	}
	switch {
	case out.Tenant == nil:
		return out, mistake("Tenant is nil: say whose request it is, such as idemhttp.Claim(\"sub\"), or idemhttp.NoTenant if the service has no tenants")
	case out.MinKey < 0 || out.MinKey > MaxKey:
		return out, mistake("MinKey is %d: use 1 to %d, or zero for %d", out.MinKey, MaxKey, DefaultMinKey)
	case out.KeyHeader != "" && !isToken(out.KeyHeader):
		return out, mistake("KeyHeader %q is not a header name", out.KeyHeader)
	}
	if err := out.Select.Check(); err != nil {
		return out, err
	}
	if out.KeyHeader == "" {
		out.KeyHeader = DefaultKeyHeader
	}
	if out.MinKey == 0 {
		out.MinKey = DefaultMinKey
	}
	out.Methods = slices.Clone(out.Methods)
	if len(out.Methods) == 0 {
		out.Methods = []string{"POST", "PATCH"}
	}
	for _, m := range out.Methods {
		if !isToken(m) || m != strings.ToUpper(m) {
			return out, mistake("Methods has %q: write methods in capitals, such as POST", m)
		}
	}
	return out, nil
}

// compile checks the routes and makes their table.
func (r Routes) compile(methods []string) (map[route]idem.Operation, error) {
	if len(r) == 0 {
		return nil, mistake("there are no routes: declare an operation for each, such as {\"POST /payments\": Charge}")
	}
	table := make(map[route]idem.Operation, len(r))
	for _, name := range slices.Sorted(maps.Keys(r)) {
		op := r[name]
		if err := op.Check(); err != nil {
			return nil, fmt.Errorf("idemhttp: route %q: %w", name, err)
		}
		if name == anyRoute {
			if len(r) > 1 {
				return nil, mistake("the routes mix AnyRoute with others: declare every route, or only AnyRoute")
			}
			table[route{}] = outcomeOf(op)
			continue
		}
		method, location, ok := strings.Cut(name, " ")
		switch {
		case !ok || !isToken(method) || method != strings.ToUpper(method) || !strings.HasPrefix(location, "/") || strings.ContainsAny(location, " ?#"):
			return nil, mistake("route %q: write method and path template, such as \"POST /payments/{id}\"", name)
		case !slices.Contains(methods, method):
			return nil, mistake("route %q: %s needs no key, so its operation would never be used: add it to Methods or remove the route", name, method)
		}
		table[route{method, location}] = outcomeOf(op)
	}
	return table, nil
}

func mistake(format string, args ...any) error {
	return &idem.ConfigError{What: "HTTP contract", Problem: fmt.Sprintf(format, args...)}
}

// isToken reports whether s is a token of RFC 9110 5.6.2.
func isToken(s string) bool {
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`"(),/:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return s != ""
}
