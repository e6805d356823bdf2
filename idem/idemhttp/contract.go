package idemhttp

import (
	"context"
	"errors"
	"net/http"
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// Headers that mark a replay.
const (
	// HeaderReplayed is "true" on a response that was recorded earlier.
	HeaderReplayed = "Idempotency-Replayed"
	// HeaderReplayedStripe is what [HeaderReplayed] is called in the Stripe profile.
	HeaderReplayedStripe = "Idempotent-Replayed"
	// HeaderOriginalDate is when the response of a replay was recorded, as an HTTP
	// date.
	HeaderOriginalDate = "Idempotency-Original-Date"
	// HeaderExpires is when the recorded response stops being replayed, as an HTTP
	// date (RFC 9110 5.6.7). A client must not send the request again after it.
	HeaderExpires = "Idempotency-Expires"
)

// Contract serves requests under the rules of this package. It keeps nothing
// between requests and is safe for concurrent use.
type Contract struct {
	engine *idem.Engine
	opts   Options
	routes map[route]idem.Operation
}

// New returns a contract. It checks everything that can be known beforehand: a
// mistake in the routes, their operations or the options is a
// [*idem.ConfigError].
func New(engine *idem.Engine, routes Routes, o *Options) (*Contract, error) {
	if engine == nil {
		return nil, mistake("the engine is nil: make one with idem.New")
	}
	opts, err := o.check()
	if err != nil {
		return nil, err
	}
	table, err := routes.compile(opts.Methods)
	if err != nil {
		return nil, err
	}
	return &Contract{engine: engine, opts: opts, routes: table}, nil
}

// Serve answers one request: it passes to next what needs no key, runs next under
// the key's claim, or gives the recorded response or a refusal. It calls next at
// most once and returns only when next has returned.
//
// An error is next's own as next gave it, or a recorded failure as a
// [*idem.RecordedError], or a fault that no client can act on. Under a key, either
// the response or the error is nil.
func (c *Contract) Serve(ctx context.Context, r *Request, next Next) (*Response, error) {
	if !c.enforces(r.Method) {
		return next(ctx)
	}
	call, no, err := c.call(ctx, r)
	if err != nil {
		return nil, err
	}
	if no != nil {
		return no.response(), nil
	}
	var given *Response
	ran := false
	call.Run = func(ctx context.Context) (ans idem.Answer) {
		ran = true
		given, ans.Err = next(ctx)
		if given == nil {
			if ans.Err == nil {
				ans.Err = errNoResponse
			}
			return ans
		}
		ans.Value, ans.Kept = given, kept(given.Status)
		body, err := encode(given)
		if ans.Err == nil {
			ans.Class, ans.Unencodable = classOf(given.Status), err
		}
		if err == nil {
			ans.Body = body
		}
		return ans
	}
	out, err := c.engine.Execute(ctx, call)
	// An attempt that lost its claim has no outcome of its own: its caller gets what
	// is recorded instead.
	own := ran && !out.Replayed && out.Attempt > 0
	switch {
	case own && err != nil:
		return nil, err
	case err != nil:
		if no := refuse(err); no != nil {
			return no.response(), nil
		}
		return nil, err
	case own && out.Body == nil:
		// Not a final HTTP response: the front has its own answer to that.
		return given, nil
	}
	res, err := decode(out.Body)
	if err != nil {
		return refuse(err).response(), nil
	}
	if own {
		res.addWithheld(given)
		return res, nil
	}
	res.setHeader(HeaderReplayed, "true")
	if !out.ExpiresAt.IsZero() {
		res.setHeader(HeaderExpires, out.ExpiresAt.UTC().Format(http.TimeFormat))
	}
	return res, nil
}

// call makes the engine's call of the request, or says why there can be none.
func (c *Contract) call(ctx context.Context, r *Request) (call idem.Call, no *refusal, err error) {
	op, ok := c.operation(r)
	if !ok {
		return call, &refusal{code: CodeUndeclared}, nil
	}
	tenant, err := c.opts.Tenant(ctx, r)
	if errors.Is(err, ErrNoTenant) || err == nil && tenant == "" {
		return call, &refusal{code: CodeTenantMissing}, nil
	}
	if err != nil {
		return call, nil, err
	}
	values := r.header(c.opts.KeyHeader)
	if len(values) == 0 {
		return call, &refusal{code: CodeKeyMissing}, nil
	}
	value, err := parseKey(values, c.opts.MinKey)
	if err != nil {
		return call, &refusal{code: CodeKeyInvalid, why: err.Error()}, nil
	}
	call.Key = op.Key(tenant, value)
	if call.Key.Err() != nil {
		// Operation and value are good, so the tenant is what cannot be used.
		return call, &refusal{code: CodeTenantMissing}, nil
	}
	if call.Fingerprint, err = c.fingerprint(r); err != nil {
		no = &refusal{code: CodeNotCanonical}
		var why *idem.NotCanonicalError
		if errors.As(err, &why) {
			no.why = why.Reason
		}
	}
	return call, no, nil
}

func (c *Contract) enforces(method string) bool {
	for _, m := range c.opts.Methods {
		if strings.EqualFold(m, method) {
			return true
		}
	}
	return false
}

// operation looks up the route, then the path.
func (c *Contract) operation(r *Request) (idem.Operation, bool) {
	method := strings.ToUpper(r.Method)
	for _, at := range []route{{method, r.Route}, {method, r.Path}, {}} {
		if op, ok := c.routes[at]; ok {
			return op, true
		}
	}
	return idem.Operation{}, false
}

var errNoResponse = errors.New("idemhttp: the handler returned neither a response nor an error")
