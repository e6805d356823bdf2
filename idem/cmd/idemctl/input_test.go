package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
)

// Ctrl-C ends what waits for an input, be it the standard input or a pipe with a name.
func TestAnInputThatSaysNothingIsInterrupted(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer writer.Close()
	b := newBench(t)
	for name, args := range map[string][]string{
		"a result":             {"resolve", r1.ID(), "--to", "completed", "--result", "-", "--yes", "--reason", "case 1"},
		"a result by name":     {"resolve", r1.ID(), "--to", "completed", "--result", pipe, "--yes", "--reason", "case 1"},
		"a body of a response": {"resolve", r1.ID(), "--to", "completed", "--status", "200", "--body", "-", "--yes", "--reason", "case 1"},
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
	require.NoError(t, iotest.TestReader(interruptible{t.Context(), bytes.NewReader([]byte("one\ntwo"))}, []byte("one\ntwo")))
}
