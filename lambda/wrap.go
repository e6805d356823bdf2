package idemlambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Handler is a Lambda handler of raw bytes. Its Invoke method makes it a Handler
// of aws-lambda-go, which passes it the payload unchanged and sends its result
// unchanged.
type Handler func(ctx context.Context, payload []byte) ([]byte, error)

// Invoke calls h.
func (h Handler) Invoke(ctx context.Context, payload []byte) ([]byte, error) { return h(ctx, payload) }

// Wrap makes a typed handler idempotent. The fingerprint is taken from the event's
// raw JSON, so a new field in In does not change it. In is decoded and Out encoded as in
// aws-lambda-go, except that encoders with a pointer receiver count too. An event that is
// not JSON with a canonical form, does not decode or has no key is an error before anything is
// claimed.
//
// fn's error reaches the runtime unchanged, unless the engine has ended the attempt
// ([idem.Outcome].StopCause), such as for an interrupted step. A recorded failure is replayed with the same
// errorMessage (up to 2 KiB) and errorType. The engine's own answers have types of their
// own, by which Step Functions can retry and catch. InFlightError, LimitExceededError, PausedError,
// StoreUnavailableError, OutOfTimeError, NotCommittedError and OutcomeNotYetKnownError are worth a retry; the last,
// of a step that is asked about again later, after the time that its text says. AcceptedError,
// DurableExecutionError, KeyInvalidError, KeyReusedError, NotCanonicalError,
// OutcomeUnavailableError, OutcomeUnknownError and RecordUnreadableError are not.
// errors.Is finds the errors of package idem in them.
//
// A result that cannot be encoded is recorded as completed without it: this call
// and every later one get [idem.ErrOutcomeUnavailable]. So is a reader in an interface: the
// stream that aws-lambda-go would send of it could not be replayed.
//
// The event of a durable execution is refused with [ErrDurableExecution].
//
// Mistakes in the set-up panic, see the package's documentation: a nil engine,
// key function or handler, an operation or an option that fails its check, or a result
// type that [idem.CheckResultType] refuses, such as an [io.Reader], or that is a stream, such as
// a function URL's streaming response. In shadow a refused result type is only reported.
func Wrap[In, Out any](engine *idem.Engine, op idem.Operation, key KeyFunc, fn func(context.Context, In) (Out, error),
	o ...WrapOption) Handler {
	return wrap("idemlambda.Wrap", engine, op, key, fn, o)
}

// WrapOption of [Wrap], [Async] and [StepFunctions].
type WrapOption func(*wrapOptions)

type wrapOptions struct{ sel *fingerprint.Select }

// WithSelect says which parts of two events with the same key are compared; the default
// is all. For [StepFunctions] they are parts of the task's input. Leave
// out a member that differs between two sendings, such as a time or a trace id: otherwise
// a repeat counts as a reused key.
func WithSelect(s fingerprint.Select) WrapOption {
	return func(o *wrapOptions) { o.sel = &s }
}

// wrap is Wrap; what names its caller in errors.
func wrap[In, Out any](what string, engine *idem.Engine, op idem.Operation, key KeyFunc,
	fn func(context.Context, In) (Out, error), with []WrapOption) Handler {
	var o wrapOptions
	for _, option := range with {
		if option != nil {
			option(&o)
		}
	}
	if err := checkWrap(what, engine, op, key, fn == nil, reflect.TypeFor[Out](), o.sel); err != nil {
		panic(err)
	}
	switch err := idem.CheckResultType(reflect.TypeFor[Out]()); {
	case op.Shadow:
		return wrapShadow(engine, op, key, fn, o.sel, err)
	case err != nil:
		panic(err)
	}
	return func(ctx context.Context, payload []byte) ([]byte, error) {
		if isDurable(payload) {
			return nil, toRuntime(ErrDurableExecution)
		}
		fp, err := fingerprint.JSON(payload, o.sel)
		if err != nil {
			return nil, toRuntime(err)
		}
		var in In
		if err := json.Unmarshal(payload, &in); err != nil {
			return nil, err
		}
		tenant, value, err := key(ctx, payload)
		if err != nil {
			return nil, toRuntime(err)
		}
		var unencodable error
		out, err := engine.Execute(withKillTime(ctx), idem.Call{
			Key: op.Key(tenant, value), Fingerprint: fp,
			Run: func(ctx context.Context) idem.Answer {
				v, err := fn(ctx, in)
				ans := idem.Answer{Value: v, Err: recordable(err)}
				// Only the operation's own rule can make a result with an error count.
				if err == nil || op.Classify != nil {
					ans.Body, unencodable = encode(&v)
					ans.Omitted = unencodable
				}
				return ans
			},
		})
		switch {
		case out.StopCause != nil:
			return nil, stopped(&out, err)
		case out.Executed && err != nil:
			return nil, fromHandler(err)
		case err != nil:
			return nil, toRuntime(err)
		case out.Executed && unencodable != nil && out.Omitted:
			// Every later caller gets the same error.
			return nil, toRuntime(&idem.OutcomeUnavailableError{Reason: unencodable.Error()})
		case out.Executed && unencodable != nil:
			return nil, unencodable
		}
		return out.Body, nil
	}
}

