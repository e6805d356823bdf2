package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// gatewayReserve is how long before the gateway gives up a concurrent duplicate stops
// waiting: it takes time to read and send a large response.
const gatewayReserve = 2 * time.Second

// call makes the engine's call of the request, or says why it cannot.
func (c *Contract) call(ctx context.Context, r *Request, d *declared) (call idem.Call, no *situation, err error) {
	if d == nil || d == c.undeclared {
		return call, &situation{code: CodeUndeclared}, nil
	}
	tenant, why, err := callerOf(ctx, r, d.Tenant)
	if err != nil {
		return call, nil, err
	}
	if tenant == "" {
		return call, &situation{code: CodeTenantMissing, why: why}, nil
	}
	call.Key = d.op.Key(tenant, "") // for notices in shadow of requests that are refused below
	principal := ""
	if d.Principal != nil {
		if principal, why, err = callerOf(ctx, r, d.Principal); err != nil {
			return call, nil, err
		}
		if principal == "" || principal == idem.SingleTenant {
			return call, &situation{code: CodePrincipalMissing, why: why}, nil
		}
	}
	if d.Key.inBody() && r.load != nil {
		if no, err = r.load(); no != nil || err != nil {
			return call, no, err
		}
	}
	value, no, err := c.key(ctx, r, d)
	if no != nil && no.code == CodeKeyMissing && d.KeyOptional {
		value, no, call.Keyless = uuid7(c.engine.Now()), nil, true
	}
	if no != nil || err != nil {
		return call, no, err
	}
	if call.Key, no = keyOf(d.op, tenant, principal, value); no != nil {
		return call, no, nil
	}
	if !call.Keyless {
		d.logGuessable(ctx, r, value)
	}
	if !d.Key.inBody() && r.load != nil {
		if no, err = r.load(); no != nil || err != nil {
			return call, no, err
		}
	}
	if call.Keyless {
		call.Fingerprint = fingerprint.Bytes(r.Body) // with which nothing is compared
	} else if call.Fingerprint, err = c.fingerprint(r); err != nil {
		no = &situation{code: CodeNotCanonical}
		if why, ok := errors.AsType[*fingerprint.NotCanonicalError](err); ok {
			no.why = why.Reason
			if why.Offset >= 0 {
				no.why = fmt.Sprintf("at byte %d, %s", why.Offset, why.Reason)
			}
		}
		return call, no, nil
	}
	if late := c.opts.MaxAge.refuses(r, value, d.op, c.engine.Now()); late != nil {
		call.NoClaim = late
	}
	call.Codec = codecName
	if !r.GatewayDeadline.IsZero() {
		call.WaitUntil = r.GatewayDeadline.Add(-gatewayReserve)
	}
	return call, nil, nil
}

// callerOf asks a function for the tenant or principal. An empty name means that the
// request has none; why may have the reason.
func callerOf(ctx context.Context, r *Request, f TenantFunc) (name, why string, err error) {
	name, err = f(ctx, r)
	if errors.Is(err, ErrTenantMissing) {
		own, _ := errors.AsType[tenantMissing](err)
		return "", string(own), nil
	}
	return name, "", err
}

// keyOf makes the key, or names the part that cannot be used. No part is empty, so
// the part is too long.
func keyOf(op idem.Operation, tenant, principal, value string) (idem.Key, *situation) {
	k := op.Key(tenant, KeyValue(principal, value))
	switch {
	case k.Err() == nil:
		return k, nil
	case op.Key(tenant, "k").Err() != nil:
		return k, &situation{code: CodeTenantMissing}
	case op.Key(tenant, KeyValue(principal, "k")).Err() != nil:
		return k, &situation{code: CodePrincipalMissing}
	}
	return k, &situation{code: CodeKeyInvalid, why: "it is too long"}
}

// KeyValue is the value that a request's key has ([idem.Operation.Key]): what identifies the
// request, by default its Idempotency-Key without quotes, and with [Options.Principal] the
// [idem.JoinValues] of both. An empty principal means that there is none.
func KeyValue(principal, value string) string {
	if principal == "" {
		return value
	}
	return idem.JoinValues(principal, value)
}
