// Package childtest examines processes from outside, for tests of code that starts
// processes. It reads Linux's /proc; elsewhere every process counts as ended.
package childtest

import (
	"bufio"
	"bytes"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child"
)

// Ended reports whether a process has ended, even if it was not reaped.
func Ended(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	return err != nil || strings.Contains(string(stat), ") Z ") || strings.Contains(string(stat), ") X ")
}

// RequireEnded waits for the end of a process.
func RequireEnded(t testing.TB, pid int) {
	t.Helper()
	require.Eventually(t, func() bool { return Ended(pid) }, 20*time.Second, 10*time.Millisecond)
}

// NeedProc skips the test where there is no /proc to look at processes.
func NeedProc(t testing.TB) {
	t.Helper()
	if _, err := os.Stat("/proc/self/stat"); err != nil {
		t.Skip("needs /proc to see what processes do")
	}
}

// Stop stops a process, and returns when it stands still: kill(2) returns earlier. The
// test is skipped where that cannot be seen.
func Stop(t testing.TB, pid int) {
	t.Helper()
	NeedProc(t)
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	require.Eventually(t, func() bool { return Standing(t, pid) }, 20*time.Second, time.Millisecond)
}

// Standing reports whether a process is stopped.
func Standing(t testing.TB, pid int) bool {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(t, err)
	return strings.Contains(string(stat), ") T ")
}

// Marked lists the processes, but this one, that refer to the mark, whatever their parent is by now: in their
// environment, their arguments or the file that they execute. Each has a description.
func Marked(t testing.TB, mark string) map[int]string {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	found := map[int]string{}
	for _, dir := range dirs {
		env, _ := os.ReadFile(filepath.Join(dir, "environ"))
		args, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
		exe, _ := os.Readlink(filepath.Join(dir, "exe"))
		pid, err := strconv.Atoi(filepath.Base(dir))
		require.NoError(t, err)
		if pid == os.Getpid() || exe == "" {
			continue // this test, or one that has ended and waits for its parent
		}
		if bytes.Contains(env, []byte(mark)) || bytes.Contains(args, []byte(mark)) || strings.HasPrefix(exe, mark) {
			found[pid] = exe + " " + string(bytes.ReplaceAll(args, []byte{0}, []byte{' '}))
		}
	}
	return found
}

// Addresses as /proc/net/tcp and tcp6 write them.
var loopback = []string{"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}

// Socket is a TCP socket that listens.
type Socket struct {
	Port           int
	address, inode string // in hexadecimal, and in the kernel's count
}

// Open reports whether it still listens. Another process's socket may have its port by
// then, and does not count.
func (s Socket) Open(t testing.TB) bool { return slices.Contains(sockets(t), s) }

// RequireLoopbackOnly checks that the process listens at the URL, on the loopback address,
// and nowhere else.
func RequireLoopbackOnly(t testing.TB, pid int, endpoint string) {
	t.Helper()
	address := strings.TrimPrefix(endpoint, "http://")
	require.Regexp(t, `^127\.0\.0\.1:`, address)
	if _, err := os.Stat("/proc/self/stat"); err == nil {
		port, err := strconv.Atoi(strings.TrimPrefix(address, "127.0.0.1:"))
		require.NoError(t, err)
		found := Loopback(t, pid)
		require.Len(t, found, 1, "one port and nothing else")
		require.Equal(t, port, found[0].Port)
	}
}

// Loopback returns the sockets on which the process listens, and fails if it listens on an
// address that other machines can reach.
func Loopback(t testing.TB, pid int) (own []Socket) {
	t.Helper()
	inodes := map[string]bool{}
	links, err := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", pid))
	require.NoError(t, err)
	for _, link := range links {
		target, err := os.Readlink(link)
		if err != nil {
			continue // closed since it was listed
		}
		if inode, ok := strings.CutPrefix(target, "socket:["); ok {
			inodes[strings.TrimSuffix(inode, "]")] = true
		}
	}
	for _, s := range sockets(t) {
		if inodes[s.inode] {
			require.Contains(t, loopback, s.address, "process %d listens for other machines", pid)
			own = append(own, s)
		}
	}
	return own
}

// sockets are all that listen on this machine.
func sockets(t testing.TB) (all []Socket) {
	t.Helper()
	for _, table := range []string{"tcp", "tcp6"} {
		raw, err := os.ReadFile("/proc/net/" + table)
		if os.IsNotExist(err) {
			continue // no IPv6
		}
		require.NoError(t, err)
		for line := range strings.Lines(string(raw)) {
			// sl local_address rem_address st … inode is the tenth
			f := strings.Fields(line)
			if len(f) <= 9 || f[3] != "0A" {
				continue
			}
			address, hexPort, _ := strings.Cut(f[1], ":")
			port, err := strconv.ParseInt(hexPort, 16, 32)
			require.NoError(t, err)
			all = append(all, Socket{int(port), address, f[9]})
		}
	}
	return all
}

// Programs makes PATH the folder of [ProgramFolder].
func Programs(t *testing.T, names []string, scripts map[string]string) {
	t.Helper()
	t.Setenv("PATH", ProgramFolder(t, names, scripts))
}

// ProgramFolder makes a folder with only the named programs of PATH, and with shell scripts
// under the given names.
func ProgramFolder(t *testing.T, names []string, scripts map[string]string) (dir string) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range names {
		path, err := exec.LookPath(name)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(path, filepath.Join(dir, name)))
	}
	for name, script := range scripts {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script+"\n"), 0o755))
	}
	return dir
}

