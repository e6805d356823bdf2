//go:build linux

package main

import (
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/internal/child/childtest"
)

// TestNobodyWaitsInSilence: what compiles or is fetched for long is told of, and what has
// ended is not. The programs that do it hang here.
func TestNobodyWaitsInSilence(t *testing.T) {
	t.Parallel()
	path := childtest.ProgramFolder(t, []string{"java", "node", "sleep"}, map[string]string{
		"go": "exec sleep 600", "npm": "exec sleep 600",
	})
	launcher := filepath.Join(t.TempDir(), "launcher")
	out, err := exec.Command("go", "build", "-o", launcher, "../..").CombinedOutput()
	require.NoError(t, err, "%s", out)
	for name, c := range map[string]struct {
		cmd  *exec.Cmd
		want []string
		ends string // what is told of once the first step has ended
	}{
		"launcher": {exec.Command(launcher), []string{"compiling the command"}, ""},
		"command":  {exec.Command(build(t)), []string{"compiling the functions", "starting DynamoDB Local", "starting the queue server"}, ""},
		"command, with a DynamoDB": {
			exec.Command(build(t), "-endpoint", sharedDatabase(t)), []string{"compiling the functions", "starting the queue server"},
			"still fetching modules and compiling the functions " + functionNames() + ", fetching and starting the queue server",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := prepare(t, c.cmd)
			s.cmd.Env = append(s.cmd.Env, "PATH="+path, "IDEM_CACHE_DIR="+t.TempDir())
			s.start()
			for range 2 {
				s.until(": still ")
				for _, want := range c.want {
					require.Contains(t, s.last, want)
				}
			}
			if c.ends != "" {
				s.until(c.ends)
			}
			require.NoError(t, s.cmd.Process.Signal(syscall.SIGINT))
			require.NoError(t, s.end(), "%s", &s.seen)
		})
	}
}
