package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var (
	refund  = idem.Operation{Name: "refund", Retention: 30 * 24 * time.Hour}
	payment = idem.Operation{Name: "payment"}
	order   = idem.Operation{Name: "order"}
	invoice = idem.Operation{Name: "invoice", Repeat: idem.Repeatable, Values: idem.KeepValues}

	errCut = errors.New("the connection to the provider was cut")
)

// rig is a service with records, and a terminal before it. It runs in a synctest bubble.
type rig struct {
	*idemtest.Harness
	t *testing.T
	// asks says that somebody sits at the terminal, who answers with answers, one after the
	// other. beforeAnswer runs before the first answer.
	asks         bool
	answers      []string
	beforeAnswer func()
	ctx          context.Context
	backend      backend
	noted        map[string]protocol.Audit
	spoilt       map[string]map[string]types.AttributeValue
}

// store is the rig's, whose spoilt records cannot be read.
type store struct {
	reconcile.Store
	b *rig
}

func (s store) Get(ctx context.Context, id string) (*idem.Record, error) {
	if s.b.spoilt[id] != nil {
		return nil, fmt.Errorf("%w: record %q: it is of version 99, and this code reads up to 1",
			idem.ErrRecordUnreadable, id)
	}
	return s.Store.Get(ctx, id)
}

func newRig(t *testing.T) *rig {
	b := &rig{Harness: idemtest.New(t, nil), t: t, asks: true, ctx: t.Context(), noted: map[string]protocol.Audit{}}
	b.Clock.Advance(time.Until(time.Date(2026, 3, 2, 9, 0, 0, 0, time.UTC)))
	b.backend = backend{
		store: store{b.Faults, b}, scanner: b.Store, caller: func(context.Context) string { return "alice" },
		estimate: func(context.Context) (int64, int64, error) { return 1234, 5 << 20, nil },
		time:     func(context.Context) (time.Duration, bool, error) { return 0, true, nil },
		letters:  b.dead(),
		stored:   func(_ context.Context, id string) (map[string]types.AttributeValue, error) { return b.spoilt[id], nil },
		check:    func(context.Context) error { return nil },
	}
	return b
}

// withRig runs a test with a rig, in a bubble with a clock of its own.
func withRig(t *testing.T, test func(t *testing.T, b *rig)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { test(t, newRig(t)) })
}

// Requeue is what a store does that has an outbox.
func (s store) Requeue(_ context.Context, e *outbox.Entry, a protocol.Audit) error {
	if err := s.b.backend.letters.(*deadLetters).requeue(e); err != nil {
		return err
	}
	s.b.noted[a.Entry] = a
	return nil
}

func (s store) AuditOf(ctx context.Context, id, page string) (protocol.AuditPage, error) {
	p, err := s.Store.AuditOf(ctx, id, page)
	return s.with(p, func(a protocol.Audit) bool { return a.ID == id }), err
}

func (s store) AuditBetween(ctx context.Context, shard int, from, to time.Time,
	page string) (protocol.AuditPage, error) {
	p, err := s.Store.AuditBetween(ctx, shard, from, to, page)
	return s.with(p, func(a protocol.Audit) bool { return shard == 0 && !a.At.Before(from) && a.At.Before(to) }), err
}

func (s store) with(p protocol.AuditPage, wanted func(protocol.Audit) bool) protocol.AuditPage {
	for _, a := range s.b.noted {
		if wanted(a) {
			p.Entries = append(p.Entries, a)
		}
	}
	return p
}

// Read is the person at the terminal.
func (b *rig) Read(p []byte) (int, error) {
	if b.beforeAnswer != nil {
		b.beforeAnswer()
		b.beforeAnswer = nil
	}
	if len(b.answers) == 0 {
		return 0, io.EOF
	}
	n := copy(p, b.answers[0]+"\n")
	b.answers = b.answers[1:]
	return n, nil
}

// echo is what a terminal shows of what is typed.
type echo struct {
	io.Reader
	out io.Writer
}

func (e echo) Read(p []byte) (int, error) {
	n, err := e.Reader.Read(p)
	e.out.Write(p[:n])
	return n, err
}

// run runs a command line, and returns its exit code, its output, and its errors as one line.
func (b *rig) run(args ...string) (code int, out, errs string) {
	b.t.Helper()
	var o, e bytes.Buffer
	code = b.runTo(&o, &e, args...)
	return code, o.String(), strings.Join(strings.Fields(e.String()), " ")
}

