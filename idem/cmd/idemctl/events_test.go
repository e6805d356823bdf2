package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/reconcile/ledger"
	"github.com/idem-go/idempotency/idem/testenv/story"
)

// happens makes what a transcript says that happens. "before the answer," has it happen while the next command waits.
func (b *rig) happens(line string) (output string) {
	b.t.Helper()
	if later, ok := strings.CutPrefix(line, "before the answer, "); ok {
		b.beforeAnswer = func() { b.happens(later) }
		return ""
	}
	return b.Happens(line, b.events())
}

func (b *rig) events() map[string]story.Event {
	letters := b.backend.letters.(*deadLetters)
	return map[string]story.Event{
		// About keys, such as refund/acme/r-1.
		"a newer version writes it": story.OfEach(b.spoil),
		"an entry of its history is damaged": story.OfEach(func(key idem.Key) {
			b.noted["e7"] = protocol.Audit{ID: key.ID(), Entry: "e7", At: b.Clock.Now(), Unconfirmed: true,
				Change: protocol.ChangeUnreadable, Why: `attribute "change" is missing`}
		}),
		"the reply about a change of it was lost": story.OfEach(func(key idem.Key) {
			b.noted["e8"] = protocol.Audit{ID: key.ID(), Entry: b.shown["$DECISION"] + ".2", At: b.Clock.Now(),
				Unconfirmed: true, Change: protocol.ChangeResolved, From: idem.Unknown, To: idem.Failed, Attempt: 1,
				Who: "alice", Why: "case 1"}
		}),
		"bob pauses": story.Act(func(operation string) {
			require.NoError(b.t, b.Reconciler().Pause(b.t.Context(), operation, "", time.Time{},
				reconcile.Change{Actor: "bob", Reason: "another case"}))
		}),
		"it has published messages":  story.OfEach(func(key idem.Key) { letters.publish(key.ID(), b.Clock.Now()) }),
		"an operation with a secret": story.Act(func(string) { secretly(b.t, b) }),
		// About the key of a payment, and the text of its response.
		"a response in Base64": story.Act(b.respond),
		// What AWS answers: the text is a code.
		"AWS answers reads with":  b.refuses(idemtest.Get),
		"AWS answers writes with": b.refuses(idemtest.Settle),
		"AWS answers checks with": story.Act(func(code string) {
			b.backend.check = func(context.Context) error { return &smithy.GenericAPIError{Code: code, Message: "no"} }
		}),
		"AWS answers scans with": story.Act(func(code string) {
			b.backend.scanner = refusing{err: &smithy.GenericAPIError{Code: code, Message: "no"}}
		}),
		"the reply to a write is lost, and credentials have expired then": story.Act(func(string) {
			b.Faults.Always(expiredThen, idemtest.Settle)
		}),
		// What is different about this machine.
		"the standard input is no terminal": story.Act(func(string) { b.asks = false }),
		"it is not known who runs commands": story.Act(func(string) {
			b.backend.caller = func(context.Context) string { return "" }
		}),
		"the writers' clock is a minute ahead": story.Act(func(string) { b.behind = time.Minute }),

		"a newer version writes the first dead letter": story.Act(func(string) {
			letters.all[0].Unreadable = protocol.ErrRecordUnreadable
		}),
		"before it is written, bob requeues the first dead letter": story.Act(func(string) {
			letters.requeued = letters.all[0].ID
		}),
	}
}

func (b *rig) refuses(method idemtest.Method) story.Event {
	return story.Act(func(code string) {
		b.Faults.Always(func(context.Context, *idemtest.Call) error {
			return &idem.StoreError{Op: string(method), Err: &smithy.GenericAPIError{Code: code, Message: "no"}}
		}, method)
	})
}

func expiredThen(ctx context.Context, c *idemtest.Call) error {
	_ = c.Do(ctx)
	return &idem.StoreError{Op: string(c.Method), Ambiguous: true, Err: fmt.Errorf("%w (%w)",
		&idem.ConfigError{What: "dynamostore: table", Problem: "cannot be reached with these credentials"},
		&smithy.GenericAPIError{Code: "ExpiredTokenException"})}
}

// respond completes the request with the key, which is named first. The gateway's body, which is quoted, is in Base64.
func (b *rig) respond(about string) {
	key, quoted, _ := strings.Cut(about, " ")
	body, err := strconv.Unquote(quoted)
	require.NoError(b.t, err)
	encoded, err := b.Payments("").Encode(&idemhttp.Response{
		Status: 201, Headers: map[string]string{"Content-Type": "text/plain"},
		MultiHeaders: map[string][]string{"Link": {"</a>", "</b>"}},
		Body:         []byte(base64.StdEncoding.EncodeToString([]byte(body))), Base64: true,
	})
	require.NoError(b.t, err)
	b.Pay(key, "", func(context.Context) {})
	require.NoError(b.t, b.Reconciler().Resolve(b.t.Context(), payment.Key(idem.SingleTenant, key).ID(),
		reconcile.Resolution{To: idem.Completed, Result: &encoded}, reconcile.Change{Actor: "bob", Reason: "found"}))
}

// refusing is a table that may not be scanned.
type refusing struct {
	ledger.Store
	err error
}

func (r refusing) Scan(context.Context, protocol.ScanQuery) (protocol.ScanPage, error) {
	return protocol.ScanPage{}, r.err
}
