package idemlambda

import (
	"bytes"
	"context"
	"encoding/json"
	"io"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/protocol"
)

// wrapShadow is wrap for an operation in shadow: the handler is called as aws-lambda-go calls
// it, and nothing else decides what the caller gets. That the live mode refuses the result's
// type is reported for each event.
func wrapShadow[In, Out any](engine *idem.Engine, op idem.Operation, key KeyFunc,
	fn func(context.Context, In) (Out, error), sel *fingerprint.Select, refused error) Handler {
	return func(ctx context.Context, payload []byte) (body []byte, err error) {
		var in In
		unread := json.NewDecoder(bytes.NewReader(payload)).Decode(&in)
		call := unobserved(op, refused)
		if refused == nil {
			call = observed(ctx, op, key, payload, sel, unread)
		}
		ran := false
		call.Run = func(ctx context.Context) idem.Answer {
			if ran = true; unread != nil {
				err = unread
				return idem.Answer{Err: err}
			}
			v, own := fn(ctx, in)
			if err = idem.Unmark(own); err == nil {
				body, err = encodeAsRuntime(v)
			}
			return idem.Answer{Value: v, Err: own}
		}
		if _, mistake := engine.Execute(withKillTime(ctx), call); !ran {
			return nil, mistake
		}
		return body, err
	}
}

// encodeAsRuntime returns the bytes that aws-lambda-go sends: of a reader that has no JSON, or
// an empty object, what it reads.
func encodeAsRuntime(v any) ([]byte, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	if r, ok := v.(io.Reader); ok && (err != nil || bytes.HasPrefix(b.Bytes(), []byte("{}"))) {
		if c, ok := v.(io.Closer); ok {
			defer c.Close()
		}
		return io.ReadAll(r)
	}
	if err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte{'\n'}), nil
}

// observed makes the call of an event in shadow. What would refuse the event is only reported.
func observed(ctx context.Context, op idem.Operation, key KeyFunc, payload []byte, sel *fingerprint.Select,
	unread error) (call idem.Call) {
	defer func() {
		if p := recover(); p != nil {
			call = unobserved(op, protocol.RedactPanic("idemlambda: the key function", p))
		}
	}()
	if isDurable(payload) {
		return unobserved(op, ErrDurableExecution)
	}
	fp, err := fingerprint.JSON(payload, sel)
	if err == nil {
		err = undecodable("event", unread)
	}
	tenant, value, noKey := key(ctx, payload)
	return observedCall(op, tenant, value, fp, err, noKey)
}

// observedCall has the key of what would be refused too: a retry sends the same token.
func observedCall(op idem.Operation, tenant, value string, fp idem.Fingerprint, no, noKey error) idem.Call {
	switch {
	case noKey != nil && no == nil:
		return unobserved(op, noKey)
	case noKey != nil:
		return unobserved(op, no)
	}
	if no != nil {
		fp = "" // it has no record
	}
	return idem.Call{Key: op.Key(tenant, value), Fingerprint: fp, NoClaim: no}
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
			call = unobserved(b.op, protocol.RedactPanic("idemlambda: the key function", p))
		}
	}()
	tenant, value, noKey := b.key(d.ctx, d.out.Event)
	return observedCall(b.op, tenant, value, work.fingerprint, no, noKey)
}
