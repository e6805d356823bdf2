package idemlambda

import (
	"context"
	"encoding/json"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// sqsWork is a message's body, ready to be worked on.
type sqsWork struct {
	fingerprint idem.Fingerprint
	run         func(context.Context) error
}

// isText reports whether a handler takes a body as it is, JSON or not.
func isText[In any]() bool {
	switch any(*new(In)).(type) {
	case string, []byte:
		return true
	}
	return false
}

func openSQS[In any](body string, sel *idem.Select) (in In, fp idem.Fingerprint, err error) {
	switch p := any(&in).(type) {
	case *string:
		*p = body
		return in, idem.FingerprintBytes([]byte(body)), nil
	case *[]byte:
		*p = []byte(body)
		return in, idem.FingerprintBytes(*p), nil
	}
	raw := []byte(body)
	if fp, err = idem.FingerprintJSON(raw, sel); err != nil {
		return in, "", err
	}
	if p, ok := any(&in).(*json.RawMessage); ok {
		*p = raw
		return in, fp, nil
	}
	return in, fp, json.Unmarshal(raw, &in)
}

type sqsMessageKey struct{}

// SQSMessageOf returns the message whose handler, key function or hook has the
// context, as it came, and false outside one. Its maps are shared: do not change
// them.
func SQSMessageOf(ctx context.Context) (events.SQSMessage, bool) {
	m, ok := ctx.Value(sqsMessageKey{}).(*events.SQSMessage)
	if !ok {
		return events.SQSMessage{}, false
	}
	return *m, true
}
