package main

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/aws/smithy-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
)

var r1 = refund.Key("acme", "r-1")

var releaseR1 = []string{"release", r1.ID(), "--reason", "case 1", "--provider-says", "no such refund"}

// with is a command line with more flags.
func with(args []string, more ...string) []string { return append(slices.Clip(args), more...) }

// changing runs a test with an unknown record whose lease is over.
func changing(t *testing.T, test func(b *rig)) {
	withRig(t, func(t *testing.T, b *rig) {
		b.unknown(r1)
		b.Clock.Advance(time.Hour)
		test(b)
	})
}

func (b *rig) history() (all []protocol.Audit) {
	b.t.Helper()
	all, err := b.reconciler().History(b.t.Context(), r1.ID())
	require.NoError(b.t, err)
	return all
}

// Whoever decides has seen the record as it is when it is changed.
func TestAChangeIsRefusedIfTheRecordChangesBeforeTheAnswer(t *testing.T) {
	for name, c := range map[string]struct {
		seen    bool // --seen is the answer
		change  func(b *rig)
		state   idem.State
		changes int
	}{
		"the original ends":           {false, (*rig).lateOutcome, idem.Completed, 0},
		"the original ends, and seen": {true, (*rig).lateOutcome, idem.Completed, 0},
		"somebody else decides": {false, func(b *rig) {
			require.NoError(b.t, b.reconciler().Resolve(b.t.Context(), r1.ID(),
				reconcile.Resolution{To: idem.Failed, Failure: &idem.Failure{Message: "declined"}},
				reconcile.Change{Actor: "bob", Reason: "declined"}))
		}, idem.Failed, 1},
	} {
		t.Run(name, func(t *testing.T) {
			changing(t, func(b *rig) {
				args := with(releaseR1, "-o", "json")
				if c.seen {
					args = append(args, "--seen="+b.Record(r1).Write, "--yes")
					c.change(b)
				} else {
					b.answers, b.beforeAnswer = []string{"yes"}, func() { c.change(b) }
				}
				out, errs := b.want(exitFailed, args...)
				require.Empty(b.t, out)
				require.Contains(b.t, errs, "the record has been written since ")
				require.Contains(b.t, errs, "nothing was changed: look")
				require.NotContains(b.t, errs, "reconcile: ")
				require.Equal(b.t, c.state, b.Record(r1).State)
				require.Len(b.t, b.history(), c.changes)
			})
		})
	}
}

// lateOutcome is what the parked attempt writes in the end.
func (b *rig) lateOutcome() {
	rec := b.Record(r1)
	err := b.Store.Finish(b.t.Context(), b.Clock.Now(), protocol.Finish{
		ID: rec.ID, Owner: rec.Owner, Write: "late",
		Ending: protocol.Ending{State: protocol.Completed, Result: []byte("7"),
			ExpiresAt: b.Clock.Now().Add(time.Hour).UTC().Truncate(time.Second)},
	})
	require.NoError(b.t, err)
}

func TestNothingIsChangedWithoutAnAnswer(t *testing.T) {
	many := []string{"release", "--operation", "refund", "--limit", "5", "--reason", "case 1", "--provider-says", "none"}
	for name, c := range map[string]struct {
		args    []string
		asks    bool
		answers []string
	}{
		"no terminal":           {releaseR1, false, []string{"yes"}},
		"no":                    {releaseR1, true, []string{"no"}},
		"end of input":          {releaseR1, true, nil},
		"dry run":               {with(releaseR1, "--dry-run", "--yes"), true, nil},
		"many, no terminal":     {many, false, []string{"1"}},
		"many, yes":             {many, true, []string{"yes"}},
		"many, others are seen": {with(many, "--seen", "0011223344556677"), true, []string{"1"}},
		"many, dry run":         {with(many, "--dry-run"), true, nil},
		"another write is seen": {with(releaseR1, "--seen", "other", "--yes"), true, nil},
	} {
		t.Run(name, func(t *testing.T) {
			changing(t, func(b *rig) {
				b.asks, b.answers = c.asks, c.answers
				before := b.Record(r1)
				code, out, errs := b.run(c.args...)
				require.Equal(b.t, before, b.Record(r1))
				require.Empty(b.t, b.history())
				if code == exitDone {
					require.Contains(b.t, out, "Dry run: nothing was written.")
				} else {
					require.Contains(b.t, errs, "nothing was changed")
				}
			})
		})
	}
}

