// Package consumer is a user's module, outside of this repository: it requires the modules as they are now from a
// module proxy that is a folder, in the version of the next release.
package consumer

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Flags are for all go commands: -trimpath lets builds of several caches share results.
const Flags = "-modcacherw -trimpath"

// Module is a user's module.
type Module struct {
	*testing.T
	// Dir is its folder, and Modules its module cache, which is empty at first.
	Dir, Modules string
	// Env are further variables of its environment.
	Env   []string
	proxy string
}

// New returns a module that can require the library, and the library's version.
func New(t *testing.T) (m *Module, v string) {
	all := Tagged(t)
	v = version(t, all)
	m = &Module{T: t, Dir: t.TempDir(), Modules: t.TempDir(), proxy: publish(t, all, v)}
	m.Write("go.mod", "module example.com/shop\n\ngo 1.26.0\n")
	return m, v
}

// Write writes a file of the module.
func (m *Module) Write(name, content string) {
	m.Helper()
	path := filepath.Join(m.Dir, name)
	require.NoError(m, os.MkdirAll(filepath.Dir(path), 0o700))
	require.NoError(m, os.WriteFile(path, []byte(content), 0o600))
}

// Go runs the go command, and returns its output.
func (m *Module) Go(args ...string) string {
	m.Helper()
	out, said, err := m.Try(args...)
	require.NoError(m, err, "go %v: %s%s", args, out, said)
	return out
}

// Try runs the go command, and returns its output, what it writes to standard error, and how it ends.
func (m *Module) Try(args ...string) (out, said string, err error) {
	m.Helper()
	cmd := exec.CommandContext(m.Context(), "go", args...)
	cmd.Dir, cmd.Env = m.Dir, m.Environ()
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// Environ is the environment of the module's go commands. What is not in the proxy comes from this machine's module
// cache, or else from where it downloads.
func (m *Module) Environ() []string {
	m.Helper()
	known, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(m, err)
	cache, elsewhere, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
	return append(append(os.Environ(),
		"GOPROXY=file://"+m.proxy+",file://"+cache+"/cache/download,"+elsewhere,
		"GOMODCACHE="+m.Modules, "GOBIN="+filepath.Join(m.Dir, "bin"),
		"GOWORK=off", "GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=", "GOTOOLCHAIN=local",
		"GOFLAGS="+Flags+" -mod=mod",
	), m.Env...)
}
