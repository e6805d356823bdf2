package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/stretchr/testify/require"
)

// byPointer encodes itself by its address.
type byPointer struct{ v string }

func (p *byPointer) MarshalJSON() ([]byte, error) { return json.Marshal(p.v) }

func (p *byPointer) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &p.v) }

type hidden struct{ id string }

// Embedded, so that their names conflict.
type left struct{ ID string }
type right struct{ ID string }
type outer struct{ Hidden hidden }

// upload is a reader that JSON sees something of, but not what it reads.
type upload struct {
	Name string
	from io.Reader
}

func (u *upload) Read(p []byte) (int, error) { return u.from.Read(p) }

// ownReader reads, and encodes itself.
type ownReader struct{ io.Reader }

func (ownReader) MarshalJSON() ([]byte, error) { return []byte(`"own"`), nil }

type excluded struct {
	ID string `json:"-"`
}

func asInput[In any](in In) func(*testing.T, *rig) error {
	return func(t *testing.T, r *rig) error {
		_, err := idem.Do(t.Context(), r.engine, safe.Key("t", "k"), in,
			func(context.Context, In) (int, error) { return 1, nil })
		return err
	}
}

// A value that JSON sees nothing of would make all inputs equal: another input would get the first one's outcome.
func TestInputsThatAllLookTheSameAreRefused(t *testing.T) {
	for name, do := range map[string]func(*testing.T, *rig) error{
		"struct":   asInput(hidden{"a"}),
		"pointer":  asInput(&hidden{"a"}),
		"excluded": asInput(excluded{"a"}),
		"nested":   asInput(outer{hidden{"a"}}),
		"embedded": asInput(struct{ hidden }{hidden{"a"}}),
		"names that conflict": asInput(struct {
			left
			right
		}{left{"a"}, right{"b"}}),
		"slice":                     asInput([]hidden{{"a"}}),
		"array":                     asInput([1]hidden{{"a"}}),
		"map":                       asInput(map[string]hidden{"k": {"a"}}),
		"a pointer's method in map": asInput(map[string]byPointer{"k": {"a"}}),
		"any":                       asInput(any(hidden{"a"})),
		"a pointer's method in any": asInput(any(byPointer{"a"})),
		"error":                     asInput(struct{ Err error }{errPlain}),
		"wrapped error":             asInput(struct{ Err error }{fmt.Errorf("no: %w", errPlain)}),
		"joined errors":             asInput([]any{errors.Join(errPlain, errPlain)}),
		"deep":                      asInput(map[string]any{"a": []any{1, map[string]any{"b": &hidden{"a"}}}}),
		"behind a nil pointer":      asInput(struct{ P *hidden }{}),
		"a reader":                  asInput(io.Reader(strings.NewReader("a"))),
		"a reader with a field":     asInput(struct{ Body *upload }{&upload{"a", strings.NewReader("a")}}),
		"any reader with a field":   asInput(any(&upload{"a", strings.NewReader("a")})),
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			bad := errorAs[*idem.ConfigError](t, do(t, r))
			require.Equal(t, "input", bad.What)
			require.Empty(t, r.faults.Calls())
		})
	}
}

