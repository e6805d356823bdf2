package dynamodblocal

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/internal/child/childtest"
)

// The release of javac that compiled the shipped class.
const shippedBy = 17

func TestShippedClassIsTheSource(t *testing.T) {
	javac, err := exec.LookPath("javac")
	if err != nil {
		t.Skip("needs a JDK")
	}
	out, err := exec.Command(javac, "-version").CombinedOutput()
	require.NoError(t, err, string(out))
	var release int
	_, err = fmt.Sscanf(string(out[strings.Index(string(out), "javac "):]), "javac %d", &release)
	require.NoError(t, err, string(out))

	dir := t.TempDir()
	out, err = exec.Command(javac, "--release", "17", "-g:none", "-d", dir, filepath.Join("loopback", "Loopback.java")).CombinedOutput()
	require.NoError(t, err, string(out))
	compiled, err := os.ReadFile(filepath.Join(dir, "Loopback.class"))
	require.NoError(t, err)
	if release == shippedBy {
		require.Equal(t, wrapperBytes, compiled, "run go generate with javac %d and commit the class", shippedBy)
		return
	}
	// Another compiler may write other bytes; what they do must be the same.
	shipped, err := installWrapper(t.TempDir())
	require.NoError(t, err)
	require.Equal(t, runOnce(t, shipped), runOnce(t, dir))
}

// runOnce starts DynamoDB Local through the class in classDir, lets it end at
// the end of its input, and returns what it said with the port left out.
func runOnce(t *testing.T, classDir string) string {
	t.Helper()
	dir := emulator(t)
	j, err := findJava(t.Context())
	require.NoError(t, err)
	return childtest.RunToEndOfInput(t, wrapperCommand(j.path, classDir, dir), func(endpoint string) { requireAnswers(t, endpoint) })
}

func TestWrapperEndsWithItsInput(t *testing.T) {
	emulator(t)
	classDir, err := installWrapper(t.TempDir())
	require.NoError(t, err)
	require.Contains(t, runOnce(t, classDir), "Listening on address")
}

func TestInstallWrapperRepairsAndKeeps(t *testing.T) {
	cache := t.TempDir()
	dir, err := installWrapper(cache)
	require.NoError(t, err)
	class := filepath.Join(dir, "Loopback.class")
	require.NoError(t, os.Truncate(class, 10))
	again, err := installWrapper(cache)
	require.NoError(t, err)
	require.Equal(t, dir, again)
	content, err := os.ReadFile(class)
	require.NoError(t, err)
	require.Equal(t, wrapperBytes, content)
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, entries, 1)
}
