package idemhttp

import (
	"context"

	"github.com/idem-go/idempotency/idem"
)

// classOf says what a response's status means for the record. The service's own rule comes
// first.
func (c *Contract) classOf(status int) idem.Class {
	if own, ok := c.opts.Status[status]; ok {
		return own
	}
	if c.opts.Profile == Stripe && status == 400 {
		return idem.ClassRefused
	}
	return classOf(status)
}

// classOf is the default meaning of a status.
func classOf(status int) idem.Class {
	switch {
	case status == 401, status == 403, status == 425, status == 429:
		// Usually refused before anything was done: authentication, too early, throttled.
		// But a handler may pass on another service's answer after an effect.
		return idem.ClassRejected
	case status == 307, status == 308:
		// The client sends the same request, with the same key, to the target.
		return idem.ClassRefused
	case status == 408:
		return idem.ClassUncertain
	case status >= 400 && status <= 499:
		return idem.ClassFailed
	case status >= 200 && status <= 399:
		return idem.ClassCompleted
	}
	return idem.ClassUncertain
}

// outcomeOf adapts the operation's own rule to HTTP: if there is no response that could be
// replayed as completed, the error is the outcome.
func outcomeOf(op idem.Operation) idem.Operation {
	own := op.Classify
	if own == nil {
		return op
	}
	op.Classify = func(ctx context.Context, result any, err error) idem.Class {
		c := own(ctx, result, err)
		if c == idem.ClassCompleted && err != nil {
			if r, ok := result.(*Response); !ok || !r.final() {
				return idem.ClassFailed
			}
		}
		return c
	}
	return op
}
