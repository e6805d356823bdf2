package idemlambda

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/stretchr/testify/require"
)

// Messages with one key and several bodies: the first in the batch gets the key, however
// long the others' keys take to find, and whatever ends badly between them.
func TestSQSFirstInTheBatchGetsTheKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen reports
		key := func(ctx context.Context, m *events.SQSMessage) (string, string, error) {
			switch m.MessageId {
			case "m1":
				time.Sleep(time.Second) // looks its key up
			case "m2":
				return "", "", idem.ErrKeyInvalid
			case "m3":
				panic("bad key")
			}
			return byAttribute(ctx, m)
		}
		h := SQS(realTime(t, memory()), fulfil, key, &SQSOptions{OnOutcome: seen.hook}, func(context.Context, order) error {
			time.Sleep(time.Second)
			return nil
		})
		var ms []events.SQSMessage
		for i := range 12 {
			ms = append(ms, messageOf(fmt.Sprint("m", i+1), "k1", fmt.Sprintf(`{"id":"o%d"}`, i)))
		}
		ms = append(ms, messageOf("m13", "k2", `{}`), messageOf("m14", "k2", `{"id":"later"}`))
		deliver(t, h, ms...)
		for id, reason := range seen.reasons() {
			want := ReasonKeyReused
			switch id {
			case "m1", "m13":
				want = ReasonExecuted
			case "m2":
				want = ReasonKeyInvalid
			case "m3":
				want = ReasonPanicked
			}
			require.Equal(t, want, reason, id)
		}
		require.Len(t, seen.reasons(), len(ms))
	})
}

// A message waits for the one before it with its key: that one may leave the key free.
func TestSQSMessageWaitsForTheOneBeforeWithItsKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h, seen := queueOf(realTime(t, memory()), fulfil, func(_ context.Context, o order) error {
			time.Sleep(time.Second)
			if o.ID == "o1" {
				return idem.NotExecuted(errors.New("sold out"))
			}
			return nil
		})
		deliver(t, h, messageOf("m1", "k", `{"id":"o1"}`), messageOf("m2", "k", `{"id":"o2"}`))
		require.Equal(t, ReasonExecuted, seen.reasons()["m2"])
	})
}

// A success whose record could not be written yet is a success; a failure is not acknowledged before it is recorded.
func TestSQSOutcomesThatAreNotRecorded(t *testing.T) {
	for do, want := range map[string]Reason{"": ReasonExecuted, "permanent": ReasonUnrecorded, "fail": ReasonUnrecorded,
		"not executed": ReasonUnrecorded} {
		t.Run(do, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				unfinished := broken(memory(), idemtest.LoseRequest, idemtest.Finish)
				h, seen := queueOf(realTime(t, unfinished), fulfil, work)
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				_, err := h(ctx, batchOf(messageOf("m1", "k1", fmt.Sprintf(`{"do":%q}`, do))))
				require.NoError(t, err)
				require.Equal(t, want, seen.outcomes["m1"].Reason)
				require.Equal(t, idem.InProgress, seen.outcomes["m1"].State)
				require.Equal(t, do != "", seen.outcomes["m1"].Failure != nil)
			})
		})
	}
}

