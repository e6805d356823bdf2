package idem

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"reflect"
)

// Result is what [Run] returns: the handler's result and the call's story.
type Result[Out any] struct {
	// Value is the handler's result, decoded from what is recorded.
	Value Out
	// Outcome is the story: replayed or not, which attempt, until when.
	Outcome Outcome
}

// Do runs fn at most once at a time per key while the key's record is kept, and
// gives every later call with the same key and input the recorded outcome. Whether
// fn may run again after an attempt without one, says the operation's [Repeat].
//
// The input's fingerprint is taken before fn runs: raw JSON ([json.RawMessage])
// as RFC 8785 canonicalises it, []byte and string as they are, everything else as
// its JSON. The result is recorded as JSON, and live too it is what decoding that JSON
// gives. Both are encoded by address: a MarshalJSON or MarshalText method with a pointer receiver counts.
// An input or a result type of which JSON sees nothing, at any depth, is refused before
// anything is claimed: a struct with fields that are all unexported or excluded (an
// empty struct is fine), or, in an input, such a value behind an interface, as most
// errors are. fn's error is returned
// as it is; later calls get a recorded failure as a [*RecordedError]. Instead of an
// outcome a call can get one of the package's errors, such as [ErrInFlight],
// [ErrKeyReused] or [ErrOutcomeUnknown].
//
// Do is safe for concurrent use and returns only when fn has returned.
func Do[In, Out any](ctx context.Context, e *Engine, key Key, in In, fn func(context.Context, In) (Out, error)) (Out, error) {
	r, err := Run(ctx, e, key, in, fn)
	return r.Value, err
}

// Run is [Do] with the call's story.
func Run[In, Out any](ctx context.Context, e *Engine, key Key, in In, fn func(context.Context, In) (Out, error)) (Result[Out], error) {
	var res Result[Out]
	if e == nil {
		return res, &ConfigError{"call", "the engine is nil: make one with idem.New"}
	}
	if fn == nil {
		return res, &ConfigError{"call", "the handler is nil"}
	}
	if err := e.checkResult(reflect.TypeFor[Out]()); err != nil {
		return res, err
	}
	fp, err := fingerprintOf(e, &in)
	if err != nil {
		return res, err
	}
	live := false
	res.Outcome, err = e.Execute(ctx, Call{Key: key, Fingerprint: fp, Run: func(ctx context.Context) Answer {
		v, err := fn(ctx, in)
		if err != nil && key.op.Classify == nil {
			return Answer{Err: err, Value: v}
		}
		live = true
		ans := Answer{Value: v, Err: err}
		ans.Body, ans.Omitted = throughCodec(v, &res.Value)
		if ans.Omitted != nil {
			ans.Body, res.Value = nil, v
		}
		return ans
	}})
	if err != nil {
		res.Value = *new(Out)
		return res, err
	}
	if live && !res.Outcome.Replayed {
		return res, nil
	}
	// Replayed, or another attempt's outcome stands in place of this one's.
	res.Value = *new(Out)
	if !res.Outcome.Replayed {
		return res, nil
	}
	if err := json.Unmarshal(res.Outcome.Body, &res.Value); err != nil {
		return res, fmt.Errorf("%w: the recorded result does not fit %T: %w", ErrRecordUnreadable, res.Value, err)
	}
	return res, nil
}

// throughCodec encodes v and decodes it again into out. It encodes by address, so that
// encoders with a pointer receiver work. A type's own encoder that panics fails to
// encode: the handler has succeeded, and that must be recorded.
func throughCodec[T any](v T, out *T) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, fmt.Errorf("idem: encoding %T panicked: %v", v, r)
		}
	}()
	if body, err = json.Marshal(&v); err != nil {
		return nil, err
	}
	return body, json.Unmarshal(body, out)
}

// fingerprintOf takes the fingerprint of an input, which is encoded by address too.
func fingerprintOf[In any](e *Engine, in *In) (Fingerprint, error) {
	switch v := any(*in).(type) {
	case json.RawMessage:
		return FingerprintJSON(v, nil)
	case []byte:
		return FingerprintBytes(v), nil
	case string:
		return FingerprintBytes([]byte(v)), nil
	}
	s := e.shape(reflect.TypeFor[In](), true)
	blind := s.blind
	var raw []byte
	if blind == nil {
		var err error
		if raw, err = json.Marshal(in); err != nil {
			return "", &ConfigError{"input", fmt.Sprintf("%T cannot be encoded as JSON: %v", *in, err)}
		}
		if s.open {
			blind = e.blindIn(reflect.ValueOf(in).Elem())
		}
	}
	if blind != nil {
		return "", &ConfigError{"input", fmt.Sprintf("of %v JSON sees nothing, so that all inputs would look the same: %s", blind, seen)}
	}
	// encoding/json writes every invalid byte as the same escape: inputs that differ
	// there must not become equal.
	if bytes.Contains(raw, []byte(`\ufffd`)) && e.invalidText(reflect.ValueOf(in)) {
		return "", &NotCanonicalError{Reason: "a string of the input is not valid UTF-8: send bytes as []byte", Offset: -1}
	}
	return FingerprintJSON(raw, nil)
}
