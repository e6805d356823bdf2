package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Shadow reports whether the request's operation is in shadow ([idem.Operation.Shadow]): Serve
// then returns what next returned, as it is, for requests without a key or tenant too. So it
// does for a route without an operation, if all operations of the contract are in shadow.
func (c *Contract) Shadow(r *Request) bool {
	if !c.anyShadow || !c.enforces(r.Method) {
		return false
	}
	d := c.declaration(r)
	return !d.passes() && c.inShadow(d) != nil
}

// inShadow returns what a request in shadow is observed as, nil if it is not in shadow.
func (c *Contract) inShadow(d *declared) *declared {
	switch {
	case d == nil:
		return c.undeclared
	case d.op.Shadow:
		return d
	}
	return nil
}

// observe runs next for a request in shadow, under the call that make makes.
func (c *Contract) observe(ctx context.Context, d *declared, make func() (*Request, *situation, error),
	next Next) (res *Response, err error) {
	call := c.observed(ctx, d, make)
	ran := false
	call.Run = func(ctx context.Context) idem.Answer {
		ran = true
		res, err = next(ctx)
		return c.observedAnswer(d.op, res, err)
	}
	if _, mistake := c.engine.Execute(ctx, call); !ran {
		return nil, mistake
	}
	return res, err
}

// observed makes the engine's call of a request in shadow. What would refuse the request is
// only reported, a panic of the service's own functions included, and its key is taken from the
// header all the same: whatever the body is, a retry has the same token.
func (c *Contract) observed(ctx context.Context, d *declared,
	make func() (*Request, *situation, error)) (call idem.Call) {
	var r *Request
	var why error
	key := d.op.Key("", "")
	defer func() {
		if p := recover(); p != nil && why == nil {
			why = protocol.RedactPanic("idemhttp: a function of the service", p)
		}
		if why == nil {
			return
		}
		if r != nil && r.Route != "" {
			why = fmt.Errorf("%w at %s %s", why, strings.ToUpper(r.Method), r.Route)
		}
		call = idem.Call{Key: key, NoClaim: why}
	}()
	r, no, err := make()
	why = reason(no, err)
	if r == nil || why != nil && d.Key.from != nil {
		return call // a key of the service's own, made of a part of the body, may be another request's too
	}
	call, no, err = c.call(ctx, r, d)
	if call.Key.Err() == nil || err == nil && (no == nil || no.code != CodeTenantMissing && no.code != CodeUndeclared) {
		key = call.Key
	}
	_, unread := errors.AsType[*protocol.UnobservedError](why)
	if why == nil || unread && no != nil && key.Err() != nil && d.Key.pointer == "" {
		why = reason(no, err)
	}
	return call
}

// reason is why a request is refused; nil if it is not.
func reason(no *situation, err error) error {
	if err == nil && no != nil {
		return no
	}
	return err
}

// observedAnswer is what a response in shadow means for its record.
func (c *Contract) observedAnswer(op idem.Operation, given *Response, err error) idem.Answer {
	ans := idem.Answer{Err: err}
	switch {
	case given == nil && err == nil:
		ans.Err = errNoResponse
	case given == nil:
	default:
		if ans.Value = given; op.Classify != nil {
			ans.Value = given.clone() // the operation's own rule cannot change it
		}
		if err == nil {
			ans.Class, ans.Cause = c.classOf(given.Status), statusError(given.Status)
		}
	}
	return ans
}