// The operation's own rule counts for a queue too.
func TestSQSGoesByTheOperationsRule(t *testing.T) {
	for _, c := range []struct {
		do   string
		says idem.Class
		want Reason
	}{
		{"fail", idem.ClassCompleted, ReasonExecuted},
		{"fail", idem.ClassFailed, ReasonFailed},
		{"fail", idem.ClassNotExecuted, ReasonReleased},
		{"fail", idem.ClassUncertain, ReasonUnknown},
		{"fail", idem.ClassDefault, ReasonUnknown},
		{"", idem.ClassCompleted, ReasonExecuted},
		{"", idem.ClassFailed, ReasonExecuted},
		{"", idem.ClassNotExecuted, ReasonReleased},
		{"", idem.ClassUncertain, ReasonUnknown},
		{"", idem.ClassDefault, ReasonExecuted},
	} {
		op := idem.Operation{Name: "fulfil", Classify: func(_ context.Context, result any, err error) idem.Class {
			require.Nil(t, result)
			require.Equal(t, c.do == "fail", err != nil)
			return c.says
		}}
		h, seen := queueOf(newEngine(t, memory()), op, work)
		deliver(t, h, messageOf("m1", "k1", fmt.Sprintf(`{"do":%q}`, c.do)))
		out := seen.outcomes["m1"]
		require.Equal(t, c.want, out.Reason, "%+v", c)
		require.Equal(t, c.want == ReasonExecuted, out.Err == nil, "%+v", c)
	}
}

// What the hooks do costs no message its outcome.
func TestSQSHooksThatEndBadly(t *testing.T) {
	ends := map[string]func(){"panic": func() { panic("hook") }, "goexit": runtime.Goexit}
	for name, end := range ends {
		t.Run(name, func(t *testing.T) {
			var log bytes.Buffer
			h := SQS(newEngine(t, memory()), fulfil, byAttribute, &SQSOptions{
				Logger:       slog.New(slog.NewTextHandler(&log, nil)),
				OnOutcome:    func(context.Context, SQSDelivery) { end() },
				OnFailed:     func(context.Context, SQSDelivery) error { end(); return nil },
				OnRedelivery: func(context.Context, []SQSDelivery) { end() },
			}, work)
			res, err := h(t.Context(), batchOf(
				inGroup(messageOf("m1", "k1", `{}`), "g"),
				inGroup(messageOf("m2", "k2", `{"do":"permanent"}`), "g"),
				inGroup(messageOf("m3", "k3", `{}`), "g"),
			))
			require.NoError(t, err)
			require.Equal(t, []string{"m2", "m3"}, named(res), "what could not be forwarded is redelivered")
			require.Contains(t, log.String(), string(ReasonFailureNotForwarded))
			require.Contains(t, log.String(), string(ReasonBlocked))
			if name == "panic" {
				require.Contains(t, log.String(), "the OnOutcome hook panicked")
				require.Contains(t, log.String(), "the OnRedelivery hook panicked")
			}
		})
	}
}

// Every message gets a line, without its body and its key's value.
func TestSQSLog(t *testing.T) {
	var log bytes.Buffer
	h := SQS(newEngine(t, memory()), fulfil, byAttribute, &SQSOptions{
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug})), Concurrency: 1,
	}, work)
	_, err := h(t.Context(), batchOf(
		messageOf("m1", "secret-1", `{"id":"private"}`),
		messageOf("m2", "secret-2", `{"id":"private","do":"permanent"}`),
		messageOf("m3", "secret-3", `{"id":"private","do":"fail"}`),
		messageOf("m4", "secret-4", `{"id":"private","do":"panic"}`),
		messageOf("m5", "secret-1", `{"id":"private","do":"permanent"}`),
		messageOf("m6", "", `{"id":"private"}`),
	))
	require.NoError(t, err)
	lines := strings.Split(strings.TrimSpace(log.String()), "\n")
	require.Len(t, lines, 6)
	for i, want := range []string{
		`level=DEBUG msg="idem: message acknowledged" event=m1 reason=executed record=#fulfil#`,
		`level=WARN msg="idem: message acknowledged" event=m2 reason=failed record=#fulfil#`,
		`level=WARN msg="idem: message will be redelivered" event=m3 reason=released record=#fulfil#`,
		`level=ERROR msg="idem: message will be redelivered" event=m4 reason=panicked record=#fulfil#`,
		`level=WARN msg="idem: message will be redelivered" event=m5 reason=key_reused record=#fulfil#`,
		`level=WARN msg="idem: message will be redelivered" event=m6 reason=key_invalid receives=1 error=`,
	} {
		require.Contains(t, lines[i], want)
		require.Contains(t, lines[i], "receives=1")
	}
	require.NotRegexp(t, `=""|attempt=0`, log.String(), "what is not known is left out")
	require.Contains(t, lines[2], `error="connection reset"`)
	require.Contains(t, lines[3], "sqs_test.go", "the stack")
	require.NotContains(t, log.String(), "secret")
	require.NotContains(t, log.String(), "private")
}

