package protocol

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type secretive struct{ error }

func (s secretive) MarshalJSON() ([]byte, error) { return nil, s.error }

func TestARedactedErrorSaysWhatIsWrongWithoutWhatWasSent(t *testing.T) {
	type order struct {
		Card int32
		Born time.Time
	}
	decoding := func(text string) error { return json.Unmarshal([]byte(text), &order{}) }
	encoding := func(v any) error { _, err := json.Marshal(v); return err }
	secret := errors.New("secret")
	for name, c := range map[string]struct {
		cause any
		want  string
	}{
		"a number": {decoding(`{"Card":4111111111111111}`), `the JSON number at byte 24 does not fit "Card" of type int32`},
		"a string": {decoding(`{"Card":"secret"}`), `the JSON string at byte 16 does not fit "Card" of type int32`},
		"a type's decoder": {decoding(`{"Born":"secret, 1 High Street"}`),
			"an error of type *time.ParseError"},
		"no member": {json.Unmarshal([]byte("[-4111111111111111]"), &[]int32{}),
			"the JSON number at byte 18 does not fit type int32"},
		"no JSON": {decoding(`{"Card":?`), "no JSON from byte 9 on"},
		"wrapped": {fmt.Errorf("4111: %w", decoding(`{"Card":"secret"}`)),
			`the JSON string at byte 16 does not fit "Card" of type int32`},
		"a type's encoder":                    {encoding(secretive{secret}), "an error of type *errors.errorString"},
		"no number":                           {encoding(math.NaN()), "an error of type *json.UnsupportedValueError"},
		"a panic's text":                      {"secret", "a value of type string"},
		"an error that cannot say what it is": {secretive{}, "an error of type protocol.secretive"},
		"twice":                               {Redact("reading", secret), "reading: an error of type *errors.errorString"},
	} {
		err := Redact("doing it", c.cause)
		require.EqualError(t, err, "doing it: "+c.want, name)
		if cause, ok := c.cause.(error); ok {
			require.ErrorIs(t, err, cause, name)
		}
	}
}

func TestAnErrorOfAPanicNamesItsLine(t *testing.T) {
	at := func(f func()) (err error) {
		defer func() { err = RedactPanic("the key function", recover()) }()
		f()
		return nil
	}
	four, none, text := 4111, []int{}, any("secret")
	var missing map[string]int
	for want, f := range map[string]func(){
		"a value of type string":                                           func() { panic("secret") },
		"an error of type *errors.errorString":                             func() { panic(errors.New("secret")) },
		"runtime error: index out of range":                                func() { none[four]++ },
		"interface conversion: interface {} is string, not int":            func() { four = text.(int) },
		"runtime error: invalid memory address or nil pointer dereference": func() { _ = (*order)(nil).card },
		"a value of type int":                                              func() { _, _ = json.Marshal(explosive{}) },
		"assignment to entry in nil map":                                   func() { missing["secret"] = 1 },
	} {
		require.Regexp(t, `^the key function panicked at redact_test\.go:\d+: \Q`+want+`\E$`, at(f).Error())
	}
	require.Equal(t, "the key function panicked: a value of type string",
		RedactPanic("the key function", "secret").Error(), "outside of a panic there is no line")
}

type order struct{ card int }

type explosive struct{}

func (explosive) MarshalJSON() ([]byte, error) { panic(4111) }