// want runs a command line that ends with the exit code.
func (b *rig) want(code int, args ...string) (out, errs string) {
	b.t.Helper()
	got, out, errs := b.run(args...)
	require.Equal(b.t, code, got, "%v: %s%s", args, out, errs)
	return out, errs
}

// says is want for one that writes the text: as its output, or as an error if it fails.
func (b *rig) says(code int, text string, args ...string) {
	b.t.Helper()
	said, errs := b.want(code, args...)
	if code != exitDone {
		said = errs
	}
	require.Contains(b.t, said, text)
}

func (b *rig) runTo(out, errs io.Writer, args ...string) int {
	term := &terminal{in: echo{b, errs}, out: out, err: errs, asks: b.asks}
	return run(b.ctx, args, term, b.outside())
}

// outside is what the command reaches.
func (b *rig) outside() environment {
	return environment{
		open:  func(context.Context, Globals) (*backend, error) { return &b.backend, nil },
		clock: b.Clock.Now,
	}
}

// seen is what a dry run of the command prints for --seen.
func (b *rig) seen(args ...string) string {
	b.t.Helper()
	out, _ := b.want(exitDone, append(args, "--dry-run", "--reason", "a look")...)
	return seenIn(b.t, out)
}

// decided is before the name of a decision of many.
var decided = regexp.MustCompile(`(Decision {6}|[- ]decision )[0-9a-f]{16}`)

var seenFlag = regexp.MustCompile(`--seen ([0-9a-f]{16}) confirms`)

func seenIn(t testing.TB, out string) string {
	m := seenFlag.FindStringSubmatch(out)
	require.NotNil(t, m, out)
	return m[1]
}

// call is a call by a client with the key.
func (b *rig) call(key idem.Key, fn func(context.Context, int) (int, error)) error {
	_, err := idem.Do(b.t.Context(), b.Engine, key, 1, fn)
	return err
}

// unknown leaves attempts whose outcome nobody knows, with a reference of the provider's.
func (b *rig) unknown(keys ...idem.Key) {
	b.t.Helper()
	for _, key := range keys {
		require.Error(b.t, b.call(key, func(ctx context.Context, _ int) (int, error) {
			require.NoError(b.t, idem.SetReference(ctx, "re_"+key.Tenant()))
			return 0, errCut
		}))
		require.Equal(b.t, idem.Unknown, b.Record(key).State)
	}
}

// crash leaves a claim whose process died in the handler, which calls b.Crash.
func (b *rig) crash(key idem.Key, handler func(context.Context, int) (int, error)) {
	b.t.Helper()
	d := idemtest.Deliver(b.Harness, 1, func(ctx context.Context, e *idem.Engine) (int, error) {
		return idem.Do(ctx, e, key, 1, handler)
	})
	require.ErrorIs(b.t, d[0].Err, idemtest.ErrCrashed)
	b.Restart()
}

// killed leaves one whose process died outside its steps.
func (b *rig) killed(key idem.Key) {
	b.t.Helper()
	b.crash(key, func(context.Context, int) (int, error) { b.Crash(); return 0, nil })
}

// done is a step that is done, and how it is undone.
func (b *rig) done(ctx context.Context, name string, undo func()) {
	b.t.Helper()
	_, err := idem.Step(ctx, name, func(context.Context) (int, error) { return 1, nil },
		&idem.StepConfig[int]{Compensate: func(context.Context, int) error { undo(); return nil }})
	require.NoError(b.t, err)
}

// payments is the contract of requests.
func (b *rig) payments() *idemhttp.Contract {
	b.t.Helper()
	c, err := idemhttp.New(b.Engine, idemhttp.AnyRoute(payment), idemhttp.SingleTenant, nil)
	require.NoError(b.t, err)
	return c
}

// request leaves an HTTP request whose outcome nobody knows.
func (b *rig) request(key string) string { return b.requestOf(key, func(context.Context) {}) }

// requestOf leaves one that did this.
func (b *rig) requestOf(key string, did func(context.Context)) string {
	b.t.Helper()
	res, err := b.payments().Serve(b.t.Context(), &idemhttp.Request{
		Method: "POST", Path: "/payments", Route: "/payments", Body: []byte(`{"amount":1}`),
		Header: map[string][]string{"Idempotency-Key": {key}, "Content-Type": {"application/json"}},
	}, func(ctx context.Context) (*idemhttp.Response, error) {
		did(ctx)
		return &idemhttp.Response{Status: 502}, nil
	})
	require.NoError(b.t, err)
	require.Equal(b.t, 502, res.Status)
	return payment.Key(idem.SingleTenant, key).ID()
}

