//go:build linux

package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestNobodyWaitsInSilence: what compiles or is fetched for long is told of. The
// programs that do it hang here.
func TestNobodyWaitsInSilence(t *testing.T) {
	t.Parallel()
	path := t.TempDir()
	for _, program := range []string{"go", "npm"} {
		require.NoError(t, os.WriteFile(filepath.Join(path, program), []byte("#!/bin/sh\nexec sleep 600\n"), 0o755))
	}
	for _, program := range []string{"java", "node", "sleep"} {
		file, err := exec.LookPath(program)
		require.NoError(t, err)
		require.NoError(t, os.Symlink(file, filepath.Join(path, program)))
	}
	launcher := filepath.Join(t.TempDir(), "launcher")
	out, err := exec.Command("go", "build", "-o", launcher, "../..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, c := range map[string]struct {
		binary string
		want   []string
	}{
		"launcher": {launcher, []string{"compiling the command"}},
		"command":  {build(t), []string{"compiling the functions", "starting DynamoDB Local", "starting the queue server"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t, exec.Command(c.binary))
			s.cmd.Env = append(s.cmd.Env, "PATH="+path, "IDEM_CACHE_DIR="+t.TempDir())
			s.start()
			for range 2 {
				s.until(": still ")
				for _, want := range c.want {
					require.Contains(t, s.last, want)
				}
			}
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
			require.NoError(t, s.end(), "%s", &s.seen)
		})
	}
}
