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
// its JSON; a struct without an exported field is refused. The result is recorded
// as JSON, and live too it is what decoding that JSON gives. fn's error is returned
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
	fp, err := fingerprintOf(in)
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
		ans.Body, ans.Unencodable = throughCodec(v, &res.Value)
		if ans.Unencodable != nil {
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

// throughCodec encodes v and decodes it again into out. A type's own encoder that
// panics fails to encode: the handler has succeeded, and that must be recorded.
func throughCodec(v, out any) (body []byte, err error) {
	defer func() {
		if r := recover(); r != nil {
			body, err = nil, fmt.Errorf("idem: encoding %T panicked: %v", v, r)
		}
	}()
	if body, err = json.Marshal(v); err != nil {
		return nil, err
	}
	return body, json.Unmarshal(body, out)
}

func fingerprintOf[In any](in In) (Fingerprint, error) {
	switch v := any(in).(type) {
	case json.RawMessage:
		return FingerprintJSON(v, nil)
	case []byte:
		return FingerprintBytes(v), nil
	case string:
		return FingerprintBytes([]byte(v)), nil
	}
	raw, err := json.Marshal(in)
	if err != nil {
		return "", &ConfigError{"input", fmt.Sprintf("%T cannot be encoded as JSON: %v", in, err)}
	}
	if string(raw) == "{}" && hidesAll(reflect.TypeOf(in)) {
		return "", &ConfigError{"input", fmt.Sprintf("%T has no exported field, so that all inputs would look the same: "+
			"export what tells them apart", in)}
	}
	// encoding/json writes every invalid byte as the same escape: inputs that differ
	// there must not become equal.
	if bytes.Contains(raw, []byte(`\ufffd`)) && invalidText(reflect.ValueOf(in)) {
		return "", &NotCanonicalError{Reason: "a string of the input is not valid UTF-8: send bytes as []byte", Offset: -1}
	}
	return FingerprintJSON(raw, nil)
}

// hidesAll reports whether encoding/json sees none of the type's fields.
func hidesAll(t reflect.Type) bool {
	if p := reflect.PointerTo(t); p.Implements(jsonMarshaler) || p.Implements(textMarshaler) {
		return false
	}
	if t.Kind() == reflect.Pointer {
		return hidesAll(t.Elem())
	}
	if t.Kind() != reflect.Struct || t.NumField() == 0 {
		return false
	}
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() || f.Anonymous {
			return false
		}
	}
	return true
}

// checkResult refuses a result type that no value of which can be encoded, before
// anything runs.
func (e *Engine) checkResult(t reflect.Type) error {
	if known, ok := e.types.Load(t); ok {
		err, _ := known.(error)
		return err
	}
	err := CheckResultType(t)
	e.types.Store(t, err)
	return err
}

// CheckResultType reports a type that encoding/json cannot encode, such as a
// channel or a function, as a [*ConfigError]. Types with methods of their own for
// encoding are taken at their word.
func CheckResultType(t reflect.Type) error {
	if bad := unencodable(t, map[reflect.Type]bool{}); bad != nil {
		return &ConfigError{"result type " + t.String(), fmt.Sprintf("%v cannot be encoded as JSON: return data only", bad)}
	}
	return nil
}

var (
	jsonMarshaler = reflect.TypeFor[json.Marshaler]()
	textMarshaler = reflect.TypeFor[interface{ MarshalText() ([]byte, error) }]()
)

func unencodable(t reflect.Type, seen map[reflect.Type]bool) reflect.Type {
	if p := reflect.PointerTo(t); seen[t] || p.Implements(jsonMarshaler) || p.Implements(textMarshaler) {
		return nil
	}
	seen[t] = true
	switch t.Kind() {
	case reflect.Chan, reflect.Func, reflect.Complex64, reflect.Complex128, reflect.UnsafePointer:
		return t
	case reflect.Map:
		if k := t.Key(); !isName(k.Kind()) && !k.Implements(textMarshaler) {
			return t
		}
		return unencodable(t.Elem(), seen)
	case reflect.Pointer, reflect.Slice, reflect.Array:
		return unencodable(t.Elem(), seen)
	case reflect.Struct:
		for i := range t.NumField() {
			f := t.Field(i)
			if !f.IsExported() && !f.Anonymous || f.Tag.Get("json") == "-" {
				continue
			}
			if bad := unencodable(f.Type, seen); bad != nil {
				return bad
			}
		}
	}
	return nil
}

// isName reports whether encoding/json makes member names of the kind by itself.
func isName(k reflect.Kind) bool {
	return k == reflect.String || k >= reflect.Int && k <= reflect.Uintptr
}
