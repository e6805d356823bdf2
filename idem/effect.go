package idem

import (
	"context"
	"time"
)

// DoEffect is [Do] for a handler without a result: what is recorded, and replayed, is
// that it is done, or its failure.
func DoEffect[In any](ctx context.Context, e *Engine, key Key, in In, fn func(context.Context, In) error) error {
	var run func(context.Context, In) (struct{}, error)
	if fn != nil {
		run = func(ctx context.Context, in In) (struct{}, error) { return struct{}{}, fn(ctx, in) }
	}
	_, err := Do(ctx, e, key, in, run)
	return err
}

// StepEffect is [Step] for a function without a result: that it is done is recorded.
func StepEffect(ctx context.Context, name string, fn func(context.Context) error, c *EffectConfig) error {
	var run func(context.Context) (struct{}, error)
	if fn != nil {
		run = func(ctx context.Context) (struct{}, error) { return struct{}{}, fn(ctx) }
	}
	_, err := Step(ctx, name, run, c.step())
	return err
}

// EffectConfig says how a [StepEffect] runs, as [StepConfig] does for a [Step].
type EffectConfig struct {
	// Semantics, Reference and Retry: see [StepConfig].
	Semantics StepSemantics
	Reference string
	Retry     Retry
	// Compensate undoes the step once it is done: see [StepConfig].
	Compensate func(ctx context.Context) error
	// Interrupted finds out what became of an [AtMostOnce] step that began in an earlier
	// attempt, and returns nil if it is done. For NotFoundFinalAfter too see [StepConfig].
	Interrupted        func(ctx context.Context, began time.Time) error
	NotFoundFinalAfter time.Duration
}

// step is the same for a step whose result is empty.
func (c *EffectConfig) step() *StepConfig[struct{}] {
	if c == nil {
		return nil
	}
	s := &StepConfig[struct{}]{Semantics: c.Semantics, Reference: c.Reference, Retry: c.Retry, NotFoundFinalAfter: c.NotFoundFinalAfter}
	if f := c.Compensate; f != nil {
		s.Compensate = func(ctx context.Context, _ struct{}) error { return f(ctx) }
	}
	if f := c.Interrupted; f != nil {
		s.Interrupted = func(ctx context.Context, began time.Time) (struct{}, error) { return struct{}{}, f(ctx, began) }
	}
	return s
}
