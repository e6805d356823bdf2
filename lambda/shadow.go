package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
)

// wrapShadow is wrap for an operation in shadow: the handler is called as aws-lambda-go calls
// it, and nothing else decides what the caller gets.
func wrapShadow[In, Out any](engine *idem.Engine, op idem.Operation, key KeyFunc, fn func(context.Context, In) (Out, error), sel *fingerprint.Select) Handler {
	type result struct {
		value Out
		err   error
	}
	type resultKey struct{}
	plain := lambda.NewHandler(func(ctx context.Context, in In) (Out, error) {
		got, _ := ctx.Value(resultKey{}).(*result)
		got.value, got.err = fn(ctx, in)
		return got.value, idem.Unmark(got.err)
	})
	return func(ctx context.Context, payload []byte) (body []byte, err error) {
		call := observed[In](ctx, op, key, payload, sel)
		ran := false
		call.Run = func(ctx context.Context) idem.Answer {
			ran = true
			var got result
			body, err = plain.Invoke(context.WithValue(ctx, resultKey{}, &got), payload)
			return idem.Answer{Value: got.value, Err: got.err}
		}
		if _, mistake := engine.Execute(withKillTime(ctx), call); !ran {
			return nil, mistake
		}
		return body, err
	}
}

// observed makes the call of an event in shadow. What would refuse the event is only told.
func observed[In any](ctx context.Context, op idem.Operation, key KeyFunc, payload []byte, sel *fingerprint.Select) (call idem.Call) {
	defer func() {
		if p := recover(); p != nil {
			call = unobserved(op, fmt.Errorf("idemlambda: the key function or a decoder panicked: %v", p))
		}
	}()
	if isDurable(payload) {
		return unobserved(op, ErrDurableExecution)
	}
	fp, err := fingerprint.JSON(payload, sel)
	if err != nil {
		return unobserved(op, err)
	}
	var in In
	if err := json.Unmarshal(payload, &in); err != nil {
		return unobserved(op, err)
	}
	tenant, value, err := key(ctx, payload)
	if err != nil {
		return unobserved(op, err)
	}
	return idem.Call{Key: op.Key(tenant, value), Fingerprint: fp}
}

// unobserved is the call of an event in shadow that has no record.
func unobserved(op idem.Operation, why error) idem.Call {
	return idem.Call{Key: op.Key("", ""), NoClaim: why}
}

// runShadow gives a record in shadow its outcome: the handler's result alone acknowledges.
func (b *batch[R]) runShadow(d *delivery[R]) {
	defer d.ended()
	work, err := b.open(d.out.Event)
	if work.run == nil {
		d.out.Reason, d.out.Err = ReasonBodyUnreadable, err
		return
	}
	call := b.observedRecord(d, work, err)
	d.out.RecordID = call.Key.ID()
	d.turn.wait()
	d.turn.pass()
	call.Run = func(ctx context.Context) idem.Answer { return idem.Answer{Err: work.run(ctx)} }
	if _, err = b.engine.Execute(d.ctx, call); err != nil {
		d.out.Reason, d.out.Err = ReasonReleased, err
		return
	}
	d.out.Reason = ReasonExecuted
}

func (b *batch[R]) observedRecord(d *delivery[R], work job, no error) (call idem.Call) {
	defer func() {
		if p := recover(); p != nil {
			call = unobserved(b.op, fmt.Errorf("idemlambda: the key function panicked: %v", p))
		}
	}()
	if no != nil {
		return unobserved(b.op, no)
	}
	tenant, value, err := b.key(d.ctx, d.out.Event)
	if err != nil {
		return unobserved(b.op, err)
	}
	return idem.Call{Key: b.op.Key(tenant, value), Fingerprint: work.fingerprint}
}
