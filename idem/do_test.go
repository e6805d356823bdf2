package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/big"
	"net/http"
	"os"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/stretchr/testify/require"
)

type order struct {
	ID    string
	Items []string
}

type receipt struct {
	Number  int
	secret  string // does not survive the codec
	Skipped string `json:"-"`
}

// The live result goes through the codec, so that it is what a replay gives.
func TestLiveResultIsTheReplayedOne(t *testing.T) {
	r := newRig(t, nil)
	key := unsafe.Key("t", "k")
	issue := func(context.Context, order) (receipt, error) {
		return receipt{Number: 7, secret: "s", Skipped: "x"}, nil
	}
	live, err := idem.Run(t.Context(), r.engine, key, order{ID: "o"}, issue)
	require.NoError(t, err)
	replay, err := idem.Run(t.Context(), r.engine, key, order{ID: "o"}, issue)
	require.NoError(t, err)
	require.Equal(t, receipt{Number: 7}, live.Value)
	require.Equal(t, live.Value, replay.Value)
	require.Equal(t, `{"Number":7}`, string(live.Outcome.Body))
	require.Equal(t, live.Outcome.Body, replay.Outcome.Body)

	require.False(t, live.Outcome.Replayed)
	require.True(t, replay.Outcome.Replayed)
	live.Outcome.Executed, live.Outcome.Replayed, live.Outcome.AttemptState = false, true, ""
	require.Equal(t, live.Outcome, replay.Outcome, "attempt, state and times too")
}

func TestRawBytesReplayAsTheyWere(t *testing.T) {
	r := newRig(t, nil)
	want := json.RawMessage(`{"b":1,"a":[1,2,3]}`)
	for range 2 {
		got, err := idem.Do(t.Context(), r.engine, unsafe.Key("t", "k"), json.RawMessage(`{"x":1}`),
			func(context.Context, json.RawMessage) (json.RawMessage, error) { return want, nil })
		require.NoError(t, err)
		require.Equal(t, string(want), string(got))
	}
	// The same JSON in another form is the same input; of a string every byte counts.
	_, err := idem.Do(t.Context(), r.engine, unsafe.Key("t", "k"), json.RawMessage(` {"x" : 1.0} `), never[json.RawMessage])
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), r.engine, unsafe.Key("t", "k"), ` {"x" : 1} `, never[string])
	require.ErrorIs(t, err, idem.ErrKeyReused)
}

func never[In any](context.Context, In) (json.RawMessage, error) { panic("must not run") }

func TestHandlerThatChangesItsInput(t *testing.T) {
	r := newRig(t, nil)
	key := unsafe.Key("t", "k")
	spoil := func(_ context.Context, o *order) (int, error) {
		o.ID, o.Items[0] = "changed", "changed"
		return 1, nil
	}
	for range 2 {
		_, err := idem.Do(t.Context(), r.engine, key, &order{ID: "o", Items: []string{"a"}}, spoil)
		require.NoError(t, err)
	}
	_, err := idem.Do(t.Context(), r.engine, key, &order{ID: "changed", Items: []string{"changed"}}, spoil)
	require.ErrorIs(t, err, idem.ErrKeyReused)
}

// awkward cannot be encoded, or not decoded, or panics over it.
type awkward struct{ mode string }

func (a awkward) MarshalJSON() ([]byte, error) {
	switch a.mode {
	case "error":
		return nil, errors.New("no form")
	case "panic":
		panic("encoder bug")
	}
	return []byte(`"` + a.mode + `"`), nil
}

func (a *awkward) UnmarshalJSON(raw []byte) error {
	switch string(raw) {
	case `"one way"`:
		return errors.New("no way back")
	case `"panic back"`:
		panic("decoder bug")
	}
	return json.Unmarshal(raw, &a.mode)
}

// The fact is never lost for the sake of the body.
func TestUnencodableResultIsCompletedWithoutIt(t *testing.T) {
	for _, mode := range []string{"error", "panic", "one way", "panic back"} {
		for _, op := range both {
			t.Run(mode+"/"+op.Name, func(t *testing.T) {
				r := newRig(t, nil)
				key, runs := op.Key("t", "k"), 0
				f := func(context.Context, int) (awkward, error) {
					runs++
					return awkward{mode}, nil
				}
				live := mustRun(t, r, key, f)
				require.Equal(t, awkward{mode}, live.Value, "the caller gets what the handler gave")
				require.True(t, live.Outcome.Omitted)
				require.Equal(t, []string{"claimed", "result_omitted", "completed"}, r.events.take())
				refused(t, r, key, idem.ErrOutcomeUnavailable, f)
				require.Equal(t, 1, runs)
			})
		}
	}
}