// What JSON sees tells inputs apart, however little it is.
func TestInputsThatJSONSeesAreTaken(t *testing.T) {
	type mixed struct {
		id    string
		Cents int `json:"cents,omitempty"`
	}
	type tree struct {
		ID     string
		Parent *tree `json:"-"`
		Value  any
	}
	self := &tree{ID: "a", Value: `\ufffd`}
	self.Parent = self // which JSON does not see
	for name, do := range map[string]func(*testing.T, *rig) error{
		"no input":           asInput(struct{}{}),
		"nothing but a mark": asInput(struct{ _ struct{} }{}),
		"some hidden":        asInput(mixed{id: "a"}),
		"embedded next to a field": asInput(struct {
			hidden
			N int
		}{}),
		"embedded pointer": asInput(struct{ *left }{}),
		"one of two names with a tag": asInput(struct {
			left
			Right string `json:"ID"`
		}{}),
		"nil error": asInput(struct{ Err error }{}),
		"nil any":   asInput(any(nil)),
		"any": asInput(
			any(map[string]any{"a": []any{1, "x", nil, left{"a"}, &byPointer{"a"}, time.Now(), struct{}{}}})),
		"a name in any":                 asInput(any(time.Second)),
		"a loop that JSON does not see": asInput(self),
		"tagged and embedded": asInput(struct {
			time.Time `json:"at"`
			big.Int   `json:"n"`
		}{}),
		"map of pointers": asInput(map[string]*byPointer{"k": {"a"}}),
		"map of texts":    asInput(map[time.Time]int{{}: 1}),
	} {
		t.Run(name, func(t *testing.T) { require.NoError(t, do(t, newRig(t, nil))) })
	}
}

// Encoders with a pointer receiver count wherever the value has an address: they tell
// inputs apart, and results are the same live and on replay.
func TestEncodersWithAPointerReceiver(t *testing.T) {
	type money struct {
		Amount big.Int
		Note   byPointer
	}
	euros := func(n int64) money { return money{*big.NewInt(n), byPointer{"euros"}} }
	r, key := rigOn(t, safe)
	echo := func(_ context.Context, m money) (money, error) { return m, nil }
	live, err := idem.Do(t.Context(), r.engine, key, euros(5), echo)
	require.NoError(t, err)
	require.Equal(t, euros(5), live)
	replay, err := idem.Do(t.Context(), r.engine, key, euros(5), echo)
	require.NoError(t, err)
	require.Equal(t, live, replay)
	_, err = idem.Do(t.Context(), r.engine, key, euros(500), echo)
	require.ErrorIs(t, err, idem.ErrKeyReused)
	_, err = idem.Do(t.Context(), r.engine, safe.Key("t", "alone"), *big.NewInt(1),
		func(_ context.Context, n big.Int) (big.Int, error) { return n, nil })
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), r.engine, safe.Key("t", "alone"), *big.NewInt(2),
		func(_ context.Context, n big.Int) (big.Int, error) { return n, nil })
	require.ErrorIs(t, err, idem.ErrKeyReused)
}

// A result that JSON sees nothing of would be empty even for the first caller.
func TestResultTypesThatJSONSeesNothingOf(t *testing.T) {
	require.ErrorContains(t, do[hidden](t), "idem_test.hidden")
	require.ErrorContains(t, do[*hidden](t), "idem_test.hidden")
	require.ErrorContains(t, do[[]outer](t), "idem_test.hidden")
	require.ErrorContains(t, do[map[string]byPointer](t), "byPointer")
	require.ErrorContains(t, do[struct{ Deep map[int]*struct{ E excluded } }](t), "excluded")
	require.NoError(t, do[struct{}](t))
	require.NoError(t, do[byPointer](t))
	require.NoError(t, do[error](t), "what an interface will hold is not known")
	require.Error(t, idem.CheckResultType(reflect.TypeFor[hidden]()))
}

// What a reader gives can be had once: a replay would have nothing of it.
func TestResultTypesThatAreRead(t *testing.T) {
	require.ErrorContains(t, do[io.Reader](t), "of what io.Reader reads JSON sees nothing, so that every caller would "+
		"get an empty one: read it first and use the content")
	require.ErrorContains(t, do[struct{ Body io.ReadCloser }](t), "of what io.ReadCloser reads")
	require.ErrorContains(t, do[[]http.File](t), "of what http.File reads")
	require.ErrorContains(t, do[*bytes.Buffer](t), "of what bytes.Buffer reads")
	require.ErrorContains(t, do[*os.File](t), "of what os.File reads")
	require.ErrorContains(t, do[upload](t), "of what idem_test.upload reads")
	require.ErrorContains(t, do[io.LimitedReader](t), "of what io.LimitedReader reads")
	require.NoError(t, do[ownReader](t))
	require.NoError(t, do[interface {
		io.Reader
		json.Marshaler
	}](t))
	require.NoError(t, do[struct {
		Body io.Reader `json:"-"`
		Text string
	}](t))
}