// The hook for what is redelivered gets it in the batch's order and has little time.
func TestSQSReturned(t *testing.T) {
	for _, c := range []struct{ left, want time.Duration }{{0, 2 * time.Second}, {time.Minute, 2 * time.Second},
		{3 * time.Second, 1500 * time.Millisecond}} {
		synctest.Test(t, func(t *testing.T) {
			var back []SQSDelivery
			calls := 0
			h := SQS(realTime(t, memory()), fulfil, byAttribute,
				&SQSOptions{OnRedelivery: func(ctx context.Context, b []SQSDelivery) {
					back, calls = b, calls+1
					end, ok := ctx.Deadline()
					require.True(t, ok)
					require.Equal(t, c.want, time.Until(end))
					require.NoError(t, ctx.Err())
				}}, work)
			ctx, cancel := context.WithCancel(t.Context())
			if c.left > 0 {
				ctx, cancel = context.WithTimeout(t.Context(), c.left)
			}
			defer cancel()
			_, err := h(ctx, batchOf(messageOf("m1", "k1", `{}`)))
			require.NoError(t, err)
			require.Zero(t, calls, "not called for nothing")
			_, err = h(ctx, batchOf(
				messageOf("m1", "k1", `{}`), messageOf("m2", "k2", `{"do":"fail"}`), messageOf("m3", "k3", `{}`),
				messageOf("m4", "k4", `{`)))
			require.NoError(t, err)
			require.Len(t, back, 2)
			require.Equal(t, []Reason{ReasonReleased, ReasonBodyUnreadable}, []Reason{back[0].Reason, back[1].Reason})
			require.Equal(t, "m2", back[0].Event.MessageId)
		})
	}
}

// Lambda takes an empty name for the failure of the whole batch: a message without an id is never lost.
func TestSQSMessageWithoutAnID(t *testing.T) {
	h, _ := queueOf(newEngine(t, memory()), fulfil, work)
	require.Empty(t, deliver(t, h, messageOf("", "k1", `{}`), messageOf("m2", "k2", `{}`)))
	require.Equal(t, []string{""},
		deliver(t, h, messageOf("", "k3", `{"do":"fail"}`), messageOf("", "k4", `{"do":"fail"}`),
			messageOf("m2", "k2", `{}`)))
}

// receivedAs sends a body to a handler of the type.
func receivedAs[In any](t *testing.T, body string) (got In, out SQSDelivery) {
	t.Helper()
	h, seen := queueOf(newEngine(t, memory()), fulfil, func(_ context.Context, in In) error {
		got = in
		return nil
	})
	deliver(t, h, messageOf("m1", "k1", body))
	return got, seen.outcomes["m1"]
}