// streamed is a result that aws-lambda-go sends as a stream, with its content type.
type streamed interface {
	io.Reader
	ContentType() string
}

func checkWrap(what string, engine *idem.Engine, op idem.Operation, key KeyFunc, noHandler bool, result reflect.Type,
	sel *fingerprint.Select) error {
	missingKey := ""
	if key == nil {
		missingKey = `idemlambda.Pointer(idem.SingleTenant, "/paymentId")`
	}
	if err := checkHandler(what, engine, op, missingKey, noHandler, sel); err != nil {
		return err
	}
	if result.Implements(reflect.TypeFor[streamed]()) {
		return invalid(what, op,
			fmt.Sprintf("the result type %v is sent as a stream with a content type of its own, which cannot be recorded: "+
				"use the handler of the event source, such as idemlambda.FunctionURL, or leave the stream's handler unwrapped",
				result))
	}
	return nil
}

// encode returns the bytes that aws-lambda-go would send. It makes an error of a panic in
// a type's own encoder: the handler has succeeded, and that must be recorded.
func encode[Out any](v *Out) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, protocol.RedactPanic(fmt.Sprintf("idemlambda: encoding %T", *v), r)
		}
	}()
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return nil, protocol.Redact(fmt.Sprintf("idemlambda: encoding %T", *v), err)
	}
	if body = bytes.TrimSuffix(b.Bytes(), []byte{'\n'}); string(body) == "{}" {
		// Only now is it known what an interface holds.
		if err := idem.CheckResultType(reflect.TypeOf(*v)); err != nil {
			return nil, err
		}
	}
	return body, nil
}

// withKillTime tells the engine when Lambda kills the function. That is the context's
// deadline, unless the context has a kill time already. If a middleware has shortened the
// deadline, [idem.WithKillTime] renews the lease after it.
func withKillTime(ctx context.Context) context.Context {
	if d, ok := ctx.Deadline(); ok {
		return idem.WithKillTime(ctx, d)
	}
	return ctx
}

// ErrDurableExecution is the answer of [Wrap], [Async] and [StepFunctions] to the event of
// a durable execution
// (https://docs.aws.amazon.com/lambda/latest/dg/durable-functions.html). Its errorType is
// DurableExecutionError, and nothing has been executed. Lambda invokes such a function
// again until the execution has ended, each time with what is recorded of it so far. Its
// answers, such as PENDING, are therefore not outcomes: if PENDING were recorded, it would
// be replayed and the execution would never continue. Make the steps idempotent instead,
// with [idem.Do] in their functions. A caller starts the execution once by naming it.
var ErrDurableExecution = errors.New("idemlambda: the event is that of a durable execution, which Lambda invokes " +
	"again until it has ended, so that its answers are no outcomes to record: call idem.Do inside the " +
	"execution's steps instead of wrapping its handler")

// isDurable recognises what Lambda sends a durable function.
// https://docs.aws.amazon.com/lambda/latest/api/API_CheckpointDurableExecution.html
func isDurable(payload []byte) bool {
	members := []string{"DurableExecutionArn", "CheckpointToken", "InitialExecutionState"}
	for _, name := range members {
		// Most events need not be decoded.
		if !bytes.Contains(payload, []byte(name)) {
			return false
		}
	}
	var event map[string]json.RawMessage // by exact names
	if json.Unmarshal(payload, &event) != nil {
		return false
	}
	for _, name := range members {
		if event[name] == nil {
			return false
		}
	}
	return true
}
