package idemlambda

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/idem-go/idempotency/idem"
)

// KeyFunc finds tenant and value of the key in an event. It returns
// [idem.SingleTenant] as the tenant if there is none. It must not change or keep
// the payload and must be safe for concurrent use. An error, such as one that
// wraps [idem.ErrKeyInvalid], goes to the caller, and nothing is executed.
type KeyFunc func(ctx context.Context, payload json.RawMessage) (tenant, value string, err error)

// Pointer takes the key from the event's JSON: the tenant and one or more values
// by JSON pointer (RFC 6901), such as "/payment/id". tenantPointer leads to the
// tenant; it is not the tenant itself. It may be [idem.SingleTenant] instead. Several
// values are joined as by [idem.JoinValues]. If the joined value is longer than a key
// may be, its SHA-256 digest is the value.
//
// A value is a string that is not empty, or a plain integer, whose digits count as they
// are written: 42 and "42" are one key. Names are case-sensitive. Null, a missing member,
// a bool, a number with a fraction or an exponent, an object, an array and a text that is
// not valid JSON in UTF-8 are errors that match [idem.ErrKeyInvalid]: a missing value must
// not become a key that all events share. A member on the path that occurs twice, or again in another
// case, is such an error too: another reader, such as a Go handler, could see the other
// member. An invalid pointer panics.
func Pointer(tenantPointer string, values ...string) KeyFunc {
	return pointersInto("event", "idemlambda.Pointer", tenantPointer, values)
}

// pointersInto is Pointer for a document that errors call doc. maker is the name of the
// function that the user called.
func pointersInto(doc, maker, tenant string, values []string) KeyFunc {
	if len(values) == 0 {
		panic(&idem.ConfigError{What: maker, Problem: "there is no pointer to the key's value"})
	}
	var pointers []string
	if tenant != idem.SingleTenant {
		pointers = append(pointers, mustPointer(maker+": tenant", tenant))
	}
	for _, v := range values {
		pointers = append(pointers, mustPointer(maker+": value", v))
	}
	parent := parentOf(values)
	return func(ctx context.Context, payload json.RawMessage) (string, string, error) {
		if of, ok := ctx.Value(keyParent{}).(*string); ok {
			*of = parent
		}
		found, err := idem.ValuesAt(payload, doc, pointers...)
		if err != nil {
			return "", "", err
		}
		t := idem.SingleTenant
		if tenant != idem.SingleTenant {
			if t, found = found[0], found[1:]; t == idem.SingleTenant {
				return "", "", fmt.Errorf("%w: the value at %q of the %s cannot be used as a tenant",
					idem.ErrKeyInvalid, tenant, doc)
			}
		}
		if len(found) == 1 {
			return t, found[0], nil
		}
		return t, identityOf(found...), nil
	}
}

// keyParent is the context's key of a string in which a key function by pointers notes their [parentOf].
type keyParent struct{}

// parentOf is the JSON pointer to the member that has all of the values, empty if that is the document.
func parentOf(values []string) string {
	parent := values[0]
	for _, v := range values {
		for parent != "" && !strings.HasPrefix(v, parent+"/") {
			parent = parent[:strings.LastIndexByte(parent, '/')]
		}
	}
	return parent
}

func mustPointer(what, pointer string) string {
	err := idem.CheckPointer(pointer)
	if err == nil && pointer == "" {
		err = errors.New("write a JSON pointer such as \"/payment/id\", or idem.SingleTenant for no tenant")
	}
	if err != nil {
		panic(&idem.ConfigError{What: fmt.Sprintf("%s pointer %q", what, pointer), Problem: err.Error()})
	}
	return pointer
}

// KeyFrom takes the key from the event, decoded into the handler's own type. f returns
// [idem.SingleTenant] as the tenant if there is none; an empty tenant or value is
// refused. A tenant that f takes from the event must not be "\x00", which is
// idem.SingleTenant. The event is decoded a second time for f. A nil f panics.
func KeyFrom[In any](f func(In) (tenant, value string)) KeyFunc {
	if f == nil {
		panic(&idem.ConfigError{What: "idemlambda.KeyFrom", Problem: "the function is nil"})
	}
	return func(_ context.Context, payload json.RawMessage) (string, string, error) {
		var in In
		if err := json.Unmarshal(payload, &in); err != nil {
			return "", "", undecodable("event", err)
		}
		tenant, value := f(in)
		return tenant, value, nil
	}
}

// inBody takes the key from a record's body by JSON pointer.
func inBody[R any](what, tenantPointer string, values []string, body func(*R) ([]byte, error)) RecordKeyFunc[R] {
	find := pointersInto("body", "idemlambda."+what, tenantPointer, values)
	return func(ctx context.Context, r *R) (string, string, error) {
		b, err := body(r)
		if err != nil {
			return "", "", err
		}
		return find(ctx, b)
	}
}

// tenantBy reads a record's tenant by its name in the record, such as that of an attribute.
// [idem.SingleTenant] names none. The error says which argument of the key function the name is.
func tenantBy[R any](maker, noun, name string, r *R, read func(r *R, name string) (string, error)) (string, error) {
	if name == idem.SingleTenant {
		return name, nil
	}
	tenant, err := read(r, name)
	switch {
	case err != nil:
		return "", fmt.Errorf("%w (the first argument of idemlambda.%s names the tenant's %s)", err, maker, noun)
	case tenant == idem.SingleTenant:
		return "", fmt.Errorf("%w: the %s %q cannot be used as a tenant", idem.ErrKeyInvalid, noun, name)
	}
	return tenant, nil
}

// byNames takes tenant and key from what a record has under two names.
func byNames[R any](maker, noun, tenantName, name string,
	read func(r *R, name string) (string, error)) RecordKeyFunc[R] {
	if name == "" || tenantName == "" {
		panic(&idem.ConfigError{What: "idemlambda." + maker, Problem: "a name is empty: " +
			"name the " + noun + "s of key and tenant, or say idem.SingleTenant"})
	}
	return func(_ context.Context, r *R) (string, string, error) {
		tenant, err := tenantBy(maker, noun, tenantName, r, read)
		if err != nil {
			return "", "", err
		}
		value, err := read(r, name)
		return tenant, value, err
	}
}

// parts makes a key's value of all the parts that together are a record's identity.
// A missing part is an error: unrelated events would share a record.
func parts(noun string, named ...[2]string) (string, string, error) {
	values := make([]string, len(named))
	for i, p := range named {
		if p[1] == "" {
			return "", "", fmt.Errorf("%w: the %s has no %s", idem.ErrKeyInvalid, noun, p[0])
		}
		values[i] = p[1]
	}
	return idem.SingleTenant, identityOf(values...), nil
}

// longIdentity is the longest value of a key, in bytes, as in package idem.
const longIdentity = 1024

// identityOf joins the parts of an identity to a key's value. The service or the sender
// chooses the parts' lengths, and an object's key alone may be as long as a value may be:
// a value that is too long is digested. A joined value never has a colon, so it cannot
// equal a digest.
func identityOf(parts ...string) string {
	value := idem.JoinValues(parts...)
	if len(value) <= longIdentity {
		return value
	}
	sum := sha256.Sum256([]byte(value))
	return "sha256:" + hex.EncodeToString(sum[:])
}
