package idem_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
	r, key := rigOn(t, unsafe)
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
	live.Outcome.Class = idem.ClassDefault
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
	_, err := idem.Do(t.Context(), r.engine, unsafe.Key("t", "k"), json.RawMessage(` {"x" : 1.0} `),
		never[json.RawMessage])
	require.NoError(t, err)
	_, err = idem.Do(t.Context(), r.engine, unsafe.Key("t", "k"), ` {"x" : 1} `, never[string])
	require.ErrorIs(t, err, idem.ErrKeyReused)
}

func never[In any](context.Context, In) (json.RawMessage, error) { panic("must not run") }

func TestHandlerThatChangesItsInput(t *testing.T) {
	r, key := rigOn(t, unsafe)
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
		must(t, r, op.Key("t", "k"), returns("panic back"))
		got, err := idem.Do(t.Context(), r.engine, op.Key("t", "k"), 1,
			func(context.Context, int) (awkward, error) { panic("must not run") })
		require.ErrorIs(t, err, idem.ErrRecordUnreadable)
		require.ErrorContains(t, err, "decoding idem_test.awkward panicked at do_test.go")
		require.Zero(t, got)
		require.Equal(t, idem.Completed, r.state(t, op.Key("t", "k")))
	}
}

func TestTooLargeResultIsCompletedWithoutIt(t *testing.T) {
	for _, op := range append(both, atomically) {
		r := rigOver(t, memstore.Options{MaxResult: 2048}.New(), new(idemtest.Clock), nil)
		key, big := op.Key("t", "k"), strings.Repeat("x", 5000)
		live := mustRun(t, r, key, returns(big))
		require.Equal(t, big, live.Value)
		require.True(t, live.Outcome.Omitted)
		require.Equal(t, idem.Completed, live.Outcome.RecordState)
		replay, err := idem.Run(t.Context(), r.engine, key,
			1, func(context.Context, int) (string, error) { panic("must not run") })
		require.ErrorIs(t, err, idem.ErrOutcomeUnavailable)
		require.True(t, replay.Outcome.Replayed)
		require.Equal(t, live.Outcome.RecordedAt, replay.Outcome.RecordedAt)
	}
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
			r := rigOver(t, memstore.Options{MaxResult: 1024}.New(), new(idemtest.Clock), nil)
			call := idem.Call{Key: unsafe.Key("t", "k"), Fingerprint: fingerprint.Bytes([]byte("in")),
				Run: func(context.Context) idem.Answer { return tc.ans }}
			out, err := r.engine.Execute(t.Context(), call)
			require.NoError(t, err)
			require.True(t, out.Omitted)
			require.False(t, out.Queued)
			_, err = r.engine.Execute(t.Context(), call)
			lost := errorAs[*idem.OutcomeUnavailableError](t, err)
			require.Equal(t, tc.kept, string(lost.Summary))
		})
	}
}

// A result that was resolved with another type is refused with the way out.
func TestResolvedResultOfAnotherTypeIsResolvedAgain(t *testing.T) {
	r, key := rigOn(t, unsafe)
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
	require.ErrorContains(t, err, "does not fit int")
	require.ErrorContains(t, err, "Resolution.Replace")
	resolve(true, 7)
	got, err := call()
	require.NoError(t, err)
	require.Equal(t, 7, got)
}

// The loser of a claim gets the recorded value, not its own: decoded afresh, with nothing of its own left in it.
func TestLoserGetsNothingOfItsOwnResult(t *testing.T) {
	r, key := rigOn(t, safe)
	type out struct{ A, B *int }
	n := 5
	got := mustRun(t, r, key, func(ctx context.Context, in int) (out, error) {
		r.clock.Advance(fmtLease)
		_, err := idem.Do(ctx, r.elsewhere(t).engine, key,
			in, func(context.Context, int) (out, error) { return out{A: &n}, nil })
		return out{B: &n}, err
	})
	require.True(t, got.Outcome.Replayed)
	require.Equal(t, `{"A":5,"B":null}`, string(got.Outcome.Body))
	require.Equal(t, out{A: &n}, got.Value)
}

