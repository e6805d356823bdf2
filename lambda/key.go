package idemlambda

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

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
// A value is a string that is not empty, or a plain integer, whose digits are taken as
// they are written: 42 and "42" are one key. Names are case-sensitive. Null, a missing
// member, a bool, a number with a fraction or an exponent, an object, an array and a text
// that is not valid JSON in UTF-8 are errors that match [idem.ErrKeyInvalid]: what is not
// there must not become everybody's key. So is a member on the way that is there twice, or
// that another one equals but for its case: another reader, such as a Go handler, could
// see the other one. A pointer that is none panics.
func Pointer(tenantPointer string, values ...string) KeyFunc {
	return pointersInto("event", "idemlambda.Pointer", tenantPointer, values)
}

// pointersInto is Pointer for a document that errors call doc, made by a function
// of the name.
func pointersInto(doc, maker, tenant string, values []string) KeyFunc {
	if len(values) == 0 {
		panic(&idem.ConfigError{What: maker, Problem: "there is no pointer to the key's value"})
	}
	var pointers []string
	if tenant != idem.NoTenant {
		pointers = append(pointers, mustPointer(maker+": tenant", tenant))
	}
	for _, v := range values {
		pointers = append(pointers, mustPointer(maker+": value", v))
	}
	return func(_ context.Context, payload json.RawMessage) (string, string, error) {
		found, err := idem.ValuesAt(payload, doc, pointers...)
		if err != nil {
			return "", "", err
		}
		t := idem.NoTenant
		if tenant != idem.NoTenant {
			if t, found = found[0], found[1:]; t == idem.NoTenant {
				return "", "", fmt.Errorf("%w: the value at %q of the %s cannot be used as a tenant", idem.ErrKeyInvalid, tenant, doc)
			}
		}
		if len(found) == 1 {
			return t, found[0], nil
		}
		return t, identityOf(found...), nil
	}
}

func mustPointer(what, pointer string) string {
	err := idem.CheckPointer(pointer)
	if err == nil && pointer == "" {
		err = errors.New("write a JSON pointer such as \"/payment/id\", or idem.NoTenant for no tenant")
	}
	if err != nil {
		panic(&idem.ConfigError{What: fmt.Sprintf("%s pointer %q", what, pointer), Problem: err.Error()})
	}
	return pointer
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

// inBody takes the key from a record's body by JSON pointer.
func inBody[R any](what, tenantPointer string, values []string, body func(*R) []byte) RecordKeyFunc[R] {
	find := pointersInto("body", "idemlambda."+what, tenantPointer, values)
	return func(ctx context.Context, r *R) (string, string, error) { return find(ctx, json.RawMessage(body(r))) }
}

// tenantNotFound says about a tenant that is not where a key function looks for it
// what the function's first argument names.
func tenantNotFound(maker, where string, err error) error {
	return fmt.Errorf("%w (the first argument of %s names the tenant's %s)", err, maker, where)
}

// parts makes a key's value of all the parts that together are a record's identity.
// One that is missing would make unrelated events share a record.
func parts(noun string, named ...[2]string) (string, string, error) {
	values := make([]string, len(named))
	for i, p := range named {
		if p[1] == "" {
			return "", "", fmt.Errorf("%w: the %s has no %s", idem.ErrKeyInvalid, noun, p[0])
		}
		values[i] = p[1]
	}
	return idem.NoTenant, identityOf(values...), nil
}

// longIdentity is what a key's value may be, in bytes, as in package idem.
const longIdentity = 1024

// identityOf joins the parts of an identity to a key's value. The parts' lengths are
// the service's or the sender's choice, and an object's key may itself be as long as a
// value: what is too long is digested. No joined value has a colon.
func identityOf(parts ...string) string {
	value := idem.JoinValues(parts...)
	if len(value) <= longIdentity {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}
