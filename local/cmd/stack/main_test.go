package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

func TestMisuseIsExplained(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"argument":          {[]string{"tour"}, `unexpected argument "tour"`},
		"unknown flag":      {[]string{"-twice"}, "not defined: -twice"},
		"both dashes":       {[]string{"--twice"}, "not defined: -twice"},
		"nothing to do":     {[]string{"-once", "--no-tour"}, "leave nothing to do"},
		"flags not numbers": {[]string{"-port", "http"}, "invalid value"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parse(c.args, io.Discard)
			require.ErrorContains(t, err, c.want)
			require.IsType(t, usageError{}, err)
		})
	}
}

func TestHelpNamesTheFlags(t *testing.T) {
	var out bytes.Buffer
	_, err := parse([]string{"-help"}, &out)
	require.ErrorIs(t, err, flag.ErrHelp)
	for _, name := range []string{"-once", "-no-tour", "-endpoint", "-port", "-cache"} {
		require.Contains(t, out.String(), name)
	}
}

func TestOutcomesOfMessages(t *testing.T) {
	for name, c := range map[string]struct {
		payload string
		lines   []string
		want    string
	}{
		"one": {
			`{"batchItemFailures": []}`, []string{`{"message": "idem: message acknowledged", "reason": "executed"}`}, "executed",
		},
		"batch": {
			`{"batchItemFailures": [{"itemIdentifier": "2"}]}`,
			[]string{`{"reason": "executed"}`, "hello", `{"message": "idem: claimed"}`, `{"reason": "in_flight"}`},
			"1 × executed, 1 × in_flight (1 redelivered)",
		},
		"silent batch": {`{"batchItemFailures": []}`, []string{"hello"}, "0 messages redelivered"},
	} {
		t.Run(name, func(t *testing.T) { require.Equal(t, c.want, messagesOf(c.lines, []byte(c.payload))) })
	}
	failed := runtime.Result{Error: &runtime.FunctionError{Type: "Sandbox.Timedout", Message: "Task timed out"}}
	require.Equal(t, "function failed: Sandbox.Timedout: Task timed out", (&stack{}).outcomeOf(t.Context(), failed))
}

func TestFolders(t *testing.T) {
	dir := t.TempDir()
	t.Setenv(envRunDir, dir)
	const nobody = 1 << 30 // above the largest process id
	require.False(t, alive(nobody))
	require.True(t, alive(os.Getpid()))
	dead := filepath.Join(dir, strconv.Itoa(nobody)+"-1")
	require.NoError(t, os.Mkdir(dead, 0o700))

	made, err := newFolder("")
	require.NoError(t, err)
	require.NoDirExists(t, dead, "it is swept")
	info, err := os.Stat(string(made))
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o700), info.Mode().Perm(), "only its owner reads the log")
	made.remove()
	require.NoDirExists(t, string(made))
}

func TestTheLogKeepsWhatTheTourLooksFor(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := newLog(path)
	require.NoError(t, err)
	defer l.Close()
	for i := range keptLines {
		fmt.Fprintf(l, "payments[1] line %d of request a\n", i)
	}
	fmt.Fprintln(l, "orders[2] first of request b")
	fmt.Fprintln(l, "orders[2] second of request b")
	require.Equal(t, []string{"first of request b", "second of request b"}, l.about("request b"))
	require.Len(t, l.about("request a"), keptLines-2)
	written, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, keptLines+2, bytes.Count(written, []byte("\n")), "the file has all")
}
