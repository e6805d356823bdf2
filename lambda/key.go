package idemlambda

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

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
// values are joined as by [idem.JoinValues].
//
// A value must be a string that is not empty, or an integer, whose digits are
// taken as they are. Null, a missing member, a bool, a fraction, an object and an
// array are errors that match [idem.ErrKeyInvalid]: what is not there must not
// become everybody's key. So is a member that another one equals but for its case:
// a Go handler could see the other one. A pointer that is none panics.
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
		return t, idem.JoinValues(parts...), nil
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

// pointer is a JSON pointer: its text, its unescaped reference tokens, and the
// document that it points into.
type pointer struct {
	doc    string
	text   string
	tokens []string
}

func mustPointer(doc, what, text string) pointer {
	bad := func(problem string) {
		panic(&idem.ConfigError{What: fmt.Sprintf("%s pointer %q", what, text), Problem: problem})
	}
	if !strings.HasPrefix(text, "/") {
		bad("write a JSON pointer such as \"/payment/id\", or idem.NoTenant for no tenant")
	}
	for i := 0; i < len(text); i++ {
		if text[i] == '~' && (i+1 == len(text) || text[i+1] != '0' && text[i+1] != '1') {
			bad("write ~0 for ~ and ~1 for / (RFC 6901)")
		}
	}
	tokens := strings.Split(text[1:], "/")
	for i, t := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(t)
	}
	return pointer{doc, text, tokens}
}

func (p pointer) wrong(why string) error {
	return fmt.Errorf("%w: %s at %q of the %s", idem.ErrKeyInvalid, why, p.text, p.doc)
}

// scalar returns the string or integer that the pointer leads to.
func (p pointer) scalar(doc json.RawMessage) (string, error) {
	at := doc
	for _, token := range p.tokens {
		var ok bool
		if at, ok = member(at, token); !ok {
			return "", p.wrong("there is no value, or more than one if case is ignored,")
		}
	}
	at = bytes.TrimSpace(at)
	switch c := at[0]; {
	case c == '"':
		var s string
		if err := json.Unmarshal(at, &s); err != nil {
			return "", p.wrong("there is no valid string")
		}
		if s == "" {
			return "", p.wrong("the string is empty")
		}
		return s, nil
	case c == '-' || c >= '0' && c <= '9':
		if bytes.ContainsAny(at, ".eE") {
			return "", p.wrong("the number is not written as an integer")
		}
		return string(at), nil
	case c == 'n':
		return "", p.wrong("the value is null")
	}
	return "", p.wrong("there is neither a string nor an integer")
}

// member returns a member of an object, by its exact name, or an element of an
// array, and false if there is none, or more than one that differ in case alone.
func member(doc json.RawMessage, token string) (json.RawMessage, bool) {
	doc = bytes.TrimSpace(doc)
	switch {
	case len(doc) == 0:
	case doc[0] == '{':
		var object map[string]json.RawMessage
		if json.Unmarshal(doc, &object) != nil {
			return nil, false
		}
		for name := range object {
			// encoding/json fills a field from a member of any case: what the handler
			// sees could be another value than the key's.
			if name != token && strings.EqualFold(name, token) {
				return nil, false
			}
		}
		v, ok := object[token]
		return v, ok && len(v) > 0
	case doc[0] == '[':
		var array []json.RawMessage
		i, err := strconv.Atoi(token)
		// RFC 6901 allows neither signs nor leading zeros.
		if err != nil || strconv.Itoa(i) != token || json.Unmarshal(doc, &array) != nil {
			return nil, false
		}
		if i >= 0 && i < len(array) {
			return array[i], true
		}
	}
	return nil, false
}