func TestSQSBodies(t *testing.T) {
	const body = `{ "id": "o1", "do": "" }`
	o, out := receivedAs[order](t, body)
	require.Equal(t, order{ID: "o1"}, o)
	require.Equal(t, ReasonExecuted, out.Reason)

	p, _ := receivedAs[*order](t, body)
	require.Equal(t, &order{ID: "o1"}, p)
	raw, _ := receivedAs[json.RawMessage](t, body)
	require.Equal(t, body, string(raw))
	text, _ := receivedAs[string](t, body)
	require.Equal(t, body, text)
	bytes, _ := receivedAs[[]byte](t, "\xff not JSON")
	require.Equal(t, "\xff not JSON", string(bytes))
	text, out = receivedAs[string](t, "")
	require.Empty(t, text)
	require.Equal(t, ReasonExecuted, out.Reason)

	for _, unreadable := range []string{"", "x", `{"id":"o1"`, `{"id":1}`, `{"id":"a","id":"b"}`, "{\"id\":\"\xff\"}"} {
		_, out := receivedAs[order](t, unreadable)
		require.Equal(t, ReasonBodyUnreadable, out.Reason, unreadable)
		require.Error(t, out.Err)
		require.Empty(t, out.RecordID)
	}
	_, out = receivedAs[json.RawMessage](t, "x")
	require.Equal(t, ReasonBodyUnreadable, out.Reason)
	_, out = receivedAs[panics](t, "1")
	require.Equal(t, ReasonPanicked, out.Reason)
	require.Equal(t, "decoder", out.Err.(*PanicError).Value)
	decodings = 0
	_, _ = receivedAs[counted](t, "{}")
	require.Equal(t, 1, decodings)
}

type panics struct{}

func (*panics) UnmarshalJSON([]byte) error { panic("decoder") }

// counted counts how often it is decoded.
type counted struct{}

var decodings int

func (*counted) UnmarshalJSON([]byte) error { decodings++; return nil }

// White space and the order of members make no other message; with a type that takes the bytes they do.
func TestSQSFingerprints(t *testing.T) {
	again := func(h SQSHandler, seen *reports) Reason {
		for _, body := range []string{`{"id":"o1","do":""}`, `{ "do": "", "id": "o1" }`} {
			deliver(t, h, messageOf("m1", "k1", body))
		}
		return seen.outcomes["m1"].Reason
	}
	require.Equal(t, ReasonReplayed, again(queueOf(newEngine(t, memory()), fulfil, work)))
	require.Equal(t, ReasonKeyReused, again(queueOf(newEngine(t, memory()), fulfil, ignore)))
}

// The message is in reach of handler, key function and hooks, and nowhere else.
func TestSQSMessageOf(t *testing.T) {
	asked := 0
	see := func(ctx context.Context) {
		m, ok := SQSMessageOf(ctx)
		require.True(t, ok)
		require.Equal(t, "m1", m.MessageId)
		require.Equal(t, "k1", *m.MessageAttributes[SQSKeyAttribute].StringValue)
		asked++
	}
	h := SQS(newEngine(t, memory()), fulfil, func(ctx context.Context, m *events.SQSMessage) (string, string, error) {
		see(ctx)
		return byAttribute(ctx, m)
	}, &SQSOptions{
		OnOutcome: func(ctx context.Context, _ SQSDelivery) { see(ctx) },
		OnFailed:  func(ctx context.Context, _ SQSDelivery) error { see(ctx); return nil },
	}, func(ctx context.Context, o order) error { see(ctx); return work(ctx, o) })
	deliver(t, h, messageOf("m1", "k1", `{"do":"permanent"}`))
	require.Equal(t, 4, asked)
	_, ok := SQSMessageOf(t.Context())
	require.False(t, ok)
}

// Text is not decoded, and the key's pointer sees what a JSON reader further on sees.
func TestSQSTextWithTwoKeysGoesBack(t *testing.T) {
	for _, body := range []string{`{"id":"first","id":"last"}`, `{"id":"first","ID":"last"}`} {
		var seen reports
		o := &SQSOptions{OnOutcome: seen.hook}
		e, key := newEngine(t, memory()), SQSPointer(idem.SingleTenant, "/id")
		for _, h := range []SQSHandler{
			SQS(e, fulfil, key, o, func(context.Context, string) error { panic("it ran") }),
			SQS(e, fulfil, key, o, func(context.Context, []byte) error { panic("it ran") }),
		} {
			require.Equal(t, []string{"m"}, deliver(t, h, messageOf("m", "", body)))
			require.Equal(t, ReasonKeyInvalid, seen.outcomes["m"].Reason)
		}
	}
}
