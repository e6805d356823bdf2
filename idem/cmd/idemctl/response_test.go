package main

import (
	"encoding/base64"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/reconcile"
)

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
			synctest.Test(t, func(t *testing.T) {
				b := newBench(t)
				id := b.request("payment-0000000002")
				contract, err := idemhttp.New(b.Engine, idemhttp.AnyRoute(payment), idemhttp.SingleTenant, nil)
				require.NoError(t, err)
				encoded, err := contract.Encode(&idemhttp.Response{
					Status: 201, Headers: map[string]string{"Content-Type": "text/plain"}, MultiHeaders: map[string][]string{"Link": {"</a>", "</b>"}},
					Body: []byte(base64.StdEncoding.EncodeToString([]byte(c.body))), Base64: true,
				})
				require.NoError(t, err)
				require.NoError(t, b.reconciler().Resolve(t.Context(), id, reconcile.Resolution{To: idem.Completed, Result: &encoded}, reconcile.Change{Actor: "bob", Reason: "found"}))
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
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.request("payment-0000000002")
		code, out, errs := b.run("resolve", id, "--to", "completed", "--status", "201", "--header", "link: </a>", "--header", "Link: </b>",
			"--header", "Set-Cookie: session=1", "--header", "Connection: X-Hop", "--header", "X-Hop: 1", "--body", "testdata/payment.json", "--reason", "case 1", "--yes")
		require.Equal(t, exitDone, code, errs)
		require.Contains(t, out, "HTTP 201 Created\nLink: </a>\nLink: </b>\n(Connection is not recorded: it is of one exchange)\n(Set-Cookie is not")
		require.Contains(t, out, "(X-Hop is not recorded")
		require.Contains(t, out, `{"id": "pay_9"`)
		require.NotContains(t, out, "session=1")
		_, out, _ = b.run("show", id, "--show-result")
		require.Contains(t, out, "HTTP 201 Created\nLink: </a>\nLink: </b>\n\n")
	})
}

// Calls of another version refuse the answer, or change it first.
func TestTheVersionOfAnAnswerIsShownBeforehand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		id := b.request("payment-0000000002")
		answer := []string{"resolve", id, "--to", "completed", "--status", "201", "--body", "testdata/payment.json", "--reason", "case 1", "--dry-run"}
		code, out, errs := b.run(append(answer, "--response-version", "2")...)
		require.Equal(t, exitDone, code, errs)
		require.Regexp(t, `Answer +an HTTP response of version 2, \d+ bytes of testdata/payment.json:`, out)
		_, out, _ = b.run(answer...)
		require.Regexp(t, `Answer +an HTTP response, \d+ bytes`, out)
		code, _, errs = b.run("resolve", id, "--to", "completed", "--no-result", "--response-version", "2", "--reason", "case 1", "--yes")
		require.Equal(t, exitUsage, code)
		require.Contains(t, errs, "--response-version is of a result")
	})
	changing(t, func(b *bench) {
		path := b.t.TempDir() + "/result.json"
		require.NoError(b.t, writeFile(path, "42"))
		code, out, errs := b.run("resolve", r1.ID(), "--to", "completed", "--result", path, "--response-version", "3", "--reason", "found it", "--dry-run")
		require.Equal(b.t, exitDone, code, errs)
		require.Regexp(b.t, `Result +JSON of version 3, 2 bytes of\s`, out)
	})
}
