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

// openBody decodes a body into the handler's type and takes its fingerprint.
func openBody[In any](raw []byte, sel *fingerprint.Select) (in In, fp idem.Fingerprint, err error) {
	switch p := any(&in).(type) {
	case *string:
		*p = string(raw)
		return in, fingerprint.Bytes(raw), nil
	case *[]byte:
		*p = raw
		return in, fingerprint.Bytes(raw), nil
	}
	if fp, err = fingerprint.JSON(raw, sel); err != nil {
		return in, "", err
	}
	if p, ok := any(&in).(*json.RawMessage); ok {
		*p = raw
		return in, fp, nil
	}
	return in, fp, json.Unmarshal(raw, &in)
}
