package reconcile_test

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem"
)

// orderEffects counts what an order did.
type orderEffects struct {
	reserved, charged, shipped, returned, asked int
}

// shopping reserves, charges at most once, and ships; charging ends in died.
func shopping(s *orderEffects, died func()) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "reserve", func(context.Context) (int, error) { s.reserved++; return 1, nil },
			&idem.StepConfig[int]{Compensate: func(context.Context, int) error { s.returned++; return nil }})
		if err != nil {
			return 0, err
		}
		id, err := idem.Step(ctx, "charge", func(context.Context) (int, error) { s.charged++; died(); return 7, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce, NotFoundFinalAfter: idem.Immediately,
				Interrupted: func(context.Context, time.Time) (int, error) { s.asked++; return 7, nil }})
		if err != nil {
			return 0, idem.PermanentStep(err)
		}
		return id, idem.StepEffect(ctx, "ship", func(context.Context) error { s.shipped++; return nil }, nil)
	}
}

// charge is a handler with the charge as its only step, whose result has the type T.
func charge[T any](s *orderEffects, result T) func(context.Context, int) (int, error) {
	return chargeWith(s, result, &idem.StepConfig[T]{Semantics: idem.AtMostOnce})
}

// refundable is a charge with a compensation.
func refundable[T any](s *orderEffects, result T) func(context.Context, int) (int, error) {
	return chargeWith(s, result, undoing[T](s))
}

func undoing[T any](s *orderEffects) *idem.StepConfig[T] {
	return &idem.StepConfig[T]{Semantics: idem.AtMostOnce, Compensate: func(context.Context, T) error { s.returned++; return nil }}
}

func chargeWith[T any](s *orderEffects, result T, conf *idem.StepConfig[T]) func(context.Context, int) (int, error) {
	return func(ctx context.Context, _ int) (int, error) {
		_, err := idem.Step(ctx, "charge", func(context.Context) (T, error) { s.charged++; return result, nil }, conf)
		if err == nil {
			s.shipped++ // nothing of it is recorded
		}
		return s.shipped, err
	}
}
