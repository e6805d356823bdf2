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
)

// happens makes what a transcript says that happens: one of events, and after a colon what it is about. "before the
// answer," has it happen while the next command waits for its answer.
func (b *rig) happens(line string) (output string) {
	b.t.Helper()
	if later, ok := strings.CutPrefix(line, "before the answer, "); ok {
		b.beforeAnswer = func() { b.happens(later) }
		return ""
	}
	if span, err := time.ParseDuration(strings.TrimSuffix(line, " later")); err == nil {
		b.Clock.Advance(span)
		return ""
	}
	name, about, _ := strings.Cut(line, ": ")
	happens := events[name]
	require.NotNil(b.t, happens, "there is no event %q", name)
	return happens(b, about)
}

var events = map[string]func(b *rig, about string) (output string){
	// The text is about keys, such as refund/acme/r-1.
	"call":              (*rig).calls,
	"unknown":           ofEach(func(b *rig, key idem.Key) { b.unknown(key) }),
	"interrupted":       ofEach((*rig).interrupted),
	"undoing":           ofEach((*rig).undoing),
	"unreadable":        ofEach((*rig).spoil),
	"the original ends": ofEach((*rig).lateOutcome),
	"a trial in shadow": ofEach(func(b *rig, key idem.Key) { require.NoError(b.t, b.call(key, result)) }),
	"bob resolves it to failed": ofEach(func(b *rig, key idem.Key) {
		res := reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}}
		require.NoError(b.t, b.reconciler().Resolve(b.t.Context(), key.ID(), res,
			reconcile.Change{Actor: "bob", Reason: "declined"}))
	}),
	"an entry of its history is damaged": ofEach(func(b *rig, key idem.Key) {
		b.noted["e7"] = protocol.Audit{ID: key.ID(), Entry: "e7", At: b.Clock.Now(), Unconfirmed: true,
			Change: protocol.ChangeUnreadable, Why: `attribute "change" is missing`}
	}),
	"the reply about a change of it was lost": ofEach(func(b *rig, key idem.Key) {
		b.noted["e8"] = protocol.Audit{ID: key.ID(), Entry: b.shown["$DECISION"] + ".2", At: b.Clock.Now(), Unconfirmed: true,
			Change: protocol.ChangeResolved, From: idem.Unknown, To: idem.Failed, Attempt: 1, Who: "alice", Why: "case 1"}
	}),
	// The text is an Idempotency-Key, or principals.
	"an HTTP request that charges": act(func(b *rig, key string) {
		b.requestOf(key, func(ctx context.Context) { b.done(ctx, "charge", func() {}) })
	}),
	"HTTP requests of": act(func(b *rig, principals string) {
		for principal := range strings.FieldsSeq(principals) {
			b.requestBy(principal)
		}
	}),
	"a request is completed with a response in Base64": act((*rig).respond),

	"an operation with a secret": act(func(b *rig, _ string) { secretly(b.t, b) }),
	// What is wrong with the store, or with AWS's answer, whose code follows.
	"requests are lost": always(idemtest.LoseRequest, idemtest.Settle),
	"a reply is lost, and the credentials are refused then": always(func(ctx context.Context, c *idemtest.Call) error {
		_ = c.Do(ctx)
		return &idem.StoreError{Op: "Settle", Ambiguous: true, Err: fmt.Errorf("%w (%w)",
			&idem.ConfigError{What: "dynamostore: table", Problem: "cannot be reached with these credentials"},
			&smithy.GenericAPIError{Code: "ExpiredTokenException"})}
	}, idemtest.Settle),
	"AWS answers reads with":  refuses(idemtest.Get),
	"AWS answers writes with": refuses(idemtest.Settle),
	"all is well again":       act(func(b *rig, _ string) { b.Faults.Heal() }),
	// What is different about this machine.
	"the standard input is no terminal": act(func(b *rig, _ string) { b.asks = false }),
	"it is not known who runs commands": act(func(b *rig, _ string) {
		b.backend.caller = func(context.Context) string { return "" }
	}),
	"the writers' clock is a minute ahead": act(func(b *rig, _ string) { b.behind = time.Minute }),
	// Dead letters.
	"the first dead letter is of a newer version": act(func(b *rig, _ string) {
		b.backend.letters.(*deadLetters).all[0].Unreadable = protocol.ErrRecordUnreadable
	}),
	"before it is written, bob requeues the first dead letter": act(func(b *rig, _ string) {
		b.backend.letters.(*deadLetters).gone = b.backend.letters.(*deadLetters).all[0].ID
	}),
}

