//go:build linux

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/dynamodblocal/dynamotest"
)

// build compiles the command once per test, so that signals reach it and not
// `go run`.
func build(t *testing.T) string {
	bin := filepath.Join(t.TempDir(), "local")
	out, err := exec.Command("go", "build", "-o", bin, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

// environ marks the processes of a test, so that they are found whoever their
// parent is by now.
func environ(mark string, extra ...string) []string {
	var env []string
	for _, e := range os.Environ() {
		if !strings.HasPrefix(e, "IDEM_DYNAMODB_ENDPOINT=") {
			env = append(env, e)
		}
	}
	return append(append(env, "TMPDIR="+mark), extra...)
}

// running lists the processes that refer to the mark: in their environment, their
// arguments or the file that they execute.
func running(t *testing.T, mark string) (found []string) {
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		if filepath.Base(dir) == strconv.Itoa(os.Getpid()) || exe == "" {
			continue // this test, or one that has ended and waits for its parent
		}
		if bytes.Contains(env, []byte(mark)) || bytes.Contains(args, []byte(mark)) || strings.HasPrefix(exe, mark) {
			found = append(found, fmt.Sprintf("%s %s", filepath.Base(dir), bytes.ReplaceAll(args, []byte{0}, []byte{' '})))
		}
	}
	return found
}

// gone waits for every process of the mark to end.
func gone(t *testing.T, mark string) {
	require.Eventually(t, func() bool { return len(running(t, mark)) == 0 }, 20*time.Second, 50*time.Millisecond,
		"still running: %v", running(t, mark))
}

// TestTour takes the whole tour: every line must be what was expected.
func TestTour(t *testing.T) {
	endpoint, mark := dynamotest.Endpoint(t), t.TempDir()
	cmd := exec.Command(build(t), "-once", "-endpoint", endpoint)
	cmd.Env = environ(mark)
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Equal(t, 17, bytes.Count(out, []byte("\nok  ")), "%s", out)
	gone(t, mark)
	left, err := os.ReadDir(mark)
	require.NoError(t, err)
	require.Empty(t, left, "files are left in the temporary folder")
}

// TestNothingIsLeft ends the command, which has started DynamoDB Local and
// functions of its own, by Ctrl-C and by SIGKILL in the middle of the tour.
func TestNothingIsLeft(t *testing.T) {
	dynamotest.Endpoint(t) // DynamoDB Local can be had here
	bin := build(t)
	for name, sig := range map[string]syscall.Signal{"Ctrl-C": syscall.SIGINT, "SIGKILL": syscall.SIGKILL} {
		t.Run(name, func(t *testing.T) {
			mark := t.TempDir()
			cmd := exec.Command(bin)
			cmd.Env = environ(mark)
			out, err := cmd.StdoutPipe()
			require.NoError(t, err)
			cmd.Stderr = cmd.Stdout
			require.NoError(t, cmd.Start())
			defer func() { _ = cmd.Process.Kill() }()

			lines := bufio.NewScanner(out)
			seen := ""
			for !strings.Contains(seen, "taking the tour") && lines.Scan() {
				seen += lines.Text() + "\n"
			}
			require.Contains(t, seen, "taking the tour")
			require.Eventually(t, func() bool { return len(running(t, mark)) >= 3 }, 20*time.Second, 20*time.Millisecond,
				"the command, DynamoDB Local and a function should be running")
			require.NoError(t, cmd.Process.Signal(sig))
			_, _ = io.Copy(io.Discard, out)
			err = cmd.Wait()
			if sig == syscall.SIGINT {
				require.NoError(t, err)
			}
			gone(t, mark)
		})
	}
}

// TestGoRunIsTerminated: the SIGTERM that a script sends reaches `go run` alone.
func TestGoRunIsTerminated(t *testing.T) {
	endpoint, mark := dynamotest.Endpoint(t), t.TempDir()
	cmd := exec.Command("go", "run", ".", "-endpoint", endpoint)
	cmd.Env = environ(mark)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	defer func() { _ = cmd.Process.Kill() }()
	lines, seen := bufio.NewScanner(out), ""
	for !strings.Contains(seen, "taking the tour") && lines.Scan() {
		seen += lines.Text() + "\n"
	}
	require.Contains(t, seen, "taking the tour")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	_, _ = io.Copy(io.Discard, out)
	_ = cmd.Wait()
	gone(t, mark)
}

func TestBadArguments(t *testing.T) {
	out, err := exec.Command(build(t), "tour").CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), `unexpected argument "tour"`)
}
