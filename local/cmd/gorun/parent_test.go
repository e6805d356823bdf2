package gorun

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// patience is for what takes milliseconds on an idle machine.
const patience = time.Minute

// TestEndsWithGoRun: whatever ends `go run`, and wherever the build cache lies, the
// command sees it. The short version leaves out a cache of its own, for which the
// standard library is compiled: TestStartedByItselfItIsLeftAlone shows too that the
// executable's place does not count.
func TestEndsWithGoRun(t *testing.T) {
	caches := []string{""}
	if os.Getenv("IDEM_LONG") == "1" {
		caches = append(caches, filepath.Join(t.TempDir(), "cache")) // filled by the first that uses it
	}
	for _, cache := range caches {
		for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
			t.Run(fmt.Sprintf("%s with a cache of its own %v", signal, cache != ""), func(t *testing.T) {
				cmd := exec.Command("go", "run", "./testdata/lingers")
				cmd.Env = os.Environ()
				if cache != "" {
					require.NotContains(t, cache, "go-build")
					cmd.Env = append(cmd.Env, "GOCACHE="+cache)
				}
				r, w, err := os.Pipe()
				require.NoError(t, err)
				cmd.Stdout, cmd.Stderr = w, w
				require.NoError(t, cmd.Start())
				require.NoError(t, w.Close())
				out := bufio.NewReader(r)
				line, err := out.ReadString('\n')
				require.NoError(t, err, line)
				var pid int
				var under bool
				_, err = fmt.Sscan(line, &pid, &under)
				require.NoError(t, err, line)
				t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
				require.True(t, under)

				require.NoError(t, cmd.Process.Signal(signal))
				_ = cmd.Wait() // go run reports the signal
				// Both have written to the pipe: its end is the command's.
				require.NoError(t, r.SetReadDeadline(time.Now().Add(patience)))
				rest, err := io.ReadAll(out)
				require.NoError(t, err, "it still runs")
				require.Contains(t, string(rest), "ended")
			})
		}
	}
}

// TestStartedByItselfItIsLeftAlone, also where its path looks like a build cache.
func TestStartedByItselfItIsLeftAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "go-build")
	require.NoError(t, os.Mkdir(dir, 0o755))
	path := filepath.Join(dir, "lingers")
	out, err := exec.Command("go", "build", "-o", path, "./testdata/lingers").CombinedOutput()
	require.NoError(t, err, "%s", out)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out, err = exec.CommandContext(ctx, path).Output()
	require.NoError(t, err, "it waits for its parent")
	require.True(t, strings.HasSuffix(string(out), " false\n"), "%s", out)
}
