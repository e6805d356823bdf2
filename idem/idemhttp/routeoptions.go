package idemhttp

import "cmp"

// RouteOptions say for one route whose its requests are and where their keys are, for
// [Options.ByRoute]. A zero field means what the contract has. So what a route must be without, such as
// a principal or an optional key, is not set for the contract, but for each of the other routes.
type RouteOptions struct {
	// Tenant returns the tenant of a request. Nil means the tenant function of the contract, see [New].
	Tenant TenantFunc

	// Principal, Key, MinKey and KeyOptional are as in [Options].
	Principal   TenantFunc
	Key         KeySource
	MinKey      int
	KeyOptional bool
}

// forAll are the options of the routes that have none of their own.
func (o *Options) forAll(tenant TenantFunc) RouteOptions {
	all := RouteOptions{Tenant: tenant, Principal: o.Principal, Key: o.Key, MinKey: o.MinKey, KeyOptional: o.KeyOptional}
	if all.Key.isZero() {
		all.Key.header = DefaultKeyHeader
	}
	if all.MinKey == 0 {
		if all.MinKey = DefaultMinKey; o.Profile == Stripe {
			all.MinKey = 1
		}
	}
	return all
}

// check reports a mistake in the options; of says whose they are.
func (o *RouteOptions) check(of string) error {
	switch {
	case o.MinKey < 0 || o.MinKey > MaxKey:
		return mistake("%sMinKey is %d: use 1 to %d, or zero for %d", of, o.MinKey, MaxKey, DefaultMinKey)
	case o.Key.from != nil && o.MinKey != 0:
		return mistake("%sMinKey does not count for keys of your own function: leave it out, and check them there", of)
	}
	return o.Key.check(of)
}

// over returns the options with those of the rest where they are zero.
func (o RouteOptions) over(rest RouteOptions) RouteOptions {
	if o.Tenant == nil {
		o.Tenant = rest.Tenant
	}
	if o.Principal == nil {
		o.Principal = rest.Principal
	}
	if o.Key.isZero() {
		o.Key = rest.Key
	}
	o.MinKey = cmp.Or(o.MinKey, rest.MinKey)
	o.KeyOptional = o.KeyOptional || rest.KeyOptional
	return o
}
