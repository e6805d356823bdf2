package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"io"
	"os"
	"path/filepath"
	"strings"
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

// An operator confirms what later callers get, and reads which headers they do not get.
func TestAnAnswerIsShownBeforehandAsItIsRecorded(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		id := b.request("payment-0000000002")
		code, out, errs := b.run("resolve", id, "--to", "completed", "--status", "201", "--header", "link: </a>",
			"--header", "Link: </b>",
			"--header", "Set-Cookie: session=1", "--header", "Connection: X-Hop", "--header", "X-Hop: 1", "--body",
			"testdata/payment.json", "--reason", "case 1", "--yes")
		require.Equal(t, exitDone, code, errs)
		require.Contains(t, out, "HTTP 201 Created\nLink: </a>\nLink: </b>\n(Connection is not recorded: it is of one "+
			"exchange)\n(Set-Cookie is not")
		require.Contains(t, out, "(X-Hop is not recorded")
		require.Contains(t, out, `{"id": "pay_9"`)
		require.NotContains(t, out, "session=1")
		_, out, _ = b.run("show", id, "--show-result")
		require.Contains(t, out, "HTTP 201 Created\nLink: </a>\nLink: </b>\n\n")
	})
}

// What is declared as JSON is JSON, and what an answer may lack is shown beforehand.
func TestAnAnswerThatItsCallerCannotReadIsNoticed(t *testing.T) {
	path := t.TempDir() + "/answer.json"
	require.NoError(t, writeFile(path, `{"id":`))
	withRig(t, func(t *testing.T, b *rig) {
		answer := []string{"resolve", b.request("payment-0000000002"), "--to", "completed", "--status", "201", "--reason",
			"case 1", "--dry-run"}
		const asJSON = "--header=Content-Type: application/json"
		_, errs := b.want(exitUsage, append(answer, asJSON, "--body", path)...)
		require.Contains(t, errs, "the body is not JSON")
		for says, args := range map[string][]string{
			"has a body and no Content-Type": {"--body", path},
			"has no body":                    {asJSON},
		} {
			out, _ := b.want(exitDone, append(answer, args...)...)
			require.Regexp(t, `Caution +The response `+strings.ReplaceAll(says, " ", `\s+`), out)
		}
		out, _ := b.want(exitDone, append(answer, asJSON, "--body", "testdata/payment.json")...)
		require.NotContains(t, out, "The response")
	})
}

// Calls of another version refuse the answer, or change it first.
func TestTheVersionOfAnAnswerIsShownBeforehand(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		id := b.request("payment-0000000002")
		answer := []string{"resolve", id, "--to", "completed", "--status", "201", "--body", "testdata/payment.json",
			"--reason", "case 1", "--dry-run"}
		out, _ := b.want(exitDone, append(answer, "--response-version", "2")...)
		require.Regexp(t, `Answer +an HTTP response of version 2, \d+ bytes of testdata/payment.json:`, out)
		_, out, _ = b.run(answer...)
		require.Regexp(t, `Answer +an HTTP response, \d+ bytes`, out)
	})
	changing(t, func(b *rig) {
		path := b.t.TempDir() + "/result.json"
		require.NoError(b.t, writeFile(path, "42"))
		out, _ := b.want(exitDone, "resolve", r1.ID(), "--to", "completed", "--result", path, "--response-version", "3",
			"--reason", "found it", "--dry-run")
		require.Regexp(b.t, `Result +JSON of version 3, 2 bytes of\s`, out)
	})
}