func TestCtrlCAtAPromptChangesNothing(t *testing.T) {
	changing(t, func(b *rig) {
		ctx, interrupt := context.WithCancel(b.t.Context())
		in, typing := io.Pipe() // nobody types
		b.t.Cleanup(func() { typing.Close() })
		done := make(chan int)
		var out, errs bytes.Buffer
		go func() {
			term := &terminal{in: in, out: &out, err: &errs, asks: true}
			done <- run(ctx, releaseR1, term, b.outside())
		}()
		synctest.Wait()
		interrupt()
		require.Equal(b.t, exitFailed, <-done)
		require.Contains(b.t, errs.String(), "interrupted, and nothing was changed")
		require.Equal(b.t, idem.Unknown, b.Record(r1).State)
	})
}

func TestAConfirmedChangeIsNotInterrupted(t *testing.T) {
	changing(t, func(b *rig) {
		ctx, interrupt := context.WithCancel(b.t.Context())
		b.ctx = ctx
		b.Faults.Next(idemtest.Settle, func(ctx context.Context, c *idemtest.Call) error {
			interrupt()
			require.NoError(b.t, ctx.Err())
			return c.Do(ctx)
		})
		b.want(exitDone, with(releaseR1, "--yes")...)
		require.Equal(b.t, idem.Released, b.Record(r1).State)
	})
}

func TestOfManyThoseThatHaveChangedAreLeft(t *testing.T) {
	changing(t, func(b *rig) {
		r2 := refund.Key("acme", "r-2")
		b.unknown(r2)
		b.Clock.Advance(time.Hour)
		b.answers, b.beforeAnswer = []string{"2"}, b.lateOutcome
		out, errs := b.want(exitFailed, "release", "--operation", "refund", "--limit", "2", "--reason", "case 1",
			"--provider-says", "no such refund")
		require.Contains(b.t, out, "Done: 1 of 2.")
		require.Contains(b.t, errs, "1 record could not be changed")
		require.Equal(b.t, idem.Completed, b.Record(r1).State)
		require.Equal(b.t, idem.Released, b.Record(r2).State)
	})
}

// A lost reply leaves the question whether it was written.
func TestALostReplyIsReported(t *testing.T) {
	changing(t, func(b *rig) {
		b.Faults.Always(func(context.Context, *idemtest.Call) error { return context.DeadlineExceeded }, idemtest.Settle)
		b.says(exitFailed, "it may or may not have been written", with(releaseR1, "--yes")...)
	})
	// The credentials of the next try are refused.
	changing(t, func(b *rig) {
		b.Faults.Always(func(ctx context.Context, c *idemtest.Call) error {
			_ = c.Do(ctx)
			return &idem.StoreError{Op: "Settle", Ambiguous: true, Err: fmt.Errorf("%w (%w)",
				&idem.ConfigError{What: "dynamostore: table", Problem: "cannot be reached with these credentials"},
				&smithy.GenericAPIError{Code: "ExpiredTokenException"})}
		}, idemtest.Settle)
		_, errs := b.want(exitFailed, with(releaseR1, "--yes")...)
		require.Contains(b.t, errs, "it may or may not have been written")
		require.NotContains(b.t, errs, "nothing was changed")
		require.Equal(b.t, idem.Released, b.Record(r1).State)
	})
}

// What is completed from outside is what the handler would have returned.
func TestAResultGoesThroughTheCodec(t *testing.T) {
	changing(t, func(b *rig) {
		b.answers = []string{"yes"}
		path := b.t.TempDir() + "/result.json"
		require.NoError(b.t, writeFile(path, " 42 \n"))
		b.want(exitDone, "resolve", r1.ID(), "--to", "completed", "--result", path, "--ref", "re_1", "--reason", "found it")
		out, err := idem.Do(b.t.Context(), b.Engine, r1, 1, func(context.Context, int) (int, error) { return 0, errCut })
		require.NoError(b.t, err)
		require.Equal(b.t, 42, out)
		require.Equal(b.t, "re_1", b.Record(r1).Ref)
	})
}

