package idem_test

import (
	"bytes"
	"errors"
	"log/slog"
	"regexp"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem/notice"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
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

func TestLogToTheDefaultLogger(t *testing.T) {
	idem.LogTo(nil)(t.Context(), notice.Notice{Kind: notice.Claimed}) // debug: not shown, and no panic
}
