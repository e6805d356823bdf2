package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemtest"
)

var r1 = refund.Key("acme", "r-1")

var releaseR1 = []string{"release", r1.ID(), "--reason", "case 1", "--provider-says", "no such refund"}

// with is a command line with more flags.
func with(args []string, more ...string) []string { return append(slices.Clip(args), more...) }

// changing runs a test with an unknown record whose lease is over.
func changing(t *testing.T, test func(b *rig)) {
	withRig(t, func(t *testing.T, b *rig) {
		b.Unknown(r1)
		b.Clock.Advance(time.Hour)
		test(b)
	})
}

func TestCtrlCAtAPromptChangesNothing(t *testing.T) {
	changing(t, func(b *rig) {
		ctx, interrupt := context.WithCancel(b.t.Context())
		in, typing := io.Pipe() // no operator types
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

func TestTheEndOfTheInputConfirmsNothing(t *testing.T) {
	changing(t, func(b *rig) {
		before := b.Record(r1)
		b.says(exitFailed, "not confirmed, and nothing was changed", releaseR1...)
		require.Equal(b.t, before, b.Record(r1))
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