// stepped leaves released work with a step.
func (b *rig) stepped(key idem.Key) {
	b.t.Helper()
	require.Error(b.t, b.call(key, func(ctx context.Context, _ int) (int, error) {
		b.done(ctx, "reserve", func() {})
		return 0, errCut
	}))
}

// spoil makes a record one that a newer version has written.
func (b *rig) spoil(key idem.Key) {
	text := func(v string) types.AttributeValue { return &types.AttributeValueMemberS{Value: v} }
	number := func(v string) types.AttributeValue { return &types.AttributeValueMemberN{Value: v} }
	b.spoilt = map[string]map[string]types.AttributeValue{key.ID(): {
		"pk": text(key.ID()), "sk": text("#"), "v": number("99"), "in_state": text("unknown"),
		"created_at": number("1772442000000"),
		"expires_at": number("1772542000"), "key_value": text("secret"),
		"body":       &types.AttributeValueMemberB{Value: []byte("secret")},
		"failure":    &types.AttributeValueMemberM{Value: map[string]types.AttributeValue{"message": text("secret")}},
		"new_one":    &types.AttributeValueMemberL{Value: []types.AttributeValue{text("secret")}},
		"repeatable": &types.AttributeValueMemberBOOL{Value: true},
	}}
}

// interrupted leaves a claim whose process died in an at-most-once step.
func (b *rig) interrupted(key idem.Key) {
	b.t.Helper()
	b.crash(key, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "charge", func(context.Context) (int, error) { b.Crash(); return 0, nil },
			&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
	})
}

// undoing leaves a claim whose process died while it undid the second of two steps.
func (b *rig) undoing(key idem.Key) {
	b.t.Helper()
	b.crash(key, func(ctx context.Context, _ int) (int, error) {
		b.done(ctx, "reserve", b.Crash)
		b.done(ctx, "pack", func() {})
		return 0, idem.Permanent(errors.New("declined"))
	})
}

func (b *rig) reconciler() *reconcile.Reconciler {
	r, err := reconcile.New(b.Faults, &reconcile.Options{Now: b.Clock.Now})
	require.NoError(b.t, err)
	return r
}

// write is a random id, which no two runs share.
var write = regexp.MustCompile(`"(write|seen)":( ?)"[^"]*"`)

// transcript runs the commands of a text, which stand behind "$ ", and returns the text with
// their output. What was typed in the text is typed again.
func (b *rig) transcript(text string) string {
	var out strings.Builder
	copying := true
	lines := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
	for i, line := range lines {
		switch command, isCommand := strings.CutPrefix(line, "$ idemctl "); {
		case isCommand:
			b.answers = typed(lines[i+1:])
			var got bytes.Buffer
			code := b.runTo(&got, &got, words(b.t, command)...)
			fmt.Fprintln(&out, line)
			said := seenFlag.ReplaceAllString(write.ReplaceAllString(got.String(), `"$1":$2"random"`),
				"--seen 0011223344556677 confirms")
			out.WriteString(decided.ReplaceAllString(said, "${1}0011223344556677"))
			if code != exitDone {
				fmt.Fprintf(&out, "(exit code %d)\n", code)
			}
			copying = false
		case strings.HasPrefix(line, "```") || strings.HasPrefix(line, "# "):
			copying = true
			fallthrough
		case copying:
			fmt.Fprintln(&out, line)
		}
	}
	return out.String()
}

var prompt = regexp.MustCompile(`^Type .*: (\w+)$`)

// typed are the answers to the prompts of a command's output.
func typed(after []string) (answers []string) {
	for _, line := range after {
		if strings.HasPrefix(line, "$ ") || strings.HasPrefix(line, "```") {
			break
		}
		if m := prompt.FindStringSubmatch(line); m != nil {
			answers = append(answers, m[1])
		}
	}
	return answers
}

// words splits a command line as a shell does, which has only words and quotes here.
func words(t *testing.T, line string) (all []string) {
	t.Helper()
	for _, m := range regexp.MustCompile(`'([^']*)'|"([^"]*)"|(\S+)`).FindAllStringSubmatch(line, -1) {
		all = append(all, m[1]+m[2]+m[3])
	}
	return all
}

// golden compares a text with the file's; IDEM_UPDATE=1 writes it.
func golden(t *testing.T, path, got string) {
	t.Helper()
	if os.Getenv("IDEM_UPDATE") != "" {
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, string(want), got, "run the test with IDEM_UPDATE=1 and look at the difference")
}

func result(context.Context, int) (int, error) { return 7, nil }

func fails(err error) func(context.Context, int) (int, error) {
	return func(context.Context, int) (int, error) { return 0, err }
}
