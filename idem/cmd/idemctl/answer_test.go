package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// Who makes the change is asked for before anything is read, and a refusal does not name the code
// that says so.
func TestARefusalIsAboutTheChangeAlone(t *testing.T) {
	changing(t, func(b *rig) {
		caller := b.backend.caller
		b.backend.caller = func(context.Context) string { return "" }
		b.Faults.Always(idemtest.Refuse, idemtest.Get)
		out, errs := b.want(exitUsage, releaseR1...)
		require.Empty(b.t, out)
		require.Contains(b.t, errs, "it is not known who makes this change: use --who")
		b.Faults.Heal()
		b.backend.caller = caller
		for _, args := range [][]string{
			{"forget", r1.ID(), "--yes", "--reason", "a test"},
			{"release", r1.ID(), "--again", "--step", "ship=done", "--yes", "--reason", "a test"},
		} {
			b.says(exitFailed, "is refused, and nothing was changed", args...)
			require.NotRegexp(b.t, "(reconcile|idem|resolution): ", errs)
		}
		// Somebody decides between the look and the answer.
		b.answers, b.beforeAnswer = []string{"yes"}, func() {
			require.NoError(b.t, b.reconciler().Resolve(b.t.Context(), r1.ID(), reconcile.Resolution{To: idem.Completed},
				reconcile.Change{Actor: "bob", Reason: "it did"}))
		}
		_, errs = b.want(exitFailed, releaseR1...)
		require.Contains(b.t, errs, "the record has been written since it was shown")
		require.NotContains(b.t, errs, "reconcile: ")
	})
}

// Nobody can check the form of a step's result, and the preview says so. Null is no form.
func TestTheFormOfAStepsResultIsNotChecked(t *testing.T) {
	path := t.TempDir() + "/charge.json"
	withRig(t, func(t *testing.T, b *rig) {
		b.interrupted(order.Key("acme", "o-1"))
		b.Clock.Advance(time.Hour)
		args := []string{"release", order.Key("acme", "o-1").ID(), "--reason", "the provider has it", "--dry-run", "-o",
			"json", "--step", "charge=@" + path}
		for text, says := range map[string]string{
			"null": "is null", " null\n": "is null", "nul": "is not JSON", "": "is not JSON",
		} {
			require.NoError(t, writeFile(path, text))
			b.says(exitUsage, says, args...)
		}
		for _, text := range []string{`{"Id":"ch_1"}`, "7", `"null"`, "[null]"} {
			require.NoError(t, writeFile(path, text))
			out, errs := b.want(exitDone, args...)
			require.Contains(t, out, "The result of charge is recorded as given, and its form is not checked")
			require.Contains(t, errs, text)
		}
	})
}

// Ctrl-C ends what waits for an input, be it the standard input or a pipe with a name.
func TestAnInputThatSaysNothingIsInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer writer.Close()
	b := newRig(t)
	for name, args := range map[string][]string{
		"a result":         {"resolve", r1.ID(), "--to", "completed", "--result", "-", "--yes", "--reason", "case 1"},
		"a result by name": {"resolve", r1.ID(), "--to", "completed", "--result", pipe, "--yes", "--reason", "case 1"},
		"a body of a response": {"resolve", r1.ID(), "--to", "completed", "--status", "200", "--body", "-", "--yes",
			"--reason", "case 1"},
	} {
		t.Run(name, func(t *testing.T) {
			in, typed := io.Pipe()
			defer typed.Close()
			ctx, interrupt := context.WithCancel(t.Context())
			time.AfterFunc(10*time.Millisecond, interrupt)
			var out, errs bytes.Buffer
			require.Equal(t, exitFailed, run(ctx, args, &terminal{in: in, out: &out, err: &errs}, b.outside()))
			require.Equal(t, "idemctl: interrupted\n", errs.String())
		})
	}
}

func TestAnInputIsReadAsItIs(t *testing.T) {
	require.NoError(t, iotest.TestReader(interruptible{t.Context(), bytes.NewReader([]byte("one\ntwo"))},
		[]byte("one\ntwo")))
}

// An operator reads a response as its caller gets it: its body without the gateway's Base64.
func TestAResponseIsShownAsItsCallerGetsIt(t *testing.T) {
	for name, c := range map[string]struct {
		body, inText, inJSON string
	}{
		"text":   {"paid", "\n\npaid\n", `"body": "paid"`},
		"binary": {"\xff\xfe\x00", "(a body of 3 bytes that is no text: read it with -o json)", `"body_base64": "//4A"`},
		"escape": {"a\x1b[2Jb", `a\u001b[2Jb`, `"body": "a\u001b[2Jb"`},
	} {
		t.Run(name, func(t *testing.T) {
			withRig(t, func(t *testing.T, b *rig) {
				id := b.request("payment-0000000002")
				encoded, err := b.payments().Encode(&idemhttp.Response{
					Status: 201, Headers: map[string]string{"Content-Type": "text/plain"},
					MultiHeaders: map[string][]string{"Link": {"</a>", "</b>"}},
					Body:         []byte(base64.StdEncoding.EncodeToString([]byte(c.body))), Base64: true,
				})
				require.NoError(t, err)
				require.NoError(t, b.reconciler().Resolve(t.Context(),
					id, reconcile.Resolution{To: idem.Completed, Result: &encoded}, reconcile.Change{Actor: "bob", Reason: "found"}))
				_, out, _ := b.run("show", id, "--show-result")
				require.Contains(t, out, "HTTP 201 Created\nContent-Type: text/plain\nLink: </a>\nLink: </b>\n")
				require.Contains(t, out, c.inText)
				_, out, _ = b.run("show", id, "--show-result", "-o", "json")
				require.Contains(t, out, c.inJSON)
				require.Contains(t, out, `"status": 201`)
				_, out, _ = b.run("show", id)
				require.NotContains(t, out, "Link")
			})
		})
	}
}
