package idemhttp

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"path"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// Headers of a replay.
const (
	// HeaderReplayed is "true" on a response that was recorded earlier. [HeaderOriginalDate]
	// and [HeaderExpires] come with it.
	HeaderReplayed = "Idempotency-Replayed"
	// HeaderReplayedStripe is the name of [HeaderReplayed] in the Stripe profile.
	HeaderReplayedStripe = "Idempotent-Replayed"
	// HeaderOriginalDate is when the response of a replay was recorded, as an HTTP
	// date.
	HeaderOriginalDate = "Idempotency-Original-Date"
	// HeaderExpires is when the recorded response stops being replayed, as an HTTP
	// date (RFC 9110 5.6.7). A client must not send the request again after it.
	HeaderExpires = "Idempotency-Expires"
)

// Contract serves requests under the rules of this package. It keeps nothing of a request, and is safe
// for concurrent use. The first key of a route that is easy to guess, one repeated character or a number of
// fewer than 8 digits, is logged as a warning to slog.Default, and accepted.
type Contract struct {
	engine *idem.Engine
	opts   Options
	routes map[route]*declared
	later  accepted // nil without any
	rows   map[Code]row
	// undeclared is what requests of other routes are in shadow, if all operations are; else nil.
	undeclared *declared
	anyShadow  bool // an operation is in shadow
}

// New returns a contract for the routes. The tenant function returns the tenant of a request. Use
// one of this package's, such as [Claim], or your own; use [SingleTenant] if the service
// has no tenants. A mistake in the arguments, the routes' operations or the options is a
// [*idem.ConfigError].
func New(engine *idem.Engine, routes Routes, tenant TenantFunc, o *Options) (*Contract, error) {
	switch {
	case engine == nil:
		return nil, mistake("the engine is nil: make one with idem.New")
	case tenant == nil:
		return nil, mistake("the tenant function is nil: say whose request it is, such as idemhttp.Claim(\"sub\"), or " +
			"idemhttp.SingleTenant if the service has no tenants")
	}
	opts, err := o.check()
	if err != nil {
		return nil, err
	}
	c := &Contract{engine: engine, opts: opts}
	if c.routes, err = routes.compile(opts.Methods); err != nil {
		return nil, err
	}
	all := opts.forAll(tenant)
	for _, d := range c.routes {
		d.RouteOptions = all
	}
	for _, name := range slices.Sorted(maps.Keys(opts.ByRoute)) {
		d, err := c.named("ByRoute", name)
		if err != nil {
			return nil, err
		}
		own := opts.ByRoute[name]
		d.RouteOptions = own.over(all)
		own.Key = d.Key // its MinKey is of that key, wherever that is set
		if err := own.check(fmt.Sprintf("ByRoute of %q: ", name)); err != nil {
			return nil, err
		}
	}
	for _, name := range slices.Sorted(maps.Keys(opts.ByRoute)) {
		d, _ := c.named("ByRoute", name)
		for _, other := range c.routes {
			if other.op.Name == d.op.Name && !other.passes() && (other.Principal == nil) != (d.Principal == nil) {
				return nil, mistake("ByRoute of %q: another route of operation %q has a Principal where this one has none, or the "+
					"other way round, so one client's key could be another's: give the operations two names", name, d.op.Name)
			}
		}
	}
	if opts.Later != nil {
		if c.later, err = opts.Later.of(c); err != nil {
			return nil, err
		}
	}
	allShadow := true
	for _, d := range c.routes {
		if d.passes() {
			continue
		}
		c.anyShadow, allShadow = c.anyShadow || d.op.Shadow, allShadow && d.op.Shadow
		if err := opts.MaxAge.fits(d.op); err != nil {
			return nil, err
		}
		if err := engine.Check(d.op, false); err != nil {
			return nil, err
		}
	}
	if c.anyShadow && allShadow {
		// A name of few values, since operations are a dimension of metrics.
		c.undeclared = &declared{op: idem.Operation{Name: string(CodeUndeclared), Shadow: true}}
	}
	if c.rows, err = opts.Profile.rows(); err != nil {
		return nil, err
	}
	return c, nil
}

// Serve answers one request. A request that needs no key, by its method or since its route is
// [Unprotected], is passed to next, unless it asks for the status of what was accepted for later
// ([Options.Later]). Otherwise Serve runs next under the key's claim, or returns the recorded
// response or a refusal. It calls next at most once and returns only when next has returned. A request
// without a method is an error, unless all operations are in shadow: its event is of another gateway.
//
// An error of next is logged and answered with 503 operation_unavailable if nothing was executed, as
// [idem.NotExecuted], [idem.SetNotExecuted] or [idem.Operation.Classify] say, and with 500 operation_failed, now and
// later, if it is final, as [idem.Permanent] says. Any other error is returned. These two are returned too, without
// their mark, if the request has no key or if the end is not recorded yet. So are faults that no client can act on.
// Where the engine has ended next's attempt ([idem.Outcome].StopCause), such as for an interrupted step, the answer
// is a refusal, whatever next returned: 409 outcome_unknown if the attempt was parked, which the next call gets too,
// and 409 outcome_not_yet_known if a step is asked about again later. Under a key, either the response or the error
// is nil. In shadow ([Contract.Shadow]) both are next's own.
func (c *Contract) Serve(ctx context.Context, r *Request, next Next) (*Response, error) {
	if c.later != nil && c.later.asks(r) != "" {
		return c.later.status(ctx, r)
	}
	if r.Method == "" && c.undeclared == nil {
		return nil, mistake("the event has no method, so it is of another format: HTTPAPI and FunctionURL take payload " +
			"2.0, RESTAPI payload 1.0, ALB a load balancer's; nothing was executed")
	}
	if !c.enforces(r.Method) {
		return next(ctx)
	}
	d := c.declaration(r)
	switch in := c.inShadow(d); {
	case d.passes():
		return next(ctx)
	case in != nil:
		return c.observe(ctx, in, func() (*Request, *situation, error) { return r, nil, nil }, next)
	}
	return c.protect(ctx, r, d, next)
}