// A decoder that panics over what is recorded has executed nothing, and costs no outcome.
func TestADecoderThatPanicsReadsNoOutcome(t *testing.T) {
	for _, op := range both {
		r := newRig(t, nil)
		must(t, r, op.Key("t", "k"), func(context.Context, int) (string, error) { return "panic back", nil })
		got, err := idem.Do(t.Context(), r.engine, op.Key("t", "k"), 1, func(context.Context, int) (awkward, error) { panic("must not run") })
		require.ErrorIs(t, err, idem.ErrRecordUnreadable)
		require.ErrorContains(t, err, "decoding idem_test.awkward panicked at do_test.go")
		require.Zero(t, got)
		require.Equal(t, idem.Completed, r.state(t, op.Key("t", "k")))
	}
}

func TestTooLargeResultIsCompletedWithoutIt(t *testing.T) {
	r := newRigOver(t, memstore.Options{MaxResult: 2048}.New(), nil)
	key, big := unsafe.Key("t", "k"), strings.Repeat("x", 5000)
	live := mustRun(t, r, key, func(context.Context, int) (string, error) { return big, nil })
	require.Equal(t, big, live.Value)
	require.True(t, live.Outcome.Omitted)
	require.Equal(t, idem.Completed, live.Outcome.RecordState)
	replay, err := idem.Run(t.Context(), r.engine, key, 1, func(context.Context, int) (string, error) { panic("must not run") })
	require.ErrorIs(t, err, idem.ErrOutcomeUnavailable)
	require.True(t, replay.Outcome.Replayed)
	require.Equal(t, live.Outcome.RecordedAt, replay.Outcome.RecordedAt)
}

func TestKeptIsWhatReplaysGet(t *testing.T) {
	for _, tc := range []struct {
		name string
		ans  idem.Answer
		kept string
	}{
		{"unencodable", idem.Answer{Omitted: errors.New("no form"), Summary: []byte("status 201")}, "status 201"},
		{"too large", idem.Answer{Body: make([]byte, 5000), Summary: []byte("status 201")}, "status 201"},
		{"nothing kept", idem.Answer{Body: make([]byte, 5000)}, ""},
		{"more than may be kept", idem.Answer{Body: make([]byte, 5000), Summary: make([]byte, 1025)}, ""},
		{"too large to keep, unencodable", idem.Answer{Omitted: errors.New("no form"), Summary: make([]byte, 3000)}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRigOver(t, memstore.Options{MaxResult: 1024}.New(), nil)
			call := idem.Call{
				Key: unsafe.Key("t", "k"), Fingerprint: fingerprint.Bytes([]byte("in")),
				Run: func(context.Context) idem.Answer { return tc.ans },
			}
			out, err := r.engine.Execute(t.Context(), call)
			require.NoError(t, err)
			require.True(t, out.Omitted)
			require.False(t, out.Queued)
			_, err = r.engine.Execute(t.Context(), call)
			var gone *idem.OutcomeUnavailableError
			require.ErrorAs(t, err, &gone)
			require.Equal(t, tc.kept, string(gone.Summary))
		})
	}
}

// A recorded result that does not fit the type any more fails closed.
func TestRecordedResultOfAnotherType(t *testing.T) {
	r := newRig(t, nil)
	key := unsafe.Key("t", "k")
	must(t, r, key, func(context.Context, int) (string, error) { return "text", nil })
	err := refused(t, r, key, idem.ErrRecordUnreadable, new(counter).run)
	require.ErrorContains(t, err, "does not fit int")
}

// A result that was resolved with another type is refused with the way out.
func TestResolvedResultOfAnotherTypeIsResolvedAgain(t *testing.T) {
	r := newRig(t, nil)
	key := unsafe.Key("t", "k")
	call := func() (int, error) {
		return idem.Do(t.Context(), r.engine, key, 1, func(context.Context, int) (int, error) { return 0, errPlain })
	}
	resolve := func(again bool, result any) {
		encoded, err := reconcile.Encode(result)
		require.NoError(t, err)
		require.NoError(t, r.resolve(t, key.ID(), reconcile.Resolution{To: idem.Completed, Result: &encoded, Replace: again}))
	}
	_, err := call()
	require.Same(t, errPlain, err)
	resolve(false, "po_1")
	_, err = call()
	require.ErrorIs(t, err, idem.ErrRecordUnreadable)
	require.ErrorContains(t, err, "Resolution.Replace")
	resolve(true, 7)
	got, err := call()
	require.NoError(t, err)
	require.Equal(t, 7, got)
}

