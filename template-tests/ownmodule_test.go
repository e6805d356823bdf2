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

// An app of somebody else's module, with the relay, the ready sweeper and a sweeper of its own: nothing but a
// requirement and go mod tidy is needed, although what the relay imports is in neither its go.mod nor its go.sum, and
// what its sweeper needs is exported. Only in the long version: the app is linked with all of CDK and run, 20 s of
// CPU. In the short one TestRelay builds the relay from this module, and TestSweeperFromAnotherModule compiles the
// sweeper.
func TestAppOfAnotherModule(t *testing.T) {
	if os.Getenv("IDEM_LONG") != "1" {
		t.Skip("links and runs an app of its own; with IDEM_LONG=1")
	}
	run, sums := anotherModule(t, "main.go", "sweeper/main.go")
	require.NotContains(t, sums, "service/eventbridge", "the test shows nothing")
	require.Equal(t, "Shop, synthesized", strings.TrimSpace(run("run", ".")))
}

// A sweeper that is written in somebody else's module needs nothing that is not exported.
func TestSweeperFromAnotherModule(t *testing.T) {
	run, _ := anotherModule(t, "sweeper/main.go")
	run("vet", "./...")
}

// anotherModule has the files of testdata/ownmodule, tidied. It returns the go command
// there, and the module's checksums.
func anotherModule(t *testing.T, files ...string) (run func(args ...string) string, sums string) {
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
	var all []byte
	for _, module := range []string{".", "infra"} {
		sums, err := os.ReadFile(filepath.Join(root, module, "go.sum"))
		require.NoError(t, err)
		all = append(all, sums...)
	}
	dir := t.TempDir()
	content := map[string]string{
		"go.sum": string(all), // stands in for the checksum database; tidy leaves what is needed
		// As go get writes it: without the requirement tidy would take the newest CDK there is, and not infra's.
		"go.mod": "module example.com/shop\n\ngo " + version + "\n\n" +
			"require github.com/idem-go/idempotency/infra v0.1.0\n" +
			"replace github.com/idem-go/idempotency => " + root + "\n" +
			"replace github.com/idem-go/idempotency/infra => " + filepath.Join(root, "infra") + "\n",
	}
	for _, name := range files {
		program, err := os.ReadFile(filepath.Join("testdata/ownmodule", name))
		require.NoError(t, err)
		content[name] = string(program)
	}
	for name, content := range content {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600))
	}
	run = func(args ...string) string {
		cmd := exec.CommandContext(t.Context(), "go", args...)
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "GOSUMDB=off", "GOFLAGS=-mod=mod", "GOWORK=off")
		var said bytes.Buffer
		cmd.Stderr = &said
		out, err := cmd.Output()
		require.NoError(t, err, "go %v: %s%s", args, out, said.String())
		require.NotRegexp(t, "end-of-life|is deprecated", said.String(), "CDK's runtime speaks of itself")
		return string(out)
	}
	run("mod", "tidy")
	left, err := os.ReadFile(filepath.Join(dir, "go.sum"))
	require.NoError(t, err)
	return run, string(left)
}