// protect serves a request that needs a key. Without a declaration it is refused.
func (c *Contract) protect(ctx context.Context, r *Request, d *declared, next Next) (*Response, error) {
	call, no, err := c.call(ctx, r, d)
	if err != nil {
		return nil, err
	}
	if no != nil {
		return c.refusal(ctx, r, no), nil
	}
	if c.later != nil {
		if res, err := c.later.accept(ctx, r, d, call); res != nil || err != nil {
			return res, err
		}
	}
	var given, instead answer // of next, and of the hook for a refused unit of work
	call.Run = func(ctx context.Context) idem.Answer {
		res, err := next(ctx)
		var ans idem.Answer
		given.live, ans = c.keep(r, res, err)
		given.err = ans.Err
		instead = given
		if c.opts.OnUnitRefused != nil && err == nil {
			ans.OnRefused = func(reason error) (other idem.Answer) {
				instead.live, other = c.refused(ctx, r, reason)
				instead.err = other.Err
				return other
			}
		}
		return ans
	}
	out, err := c.engine.Execute(ctx, call)
	own := given
	if out.UnitRefused {
		own = instead
	}
	// An attempt that lost its claim has no outcome of its own: its caller gets the
	// recorded outcome instead.
	switch {
	case out.Executed && err != nil:
		if no := c.stopped(&out, own.err == nil); no != nil {
			return c.refusal(ctx, r, no), nil
		}
		if no := marked(&out, d.op.Mode); no != nil && !own.silent() && !call.Keyless {
			slog.WarnContext(ctx, "idemhttp: the handler returned an error, and the client gets its code",
				"operation", d.op.Name, "code", no.code, "error", err)
			return c.refusal(ctx, r, no), nil
		}
		return nil, err
	case out.Executed && own.live.unrecordable != nil && out.Omitted:
		// Every later caller gets the same.
		return c.refusal(ctx, r, &situation{code: CodeOutcomeUnavailable, status: own.live.Status}), nil
	case out.Executed:
		return own.live, nil
	case err == nil:
		res, err := c.replay(ctx, r, &out)
		if err == nil {
			return res, nil
		}
		return c.refusal(ctx, r, refuse(err)), nil
	}
	if no := refuse(err); no != nil {
		if no.code == CodeKeyReused && call.Key.Tenant() == idem.SingleTenant {
			// Another client may have sent the first request.
			no.status, no.why = 0, ""
		}
		return c.refusal(ctx, r, no), nil
	}
	return nil, err
}

// answer is a response as the caller of its attempt gets it, or an error.
type answer struct {
	live *Response
	err  error
}

// silent reports whether the handler has returned neither.
func (a answer) silent() bool { return a.err == errNoResponse || a.err == errUnanswered }

func (c *Contract) enforces(method string) bool {
	return slices.ContainsFunc(c.opts.Methods, func(m string) bool { return strings.EqualFold(m, method) })
}

// declaration looks up the route, then the path, then a template that the path fits. It is nil if none
// is declared. Only the router behind the contract knows how it reads a path that is escaped or not clean. Of
// the routes to which the ways lead, one that needs a key counts before one that is unprotected, and one that is
// not repeatable before one that is.
func (c *Contract) declaration(r *Request) *declared {
	matched := c.at(r.Method, r.Route)
	if matched != nil && !matched.passes() {
		return matched
	}
	d := cmp.Or(c.byPath(r.Method, r.Path), matched)
	if d == nil || isPlain(r.Path) {
		return d
	}
	whole, err := url.PathUnescape(r.Path)
	if err != nil {
		whole = r.Path
	}
	for _, other := range []*declared{
		c.byTemplate(r.Method, r.Path, isDecoded), c.byPath(r.Method, whole), c.byPath(r.Method, cleaned(whole)),
	} {
		if other == nil || other.passes() {
			continue
		}
		if d.passes() || d.op.Repeat == idem.Repeatable && other.op.Repeat != idem.Repeatable {
			d = other
		}
	}
	return d
}

// isPlain reports whether there is only one way to read a path.
func isPlain(path string) bool {
	return !strings.ContainsRune(path, '%') && !strings.Contains(path, "/.")
}

// cleaned is a path without dots.
func cleaned(at string) string {
	if !strings.Contains(at, "/.") {
		return at
	}
	clean := path.Clean(at)
	if strings.HasSuffix(at, "/") && clean != "/" {
		clean += "/"
	}
	return clean
}

// at is what is declared for the template or the path itself.
func (c *Contract) at(method, location string) *declared {
	return c.routes[route{strings.ToUpper(method), location}]
}

// byPath looks up the path, then a template that it fits.
func (c *Contract) byPath(method, path string) *declared {
	if d := cmp.Or(c.at(method, path), c.routes[route{}]); d != nil {
		return d
	}
	return c.byTemplate(method, path, isLiteral)
}