// The loser of a claim gets the recorded value, not its own: decoded afresh, with
// nothing of its own left in it.
func TestLoserGetsNothingOfItsOwnResult(t *testing.T) {
	r := newRig(t, nil)
	key := safe.Key("t", "k")
	type out struct{ A, B *int }
	n := 5
	got := mustRun(t, r, key, func(ctx context.Context, in int) (out, error) {
		r.clock.Advance(fmtLease)
		_, err := idem.Do(ctx, r.elsewhere(t).engine, key, in, func(context.Context, int) (out, error) { return out{A: &n}, nil })
		return out{B: &n}, err
	})
	require.True(t, got.Outcome.Replayed)
	require.Equal(t, `{"A":5,"B":null}`, string(got.Outcome.Body))
	require.Equal(t, out{A: &n}, got.Value)
}

const fmtLease = 10 * idem.DefaultLease

// A replay's own reading ends with its caller's patience, not later.
func TestReplayHonoursItsCallersDeadline(t *testing.T) {
	r := newRig(t, nil)
	key := unsafe.Key("t", "k")
	must(t, r, key, new(counter).run)
	ctx, cancel := context.WithCancel(t.Context())
	r.faults.Next(idemtest.Result, func(ctx context.Context, c *idemtest.Call) error {
		cancel()
		return idemtest.BlackHole(ctx, c)
	})
	_, err := idem.Do(ctx, r.engine, key, 1, new(counter).run)
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Equal(t, "store_unavailable", fmt.Sprint(r.events.take()[2]))
}

// What could be written and not be read again is refused, or left out.
func TestWhatCouldNotBeReadAgain(t *testing.T) {
	r := newRig(t, nil)
	call := idem.Call{Key: safe.Key("t", "k"), Run: func(context.Context) idem.Answer { panic("it must not run") }}
	for _, fp := range []idem.Fingerprint{"", "sha256-of-mine", "1:", "1:short", "0:x", "2:" + fingerprint.Bytes(nil)[2:]} {
		call.Fingerprint = fp
		var config *idem.ConfigError
		_, err := r.engine.Execute(t.Context(), call)
		require.ErrorAs(t, err, &config, "%q", fp)
		require.Empty(t, r.faults.Calls())
	}
	call.Fingerprint = fingerprint.Bytes([]byte("in"))
	for _, version := range []int{-1, math.MaxInt32 + 1} {
		call.Key = safe.Key("t", fmt.Sprint(version))
		call.Run = func(context.Context) idem.Answer { return idem.Answer{Body: []byte("1"), ResponseVersion: version} }
		_, err := r.engine.Execute(t.Context(), call)
		require.NoError(t, err)
		require.Zero(t, r.record(t, call.Key).ResponseVersion)
	}
}

func TestEffectRunsOnce(t *testing.T) {
	for name, end := range map[string]error{"done": nil, "failed": idem.Permanent(errPlain)} {
		t.Run(name, func(t *testing.T) {
			r, runs := newRig(t, nil), 0
			for n := range 2 {
				err := idem.DoEffect(t.Context(), r.engine, safe.Key("t", "k"), "parcel", func(_ context.Context, in string) error {
					require.Equal(t, "parcel", in)
					runs++
					return end
				})
				require.Equal(t, end == nil, err == nil, "call %d: %v", n, err)
			}
			require.Equal(t, 1, runs)
		})
	}
}

// A step without a result is skipped, undone and asked about like one that has one.
func TestStepEffect(t *testing.T) {
	r, key := newRig(t, nil), safe.Key("t", "k")
	var log []string
	says := func(what string, err error) func(context.Context) error {
		return func(context.Context) error { log = append(log, what); return err }
	}
	handler := func(ctx context.Context) (string, error) {
		if err := idem.StepEffect(ctx, "reserve", says("reserve", nil), &idem.EffectConfig{Compensate: says("undo reserve", nil)}); err != nil {
			return "", err
		}
		err := idem.StepEffect(ctx, "charge", says("charge", errPlain), &idem.EffectConfig{
			Semantics: idem.AtMostOnce, Compensate: says("undo charge", nil), NotFoundFinalAfter: idem.Immediately,
			Interrupted: func(ctx context.Context, began time.Time) error {
				require.False(t, began.IsZero())
				return says("ask", nil)(ctx)
			},
		})
		if err != nil {
			return "", err
		}
		return "", idem.PermanentStep(idem.StepEffect(ctx, "ship", says("ship", idem.Permanent(errPlain)), nil))
	}
	killed(t, r, key)
	begun := protocol.StepWrite{ID: key.ID(), Owner: r.record(t, key).Owner, Write: "w", Name: "charge", Begin: true}
	require.NoError(t, r.mem.RecordStep(t.Context(), r.clock.Now(), begun))
	r.clock.Advance(time.Minute)
	refused(t, r, key, errPlain, steps(handler))
	require.Equal(t, idem.Failed, r.state(t, key))
	require.Equal(t, []string{"reserve", "ask", "ship", "undo charge", "undo reserve"}, log)
}

