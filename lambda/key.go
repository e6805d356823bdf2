package idemlambda

import (
	"context"
	"encoding/json"

	"github.com/idem-go/idempotency/idem"
)

// KeyFunc finds tenant and value of the key in an event. It returns
// [idem.NoTenant] as the tenant where there is none. It must not change or keep
// the payload and must be safe for concurrent use. An error, such as one that
// wraps [idem.ErrKeyInvalid], goes to the caller and nothing is executed.
type KeyFunc func(ctx context.Context, payload json.RawMessage) (tenant, value string, err error)

// Pointer takes the key from the event's JSON: the tenant and one or more values
// by JSON pointer (RFC 6901), such as "/payment/id". tenantPointer leads to the
// tenant, it is not the tenant itself; it may be [idem.NoTenant] instead. Several
// values are joined as by [idem.JoinValues]; what is longer than a key may be then
// is digested with SHA-256.
//
// Names are case-sensitive. A value must be a string that is not empty, or an
// integer, whose digits are taken as they are. Null, a missing member, a bool, a
// fraction, an object, an array and a string that is not valid Unicode are errors that
// match [idem.ErrKeyInvalid]: what is not there must not become everybody's key. So is a member that is there twice,
// or that another one equals but for its case: another reader, such as a Go handler,
// could see the other one. A pointer that is none panics.
func Pointer(tenantPointer string, values ...string) KeyFunc {
	return pointersInto("event", "idemlambda.Pointer", tenantPointer, values)
}

// pointersInto is Pointer for a document that errors call doc, made by a function
// of the name.
func pointersInto(doc, maker, tenant string, values []string) KeyFunc {
	var owner pointer
	if tenant != idem.NoTenant {
		owner = mustPointer(doc, maker+": tenant", tenant)
	}
	if len(values) == 0 {
		panic(&idem.ConfigError{What: maker, Problem: "there is no pointer to the key's value"})
	}
	path := make([]pointer, len(values))
	for i, v := range values {
		path[i] = mustPointer(doc, maker+": value", v)
	}
	return func(_ context.Context, payload json.RawMessage) (string, string, error) {
		t := idem.NoTenant
		if tenant != idem.NoTenant {
			var err error
			if t, err = owner.scalar(payload); err != nil {
				return "", "", err
			}
			if t == idem.NoTenant {
				return "", "", owner.wrong("the tenant cannot be used")
			}
		}
		parts := make([]string, len(path))
		for i, p := range path {
			var err error
			if parts[i], err = p.scalar(payload); err != nil {
				return "", "", err
			}
		}
		if len(parts) == 1 {
			return t, parts[0], nil
		}
		return t, identityOf(parts...), nil
	}
}

// By takes the key from the event as the handler's own type. f returns
// [idem.NoTenant] as the tenant where there is none; an empty tenant or value is
// refused. Whatever f takes from the event must not be "\x00", which is
// idem.NoTenant. The event is decoded once more for it. A nil f panics.
func By[In any](f func(In) (tenant, value string)) KeyFunc {
	if f == nil {
		panic(&idem.ConfigError{What: "idemlambda.By", Problem: "the function is nil"})
	}
	return func(_ context.Context, payload json.RawMessage) (string, string, error) {
		var in In
		if err := json.Unmarshal(payload, &in); err != nil {
			return "", "", err
		}
		tenant, value := f(in)
		return tenant, value, nil
	}
}