func act(do func(b *rig, about string)) func(*rig, string) string {
	return func(b *rig, about string) string {
		do(b, about)
		return ""
	}
}

func ofEach(do func(*rig, idem.Key)) func(*rig, string) string {
	return act(func(b *rig, about string) {
		for _, key := range keysOf(about) {
			do(b, key)
		}
	})
}

func keysOf(about string) (keys []idem.Key) {
	operations := map[string]idem.Operation{"refund": refund, "order": order, "invoice": invoice,
		"trial": {Name: "trial", Shadow: true}}
	for word := range strings.FieldsSeq(about) {
		part := strings.Split(word, "/")
		keys = append(keys, operations[part[0]].Key(part[1], part[2]))
	}
	return keys
}

func always(fault idemtest.Fault, methods ...idemtest.Method) func(*rig, string) string {
	return act(func(b *rig, _ string) { b.Faults.Always(fault, methods...) })
}

func refuses(method idemtest.Method) func(*rig, string) string {
	return act(func(b *rig, code string) {
		b.Faults.Always(func(context.Context, *idemtest.Call) error {
			return &idem.StoreError{Op: string(method), Err: &smithy.GenericAPIError{Code: code, Message: "no"}}
		}, method)
	})
}

// calls calls with the key, and says what the handler does and what its caller gets. An order is charged in a step.
func (b *rig) calls(about string) string {
	did := ""
	key := keysOf(about)[0]
	got, err := idem.Do(b.t.Context(), b.Engine, key, 1, func(ctx context.Context, _ int) (int, error) {
		did += "the handler runs\n"
		if key.Operation().Name != order.Name {
			return 7, nil
		}
		return idem.Step(ctx, "charge", func(context.Context) (int, error) { did += "it charges\n"; return 7, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
	})
	if err != nil {
		return did + "error: " + err.Error() + "\n"
	}
	return fmt.Sprintf("%s%d\n", did, got)
}

// lateOutcome is what the parked attempt writes in the end.
func (b *rig) lateOutcome(key idem.Key) {
	rec := b.Record(key)
	err := b.Store.Finish(b.t.Context(), b.Clock.Now(), protocol.Finish{
		ID: rec.ID, Owner: rec.Owner, Write: "late",
		Ending: protocol.Ending{State: protocol.Completed, Result: []byte("7"),
			ExpiresAt: b.Clock.Now().Add(time.Hour).UTC().Truncate(time.Second)},
	})
	require.NoError(b.t, err)
}

// requestBy leaves a request of a service that tells principals apart.
func (b *rig) requestBy(principal string) {
	c, err := idemhttp.New(b.Engine, idemhttp.AnyRoute(payment), idemhttp.SingleTenant, &idemhttp.Options{
		Principal: func(context.Context, *idemhttp.Request) (string, error) { return principal, nil },
	})
	require.NoError(b.t, err)
	_, err = c.Serve(b.t.Context(), &idemhttp.Request{
		Method: "POST", Path: "/payments", Route: "/payments",
		Header: map[string][]string{"Idempotency-Key": {`"payment-0000000009"`}},
	}, func(context.Context) (*idemhttp.Response, error) { return &idemhttp.Response{Status: 502}, nil })
	require.NoError(b.t, err)
}

// respond completes the request with the key, which is named first. The gateway's body, which is quoted, is in Base64.
func (b *rig) respond(about string) {
	key, quoted, _ := strings.Cut(about, " ")
	body, err := strconv.Unquote(quoted)
	require.NoError(b.t, err)
	encoded, err := b.payments().Encode(&idemhttp.Response{
		Status: 201, Headers: map[string]string{"Content-Type": "text/plain"},
		MultiHeaders: map[string][]string{"Link": {"</a>", "</b>"}},
		Body:         []byte(base64.StdEncoding.EncodeToString([]byte(body))), Base64: true,
	})
	require.NoError(b.t, err)
	require.NoError(b.t, b.reconciler().Resolve(b.t.Context(), b.request(key),
		reconcile.Resolution{To: idem.Completed, Result: &encoded}, reconcile.Change{Actor: "bob", Reason: "found"}))
}
