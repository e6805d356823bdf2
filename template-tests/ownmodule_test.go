package templatetests

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// An app of somebody else's module, with the relay: nothing but a requirement and go
// mod tidy is needed, although what the relay imports is in neither its go.mod nor its
// go.sum. Only in the long version: the app is linked with all of CDK and run, 15 s of
// CPU. In the short one TestRelay builds the relay from this module.
func TestRelayFromAnotherModule(t *testing.T) {
	if os.Getenv("IDEM_LONG") != "1" {
		t.Skip("links and runs an app of its own; with IDEM_LONG=1")
	}
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	mod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	var version string
	for line := range strings.Lines(string(mod)) {
		if v, ok := strings.CutPrefix(line, "go "); ok {
			version = strings.TrimSpace(v)
		}
	}
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	program, err := os.ReadFile("testdata/ownmodule/main.go")
	require.NoError(t, err)
	dir := t.TempDir()
	for name, content := range map[string]string{
		"main.go": string(program),
		"go.sum":  string(sums), // stands in for the checksum database; tidy leaves what is needed
		"go.mod": "module example.com/shop\n\ngo " + version + "\n\nrequire github.com/idem-go/idempotency v0.0.0\n\n" +
			"replace github.com/idem-go/idempotency => " + root + "\n",
	} {
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	run := func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		// What is there is enough: the modules that this one is built of.
		cmd.Env = append(os.Environ(), "GOPROXY=off", "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOWORK=off")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		require.NoError(t, err, "go %v: %s%s", args, out, said.String())
		return string(out)
	}
	run("mod", "tidy")
	sums, err = os.ReadFile(filepath.Join(dir, "go.sum"))
	require.NoError(t, err)
	require.NotContains(t, string(sums), "service/eventbridge", "the test shows nothing")
	require.Equal(t, "Shop, synthesized", strings.TrimSpace(run("run", ".")))
}