// What an interface holds is known only after the effect: the fact is recorded.
func TestAReaderInAnInterfaceIsCompletedWithoutIt(t *testing.T) {
	for name, held := range map[string]any{"a reader": strings.NewReader("a"), "a buffer": bytes.NewBufferString("a"),
		"a hidden value": hidden{"a"}} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			runs := 0
			f := func(context.Context, int) (any, error) { runs++; return held, nil }
			live := mustRun(t, r, key, f)
			require.True(t, live.Outcome.Omitted)
			require.Equal(t, held, live.Value, "the caller gets what the handler gave")
			require.Contains(t, r.events.names, "result_omitted")
			refused(t, r, key, idem.ErrOutcomeUnavailable, f)
			require.Equal(t, 1, runs)
		})
	}
	for name, held := range map[string]any{"nothing": nil, "no members": map[string]int{}, "an empty struct": struct{}{},
		"an encoder of its own": ownReader{}} {
		testOn(t, name, unsafe, func(t *testing.T, r *rig, key idem.Key) {
			live := mustRun(t, r, key, func(context.Context, int) (any, error) { return held, nil })
			require.False(t, live.Outcome.Omitted)
		})
	}
}

func TestResultTypesThatCannotBeEncoded(t *testing.T) {
	require.ErrorContains(t, do[func()](t), "func()")
	require.ErrorContains(t, do[map[string]chan int](t), "chan int")
	require.ErrorContains(t, do[struct{ Deep []*struct{ C chan int } }](t), "chan int")
	require.NoError(t, do[struct {
		C chan int `json:"-"`
		c chan int
		N int
	}](t))
	require.NoError(t, do[*order](t))
	require.NoError(t, do[any](t))
	require.NoError(t, do[awkward](t), "a type with an encoder of its own is taken at its word")
	require.NoError(t, do[map[int]string](t))
	type node struct{ Next *node }
	require.NoError(t, do[node](t))
}

func do[Out any](t *testing.T) error {
	t.Helper()
	r := newRig(t, nil)
	_, err := idem.Do(t.Context(), r.engine, safe.Key("t", "k"),
		1, func(context.Context, int) (out Out, err error) { return out, nil })
	if err != nil {
		require.Empty(t, r.faults.Calls(), "found before anything ran")
	}
	return err
}

// TestInvalidTextIsNotMadeEqual: encoding/json replaces invalid bytes, so that two inputs could share a fingerprint.
func TestInvalidTextIsNotMadeEqual(t *testing.T) {
	engine := engineOver(t, memstore.New(), nil)
	type nested struct {
		Names map[string][]*string
		Any   any
	}
	bad, good := "caf\xe9", "café \ufffd"
	op := idem.Operation{Name: "text"}
	do := func(in nested) error {
		_, err := idem.Do(t.Context(), engine, op.Key("t", "k"),
			in, func(context.Context, nested) (int, error) { return 1, nil })
		return err
	}
	for name, in := range map[string]nested{
		"in a list":   {Names: map[string][]*string{"a": {&good, &bad}}},
		"as a key":    {Names: map[string][]*string{bad: nil}},
		"behind any":  {Any: []string{bad}},
		"in a string": {Any: bad},
	} {
		t.Run(name, func(t *testing.T) { require.ErrorIs(t, do(in), fingerprint.ErrNotCanonical) })
	}
	require.NoError(t, do(nested{Names: map[string][]*string{good: {&good}}, Any: json.RawMessage(`"\ufffd \\ufffd"`)}))
}