// That steps were undone by hand is asked for: a client that gets a recorded 402 takes it that nothing was charged.
func TestARefusalIsRecordedOnceItsStepsAreUndone(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		id := b.requestOf("key-1234567890123456", func(ctx context.Context) { b.done(ctx, "charge", func() {}) })
		b.Clock.Advance(time.Hour)
		args := []string{"resolve", id, "--reason", "it was declined", "--yes", "--to", "completed", "--status", "402"}
		b.says(exitFailed, `["charge"]: undo them by hand and set --undone`, args...)
		b.want(exitDone, with(args, "--undone")...)
		rec, err := b.Store.Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, idem.Completed, rec.State)
	})
}

// Of a step that was said to have had no effect nothing can be said any more: the refusal says what
// can be done before the next call runs it, and the token to ask with is not lost.
func TestAStepResolvedAsNotExecutedCanOnlyBeStopped(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		b.interrupted(r1)
		b.Clock.Advance(time.Hour)
		token := protocol.Token(r1.ID(), "charge")
		b.want(exitDone, with(releaseR1, "--yes", "--step", "charge=not-executed")...)
		again := with(releaseR1, "--yes", "--again")
		for _, flags := range [][]string{{"--step", "charge=done"}, {"--step", "charge=failed:declined", "--ref", "ch_1"}} {
			_, errs := b.want(exitFailed, with(again, flags...)...)
			for _, want := range []string{"the next call runs it", token, "resolve to completed or failed before that call"} {
				require.Contains(t, errs, want)
			}
		}
		b.says(exitFailed, "nothing would change: its steps that are not recorded run again, and if they must not resolve "+
			"it to completed or failed", again...)
		b.want(exitDone, with(again, "--ref", "ch_1")...)
		require.Equal(t, "ch_1", b.Record(r1).Ref)
		b.says(exitDone, token, "history", r1.ID())
		b.want(exitDone, "resolve", r1.ID(), "--again", "--to", "completed", "--no-result", "--yes",
			"--reason", "case 2", "--provider-says", "it has ch_1")
		require.ErrorIs(t, b.call(r1, result), idem.ErrOutcomeUnavailable)
	})
}

// What is said of an interrupted step is what the next call goes on with.
func TestTheNextCallContinuesWithTheOutcomeOfAStep(t *testing.T) {
	path := t.TempDir() + "/charge.json"
	require.NoError(t, writeFile(path, "7"))
	for what, want := range map[string]struct {
		charged, out int
		err          string
	}{
		"@" + path: {0, 7, "<nil>"}, "not-executed": {1, 7, "<nil>"}, "failed:declined": {0, 0, "declined"},
		"done": {0, 0, "result"},
	} {
		withRig(t, func(t *testing.T, b *rig) {
			b.interrupted(r1)
			b.Clock.Advance(time.Hour)
			b.want(exitDone, with(releaseR1, "--yes", "--step", "charge="+what)...)
			charged := 0
			out, err := idem.Do(t.Context(), b.Engine, r1, 1, func(ctx context.Context, _ int) (int, error) {
				return idem.Step(ctx, "charge", func(context.Context) (int, error) { charged++; return 7, nil },
					&idem.StepConfig[int]{Semantics: idem.AtMostOnce})
			})
			require.Equal(t, []int{want.charged, want.out}, []int{charged, out})
			require.Contains(t, fmt.Sprint(err), want.err)
		})
	}
}

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
			_, errs := b.want(exitFailed, args...)
			require.Contains(b.t, errs, "is refused, and nothing was changed")
			require.NotRegexp(b.t, "(reconcile|idem|resolution): ", errs)
		}
	})
}

// No tool can check the form of a step's result, and the preview says so. Null is no form.
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