const fmtLease = 10 * idem.DefaultLease

// A replay's own reading ends with its caller's patience, not later.
func TestReplayHonoursItsCallersDeadline(t *testing.T) {
	r, key := rigOn(t, unsafe)
	must(t, r, key, new(counter).run)
	ctx, cancel := context.WithCancel(t.Context())
	r.faults.Next(idemtest.Result, func(ctx context.Context, c *idemtest.Call) error {
		cancel()
		return idemtest.BlackHole(ctx, c)
	})
	err := refused(t, r.in(ctx), key, context.Canceled, new(counter).run)
	require.ErrorIs(t, err, idem.ErrStoreUnavailable)
	require.Equal(t, "store_unavailable", fmt.Sprint(r.events.take()[2]))
}

// What could be written and not be read again is refused, or left out.
func TestWhatCouldNotBeReadAgain(t *testing.T) {
	r := newRig(t, nil)
	call := idem.Call{Key: safe.Key("t", "k"), Run: func(context.Context) idem.Answer { panic("it must not run") }}
	for _, fp := range []idem.Fingerprint{"", "sha256-of-mine", "1:", "1:short", "0:x",
		"2:" + fingerprint.Bytes(nil)[2:]} {
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

// An operation or a step without a result is recorded, skipped, undone and asked about like one that has one.
func TestEffects(t *testing.T) {
	r, key := rigOn(t, safe)
	var log []string
	says := func(what string, err error) func(context.Context) error {
		return func(context.Context) error { log = append(log, what); return err }
	}
	killedWith(t, r, key, protocol.StepWrite{Name: "charge", Begin: true})
	for range 2 {
		err := idem.DoEffect(t.Context(), r.engine, key, 1, func(ctx context.Context, in int) error {
			require.Equal(t, 1, in)
			require.ErrorAs(t, idem.StepEffect(ctx, "nil", nil, nil), new(*idem.ConfigError))
			require.NoError(t, idem.StepEffect(ctx, "reserve", says("reserve", nil),
				&idem.EffectConfig{Compensate: says("undo reserve", nil)}))
			require.NoError(t, idem.StepEffect(ctx, "charge", says("charge", errPlain), &idem.EffectConfig{
				Semantics: idem.AtMostOnce, Compensate: says("undo charge", nil), NotFoundFinalAfter: idem.Immediately,
				Interrupted: func(ctx context.Context, began time.Time) error {
					require.False(t, began.IsZero())
					return says("ask", nil)(ctx)
				}}))
			return idem.PermanentStep(idem.StepEffect(ctx, "ship", says("ship", idem.Permanent(errPlain)), nil))
		})
		require.EqualError(t, err, "plain")
	}
	require.Equal(t, idem.Failed, r.state(t, key))
	require.Equal(t, []string{"reserve", "ask", "ship", "undo charge", "undo reserve"}, log)
	require.ErrorAs(t, idem.DoEffect[int](t.Context(), r.engine, key, 1, nil), new(*idem.ConfigError))
	for range 2 {
		require.NoError(t, idem.DoEffect(t.Context(), r.engine, safe.Key("t", "done"), 1, func(context.Context, int) error {
			return says("done", nil)(t.Context())
		}))
	}
	require.Len(t, log, 6)
}

func TestAReplayIsOfTheRecordThatWasRead(t *testing.T) {
	r, key := rigOn(t, safe)
	finished(t, r, key)
	old := r.record(t, key)
	r.faults.Next(idemtest.Result, func(context.Context, *idemtest.Call) error {
		r.clock.Advance(2 * idem.DefaultRetention)
		must(t, r.elsewhere(t), key, returns(99))
		return protocol.ErrRecordUnreadable
	})
	out, err := r.engine.Replay(t.Context(), old)
	require.ErrorIs(t, err, idem.ErrRecordUnreadable, "%s", out.Body)
}
