package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/story"
	"github.com/idem-go/idempotency/idem/testenv/transcript"
)

var (
	refund  = story.Refund
	payment = story.Payment
	invoice = story.Invoice

	errCut = story.ErrCut
)

// rig is a service with records, and a terminal before it. It runs in a synctest bubble.
type rig struct {
	*story.Service
	t *testing.T
	// asks says that somebody sits at the terminal, who answers with answers, one after the
	// other. beforeAnswer runs before the first answer.
	asks         bool
	answers      []string
	beforeAnswer func()
	ctx          context.Context
	backend      backend
	noted        map[string]protocol.Audit
	behind       time.Duration // the clock
	spoilt       map[string]map[string]types.AttributeValue
	// shown are the last random ids that a transcript has shown, before is what the table had before its command.
	shown  map[string]string
	before []any
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
	b := &rig{Service: story.New(t), t: t, asks: true, ctx: t.Context(), noted: map[string]protocol.Audit{},
		shown: map[string]string{}}
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

// Messages lists a page of 100.
func (s store) Messages(_ context.Context, record, page string) ([]*outbox.Entry, string, error) {
	all := s.b.backend.letters.(*deadLetters).of(record)
	if page != "" {
		return all[100:], "", nil
	}
	if len(all) > 100 {
		return all[:100], "the rest", nil
	}
	return all, "", nil
}

func (s store) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	return s.b.Faults.ReadPaused(ctx)
}

func (s store) WritePaused(ctx context.Context, w protocol.PausedWrite) error {
	return s.b.Faults.WritePaused(ctx, w)
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
	slices.SortStableFunc(p.Entries, func(a, b protocol.Audit) int { return a.At.Compare(b.At) })
	return p
}

// Read is the person at the terminal.
func (b *rig) Read(p []byte) (int, error) {
	if b.beforeAnswer != nil {
		b.beforeAnswer()
		b.beforeAnswer = nil
		b.before = b.everything()
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
		clock: func() time.Time { return b.Clock.Now().Add(-b.behind) },
	}
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

// random are ids that no two runs share: what comes before one, and what a transcript has instead. A command may name
// the last one that was shown, such as $SEEN.
var random = map[string]struct {
	ids  *regexp.Regexp
	mask string
}{
	"$SEEN":     {regexp.MustCompile(`(--seen |"seen": ?")([0-9a-f]{16}|[\w-]+\.\d+)`), "0011223344556677"},
	"$DECISION": {regexp.MustCompile(`(Decision {6}|[- ]decision |"decision": ?")([0-9a-f]{16})`), "0011223344556677"},
	"$WRITE":    {regexp.MustCompile(`("write": ?")([^"]*)`), "random"},
}

// play plays a scene of a transcript. What was typed in the text is typed again.
func (b *rig) play(scene string) string {
	return transcript.Play(scene, func(line, after string) (output, status string) {
		if event, ok := strings.CutPrefix(line, "> "); ok {
			return b.happens(event), ""
		}
		b.answers = typed(after)
		command := strings.TrimPrefix(line, "$ idemctl ")
		for name := range random {
			command = strings.ReplaceAll(command, name, b.shown[name])
		}
		b.before = b.everything()
		var got bytes.Buffer
		args := transcript.Words(command)
		code := b.runTo(&got, &got, args...)
		output = got.String()
		require.NotContains(b.t, output, "reconcile: ", "an operator does not know the code")
		if code == exitUsage || unchanged.MatchString(output) && !strings.Contains(output, "\nDone: ") {
			require.Equal(b.t, b.before, b.everything(), "it says that nothing was changed: %s", line)
		}
		if code == exitDone && reads.MatchString(command) && !slices.Contains(args, "--help") {
			b.answers = typed(after)
			disk := &full{}
			failed := b.runTo(disk, io.Discard, args...) == exitFailed
			require.Equal(b.t, disk.asked, failed, "an output that cannot be written is a failure: %s", line)
		}
		for name, of := range random {
			for _, m := range of.ids.FindAllStringSubmatch(output, -1) {
				b.shown[name] = m[2]
			}
			output = of.ids.ReplaceAllString(output, "${1}"+of.mask)
		}
		if code != exitDone {
			status = fmt.Sprintf("(exit code %d)\n", code)
		}
		return output, status
	})
}

var (
	unchanged = regexp.MustCompile(`nothing\s+was\s+(changed|written)`)
	reads     = regexp.MustCompile(`^(list|show|explain|history|changes|stats|export|check|ledger|dead list|pauses)\b`)
)

func (b *rig) everything() []any {
	return append(b.Everything(), maps.Clone(b.noted), slices.Clone(b.backend.letters.(*deadLetters).all),
		slices.Clone(b.backend.letters.(*deadLetters).published))
}

var prompt = regexp.MustCompile(`(?m)^Type .*: (\w+)$`)

// typed are the answers to the prompts of a command's output.
func typed(after string) (answers []string) {
	output := regexp.MustCompile("(?m)^([$>#] |```)").Split(after, 2)[0]
	for _, m := range prompt.FindAllStringSubmatch(output, -1) {
		answers = append(answers, m[1])
	}
	return answers
}

func result(context.Context, int) (int, error) { return 7, nil }

func fails(err error) func(context.Context, int) (int, error) {
	return func(context.Context, int) (int, error) { return 0, err }
}