func TestEffectWithoutAFunctionIsRefused(t *testing.T) {
	r := newRig(t, nil)
	var mistake *idem.ConfigError
	require.ErrorAs(t, idem.DoEffect[int](t.Context(), r.engine, safe.Key("t", "k"), 1, nil), &mistake)
	must(t, r, safe.Key("t", "k"), func(ctx context.Context, _ int) (string, error) {
		require.ErrorAs(t, idem.StepEffect(ctx, "reserve", nil, nil), &mistake)
		return "", nil
	})
}

// byPointer encodes itself by its address.
type byPointer struct{ v string }

func (p *byPointer) MarshalJSON() ([]byte, error) { return json.Marshal(p.v) }

func (p *byPointer) UnmarshalJSON(b []byte) error { return json.Unmarshal(b, &p.v) }

type hidden struct{ id string }

// Embedded, so that their names conflict.
type left struct{ ID string }
type right struct{ ID string }
type outer struct{ Hidden hidden }

// upload is a reader of which JSON sees something, but not what it reads.
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
		_, err := idem.Do(t.Context(), r.engine, safe.Key("t", "k"), in, func(context.Context, In) (int, error) { return 1, nil })
		return err
	}
}

// A value of which JSON sees nothing would make all inputs equal: another input would
// get the first one's outcome.
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
			var bad *idem.ConfigError
			require.ErrorAs(t, do(t, r), &bad)
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
		"embedded beside a field": asInput(struct {
			hidden
			N int
		}{}),
		"embedded pointer": asInput(struct{ *left }{}),
		"one of two names with a tag": asInput(struct {
			left
			Right string `json:"ID"`
		}{}),
		"nil error":                     asInput(struct{ Err error }{}),
		"nil any":                       asInput(any(nil)),
		"any":                           asInput(any(map[string]any{"a": []any{1, "x", nil, left{"a"}, &byPointer{"a"}, time.Now(), struct{}{}}})),
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
	r := newRig(t, nil)
	key := safe.Key("t", "k")
	echo := func(_ context.Context, m money) (money, error) { return m, nil }
	live, err := idem.Do(t.Context(), r.engine, key, euros(5), echo)
	require.NoError(t, err)
	require.Equal(t, euros(5), live)
	replay, err := idem.Do(t.Context(), r.engine, key, euros(5), echo)
	require.NoError(t, err)
	require.Equal(t, live, replay)
	_, err = idem.Do(t.Context(), r.engine, key, euros(500), echo)
	require.ErrorIs(t, err, idem.ErrKeyReused)
	_, err = idem.Do(t.Context(), r.engine, safe.Key("t", "alone"), *big.NewInt(1), func(_ context.Context, n big.Int) (big.Int, error) { return n, nil })
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), r.engine, safe.Key("t", "alone"), *big.NewInt(2), func(_ context.Context, n big.Int) (big.Int, error) { return n, nil })
	require.ErrorIs(t, err, idem.ErrKeyReused)
}

// A result of which JSON sees nothing would reach already the first caller empty.
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
	require.ErrorContains(t, do[io.Reader](t), "of what io.Reader reads JSON sees nothing, so that every caller would get an empty one: read it first and use the content")
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
	for name, held := range map[string]any{"a reader": strings.NewReader("a"), "a buffer": bytes.NewBufferString("a"), "a hidden value": hidden{"a"}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			runs := 0
			f := func(context.Context, int) (any, error) { runs++; return held, nil }
			live := mustRun(t, r, unsafe.Key("t", "k"), f)
			require.True(t, live.Outcome.Omitted)
			require.Equal(t, held, live.Value, "the caller gets what the handler gave")
			require.Contains(t, r.events.names, "result_omitted")
			refused(t, r, unsafe.Key("t", "k"), idem.ErrOutcomeUnavailable, f)
			require.Equal(t, 1, runs)
		})
	}
	for name, held := range map[string]any{"nothing": nil, "no members": map[string]int{}, "an empty struct": struct{}{}, "an encoder of its own": ownReader{}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			live := mustRun(t, r, unsafe.Key("t", "k"), func(context.Context, int) (any, error) { return held, nil })
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
	_, err := idem.Do(t.Context(), r.engine, safe.Key("t", "k"), 1, func(context.Context, int) (out Out, err error) { return out, nil })
	if err != nil {
		require.Empty(t, r.faults.Calls(), "found before anything ran")
	}
	return err
}

// TestInvalidTextIsNotMadeEqual: encoding/json replaces invalid bytes, so that
// two inputs could share a fingerprint.
func TestInvalidTextIsNotMadeEqual(t *testing.T) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	type nested struct {
		Names map[string][]*string
		Any   any
	}
	bad, good := "caf\xe9", "café \ufffd"
	op := idem.Operation{Name: "text"}
	do := func(in nested) error {
		_, err := idem.Do(t.Context(), engine, op.Key("t", "k"), in, func(context.Context, nested) (int, error) { return 1, nil })
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
