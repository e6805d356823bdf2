package idem_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/notice"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
)

// A kind that is added is logged too, and says something of its own.
func TestLogToSaysEveryKind(t *testing.T) {
	var out bytes.Buffer
	o := idem.LogTo(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug})))
	said := map[string]notice.Kind{}
	for _, kind := range kinds(t) {
		out.Reset()
		o(t.Context(), notice.Notice{
			Kind: kind, ID: "acme#charge#digest", Operation: "charge", Attempt: 3, State: idem.Unknown, Err: errors.New("why"),
		})
		for _, part := range []string{"acme#charge#digest", "attempt=3", "state=unknown", "error=why", "msg=\"idem: ", "kind=" + string(kind)} {
			require.Contains(t, out.String(), part, kind)
		}
		message := regexp.MustCompile(`msg=("[^"]*"|\S+)`).FindString(out.String())
		require.NotContains(t, said, message, "%s says the same as another", kind)
		said[message] = kind
	}
}

// What is not known, such as the state before a claim, is left out.
func TestLogToLeavesOutWhatIsNotKnown(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	idem.LogTo(log)(t.Context(), notice.Notice{Kind: notice.StoreUnavailable, ID: "acme#charge#digest", Operation: "charge", Elapsed: time.Second})
	require.Regexp(t, `msg="idem: store unavailable, nothing was executed" kind=store_unavailable record=acme#charge#digest operation=charge elapsed=1s\n$`, out.String())
}

func TestTheOperationOfTheExampleIsProtectedWithoutItsVariable(t *testing.T) {
	require.Empty(t, os.Getenv("IDEM_SHADOW"))
	require.False(t, Fulfil.Shadow)
}

// A trial that somebody forgets is a service without protection.
func TestTheLogWarnsOnceOfEachOperationInShadow(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	for name, o := range map[string]idem.Observer{"the default log": idem.Observers(nil), "LogTo": idem.LogTo(nil)} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			slog.SetDefault(slog.New(slog.NewTextHandler(&out, nil)))
			e, err := idem.New(memstore.New(), &idem.Options{Observer: o})
			require.NoError(t, err)
			for _, call := range []string{"charge", "charge", "refund", "charge"} {
				finished(t, &rig{engine: e}, idem.Operation{Name: call, Shadow: true}.Key("acme", "k"))
			}
			finished(t, &rig{engine: e}, idem.Operation{Name: "live"}.Key("acme", "k"))
			require.Equal(t, 2, strings.Count(out.String(), "level=WARN"), out.String())
			for _, op := range []string{"charge", "refund"} {
				require.Equal(t, 1, strings.Count(out.String(), "end the trial by Operation.Shadow\" operation="+op+"\n"), out.String())
			}
		})
	}
}

func TestLogToTheDefaultLogger(t *testing.T) {
	idem.LogTo(nil)(t.Context(), notice.Notice{Kind: notice.Claimed}) // debug: not shown, and no panic
}

// A result that does not decode again is quoted by the decoder.
func TestNoErrorTakesTheResultToTheDefaultLog(t *testing.T) {
	var out bytes.Buffer
	defer slog.SetDefault(slog.Default())
	slog.SetDefault(slog.New(slog.NewJSONHandler(&out, nil)))
	e, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	type kept struct {
		Text oneWay
		As   string
	}
	for i, as := range []string{"a number", "a panic", "an error", "a step"} {
		v := kept{As: as, Text: oneWay{as}}
		_, err := idem.Do(t.Context(), e, idem.Operation{Name: "order"}.Key("acme", strconv.Itoa(i)), as, func(ctx context.Context, _ string) (kept, error) {
			if as != "a step" {
				return v, nil
			}
			_, err := idem.Step(ctx, "step", func(context.Context) (oneWay, error) { return oneWay{"a number"}, nil }, nil)
			return kept{}, err
		})
		require.Equal(t, as == "a step", err != nil)
	}
	require.Equal(t, 3, strings.Count(out.String(), "recorded without its result"))
	require.Contains(t, out.String(), "decoding idem_test.oneWay again")
	require.Contains(t, out.String(), "encoding idem_test.kept panicked at log_test.go")
	require.NotContains(t, out.String(), "4111111111111111")
}

// oneWay can be encoded, or not even that.
type oneWay struct{ as string }

func (o oneWay) MarshalJSON() ([]byte, error) {
	switch o.as {
	case "a panic":
		panic("4111111111111111")
	case "an error":
		return nil, errors.New("4111111111111111")
	}
	return []byte("4111111111111111"), nil
}

func (o *oneWay) UnmarshalJSON(b []byte) error {
	var small int32
	return json.Unmarshal(b, &small)
}
