package main

import (
	"bufio"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/testmain"
)

func TestMain(m *testing.M) { testmain.Run(m) }

func TestWithProgress(t *testing.T) {
	path := testmain.Program(t, ".")

	// The command ends when it has been told of.
	cmd := exec.Command(path, "waiting", "sh", "-c", "read line; echo told; exit 3")
	stdin, err := cmd.StdinPipe()
	require.NoError(t, err)
	stderr, err := cmd.StderrPipe()
	require.NoError(t, err)
	var stdout strings.Builder
	cmd.Stdout = &stdout
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() })
	said, err := bufio.NewReader(stderr).ReadString('\n')
	require.NoError(t, err)
	require.Regexp(t, `^  \d+s: still waiting\n$`, said)
	_, err = io.WriteString(stdin, "go on\n")
	require.NoError(t, err)
	require.Error(t, cmd.Wait())
	require.Equal(t, 3, cmd.ProcessState.ExitCode(), "the command's own")
	require.Equal(t, "told\n", stdout.String())

	require.NoError(t, exec.Command(path, "nothing", "true").Run())
	out, err := exec.Command(path, "nothing", filepath.Join(t.TempDir(), "missing")).CombinedOutput()
	require.Error(t, err)
	require.Contains(t, string(out), "no such file")
}

// A command that ends in order when it is asked to has succeeded.
func TestTheCodeIsTheCommandsOwnAfterASignal(t *testing.T) {
	path := testmain.Program(t, ".")
	for script, want := range map[string]int{
		"trap 'exit 0' TERM; echo ready; while :; do sleep 0.01; done": 0,
		"trap 'exit 4' TERM; echo ready; while :; do sleep 0.01; done": 4,
		"echo ready; exec sleep 600":                                   1,
	} {
		cmd := exec.Command(path, "waiting", "sh", "-c", script)
		stdout, err := cmd.StdoutPipe()
		require.NoError(t, err)
		require.NoError(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		_, err = bufio.NewReader(stdout).ReadString('\n')
		require.NoError(t, err)
		require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
		_ = cmd.Wait() // the code is what counts
		require.Equal(t, want, cmd.ProcessState.ExitCode(), script)
	}
}