// RequireRefused checks that no process listens at the URL.
func RequireRefused(t *testing.T, endpoint string) {
	t.Helper()
	_, err := http.Get(endpoint)
	require.Error(t, err)
}

// RunToEndOfInput starts a server, calls use with its URL, and ends its input, which
// must end it. It returns what the server said, with "address" for its address.
func RunToEndOfInput(t *testing.T, cmd *exec.Cmd, use func(endpoint string)) string {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	output := child.NewTail()
	cmd.Stdout, cmd.Stderr = output, output
	require.NoError(t, cmd.Start())
	var address string
	select {
	case address = <-output.Listening():
	case <-time.After(time.Minute):
		_ = cmd.Process.Kill() // the test has failed
		require.Fail(t, "it does not listen", output.String())
	}
	use("http://" + address)
	require.NoError(t, stdin.Close())
	require.NoError(t, cmd.Wait(), "it ends with status 0")
	return strings.ReplaceAll(output.String(), address, "address")
}

// Rerun starts the test binary once more with the variable set to 1, for a TestMain
// that then runs a server, and returns the process id and the address that it says
// in its first line.
func Rerun(t *testing.T, variable string, env ...string) (cmd *exec.Cmd, pid int, endpoint string) {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd = exec.Command(self)
	cmd.Env = append(append(os.Environ(), variable+"=1"), env...)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already in a test that passes
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(out).ReadString('\n')
	require.NoError(t, err)
	_, err = fmt.Sscan(line, &pid, &endpoint)
	require.NoError(t, err, line)
	return cmd, pid, endpoint
}

// RequireEndsWithParent reruns the test binary for a server that says its folder, kills it, and waits until the server
// has ended and the folder is deleted.
func RequireEndsWithParent(t *testing.T, variable string) {
	t.Helper()
	parent, pid, folder := Rerun(t, variable)
	require.False(t, Ended(pid))
	require.DirExists(t, folder)
	require.NoError(t, parent.Process.Kill())
	RequireEnded(t, pid)
	require.Eventually(t, func() bool {
		_, err := os.Stat(folder)
		return os.IsNotExist(err)
	}, time.Minute, 10*time.Millisecond)
}

// EnvRequire set to 1 makes a test fail that would be skipped because it has no server.
const EnvRequire = "IDEM_REQUIRE_DYNAMODB"

// Need is [NeedFor] with [EnvRequire].
func Need[T any](tb testing.TB, what string, start func() (T, error)) T {
	tb.Helper()
	return NeedFor(tb, EnvRequire, what, start)
}

// NeedFor returns the result of start. If start fails, the test is skipped with the reason, or
// fails if the environment variable is 1. Call it from the test's own goroutine.
func NeedFor[T any](tb testing.TB, variable, what string, start func() (T, error)) T {
	tb.Helper()
	got, err := start()
	switch {
	case err == nil:
	case os.Getenv(variable) == "1":
		tb.Fatalf("%s=1 and there is no %s: %v", variable, what, err)
	default:
		tb.Skipf("no %s (with %s=1 this is a failure): %v", what, variable, err)
	}
	return got
}
