package idemlambda

import (
	"encoding/json"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// isText reports whether a handler takes a body as it is, JSON or not.
func isText[In any]() bool {
	switch any(*new(In)).(type) {
	case string, []byte:
		return true
	}
	return false
}

// openBody decodes a body into the handler's type and takes its fingerprint. In shadow a body
// without one is decoded too: whether it can be is read.
func openBody[In any](raw []byte, sel *fingerprint.Select, shadow bool) (in In, read bool, fp idem.Fingerprint, err error) {
	switch p := any(&in).(type) {
	case *string:
		*p = string(raw)
		return in, true, fingerprint.Bytes(raw), nil
	case *[]byte:
		*p = raw
		return in, true, fingerprint.Bytes(raw), nil
	}
	fp, err = fingerprint.JSON(raw, sel)
	if err != nil && !shadow {
		return in, false, "", err
	}
	if p, ok := any(&in).(*json.RawMessage); ok {
		*p = raw
		return in, true, fp, err
	}
	unread := json.Unmarshal(raw, &in)
	if err == nil {
		err = undecodable("body", unread)
	}
	return in, unread == nil, fp, err
}
