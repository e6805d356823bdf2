package idem_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"reflect"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// TestLogToCoversTheObserver: a function that is added must be logged, too.
func TestLogToCoversTheObserver(t *testing.T) {
	var out bytes.Buffer
	o := reflect.ValueOf(*idem.LogTo(slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{Level: slog.LevelDebug}))))
	said := map[string]string{}
	for i := range o.NumField() {
		name := o.Type().Field(i).Name
		require.False(t, o.Field(i).IsNil(), "%s is not logged", name)
		out.Reset()
		o.Field(i).Interface().(func(context.Context, idem.Notice))(t.Context(), idem.Notice{
			ID: "acme#charge#digest", Operation: "charge", Attempt: 3, State: idem.Unknown, Err: errors.New("why"),
		})
		for _, part := range []string{"acme#charge#digest", "attempt=3", "state=unknown", "error=why", "msg=\"idem: "} {
			require.Contains(t, out.String(), part, name)
		}
		message := out.String()[bytes.Index(out.Bytes(), []byte("msg=")):]
		require.NotContains(t, said, message, "%s says the same as another", name)
		said[message] = name
	}
}

// What is not known, such as the state before a claim, is left out.
func TestLogToLeavesOutWhatIsNotKnown(t *testing.T) {
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	idem.LogTo(log).StoreUnavailable(t.Context(), idem.Notice{ID: "acme#charge#digest", Operation: "charge", Elapsed: time.Second})
	require.Regexp(t, `msg="idem: store unavailable, nothing was executed" record=acme#charge#digest operation=charge elapsed=1s\n$`, out.String())
}

func TestLogToTheDefaultLogger(t *testing.T) {
	idem.LogTo(nil).Claimed(t.Context(), idem.Notice{}) // debug: not shown, and no panic
}
