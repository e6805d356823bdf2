package modules

import (
	"bytes"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Limits of what a function that imports the wrapper and the DynamoDB store brings along, the
// AWS SDK included.
const (
	maxSums = 60
	maxZips = 6 << 20
)

// allowed is what the library may require: the AWS SDK, and what a handler or its tests need.
var allowed = []string{
	"github.com/aws/aws-lambda-go",
	"github.com/aws/aws-sdk-go-v2",
	"github.com/aws/smithy-go",
	"github.com/dunglas/httpsfv",
	"github.com/go-json-experiment/json",
	"github.com/sony/gobreaker/v2",
	"golang.org/x/sync",
	// Tests alone.
	"github.com/santhosh-tekuri/jsonschema/v6",
	"github.com/stretchr/testify",
	"github.com/davecgh/go-spew", "github.com/pmezard/go-difflib", "gopkg.in/yaml.v3", // testify's
	"golang.org/x/text", // jsonschema's
}

// older are versions that a service may have already, and that this repository's other
// modules raise.
var older = map[string]string{
	"github.com/aws/aws-cdk-go/awscdk/v2": "v2.195.0",
	"github.com/getkin/kin-openapi":       "v0.131.0",
	"github.com/stretchr/testify":         "v1.8.4",
	"go.opentelemetry.io/otel":            "v1.35.0",
	"go.opentelemetry.io/otel/metric":     "v1.35.0",
	"go.opentelemetry.io/otel/trace":      "v1.35.0",
}

func TestTheLibraryRequiresLittle(t *testing.T) {
	for _, r := range requirements(t, tagged(t)[0].Dir) {
		require.True(t, slices.ContainsFunc(allowed, func(path string) bool {
			return r.Path == path || strings.HasPrefix(r.Path, path+"/")
		}), "%s: what a handler does not need belongs into another module", r.Path)
	}
}

// consumer is a user's module, with an empty module cache.
type consumer struct {
	*testing.T
	dir, proxy, modules string
}

// newConsumer returns a module that can require the library's version.
func newConsumer(t *testing.T) (c *consumer, v string) {
	all := tagged(t)
	v = version(t, all)
	c = &consumer{t, t.TempDir(), publish(t, all, v), t.TempDir()}
	c.write("go.mod", "module example.com/shop\n\ngo 1.26.0\n")
	return c, v
}

func (c *consumer) write(name, content string) {
	require.NoError(c, os.WriteFile(filepath.Join(c.dir, name), []byte(content), 0o600))
}

// goes runs the go command. What is not in the proxy comes from this machine's module cache,
// or else from where it downloads.
func (c *consumer) goes(args ...string) string {
	c.Helper()
	out, said, err := c.tries(args...)
	require.NoError(c, err, "go %v: %s%s", args, out, said)
	return out
}

func (c *consumer) tries(args ...string) (out, said string, err error) {
	c.Helper()
	known, err := exec.Command("go", "env", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(c, err)
	cache, elsewhere, _ := strings.Cut(strings.TrimSpace(string(known)), "\n")
	cmd := exec.CommandContext(c.Context(), "go", args...)
	cmd.Dir = c.dir
	cmd.Env = append(os.Environ(),
		"GOPROXY=file://"+c.proxy+",file://"+cache+"/cache/download,"+elsewhere,
		"GOMODCACHE="+c.modules, "GOBIN="+filepath.Join(c.dir, "bin"),
		"GOWORK=off", "GOSUMDB=off", "GOPRIVATE=", "GONOPROXY=", "GOTOOLCHAIN=local",
		"GOFLAGS=-mod=mod -modcacherw -trimpath", // which lets builds of several caches share results
	)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err = cmd.Run()
	return stdout.String(), stderr.String(), err
}

// versions are those of all modules, as the module graph selects them.
func (c *consumer) versions() map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(c.goes("list", "-m", "all")) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok { // not the module itself
			found[path] = version
		}
	}
	return found
}

// zips is how much was downloaded.
func (c *consumer) zips() (n int64) {
	downloads := filepath.Join(c.modules, "cache", "download")
	require.NoError(c, filepath.WalkDir(downloads, func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".zip" {
			return err
		}
		info, err := d.Info()
		if err == nil {
			n += info.Size()
		}
		return err
	}))
	return n
}

// A function that imports the wrapper and the store: little is downloaded, and little has to be
// reviewed.
func TestAFunctionBringsLittleAlong(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("../../measure/size/wrapped/main.go")
	require.NoError(t, err)
	c, v := newConsumer(t)
	c.write("main.go", string(program))
	c.goes("mod", "edit", "-require="+library+"@"+v)
	c.goes("mod", "tidy")
	sums, err := os.ReadFile(filepath.Join(c.dir, "go.sum"))
	require.NoError(t, err)
	lines := bytes.Count(sums, []byte("\n"))
	require.LessOrEqual(t, lines, maxSums, "lines of go.sum:\n%s", sums)
	reviewed := c.zips()
	c.modules = t.TempDir()
	c.goes("build", "-o", filepath.Join(c.dir, "bootstrap"), ".")
	require.LessOrEqual(t, c.zips(), int64(maxZips), "bytes that go build downloads")
	t.Logf("%d lines of go.sum; go build downloads %d bytes, go mod tidy %d", lines, c.zips(), reviewed)
}

// A copy of each function has all that it imports in another module.
func TestFunctionsCanBeCopied(t *testing.T) {
	t.Parallel()
	c, v := newConsumer(t)
	c.goes("mod", "edit", "-require="+library+"@"+v)
	functions, err := filepath.Glob("../../../lambda/functions/*/*.go")
	require.NoError(t, err)
	for _, path := range functions {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		name := filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
		require.NoError(t, os.MkdirAll(filepath.Join(c.dir, filepath.Dir(name)), 0o700))
		c.write(name, string(source))
	}
	c.goes("mod", "tidy")
	c.goes("list", "-deps", "./...") // refuses what is internal
}

// The message that lambda/README.md explains, and what it says to do.
func TestMissingSumsAreTidiedUp(t *testing.T) {
	t.Parallel()
	c, v := newConsumer(t)
	c.goes("get", library+"@"+v)
	c.write("main.go", "package main\n\nimport _ \""+library+"/idem/dynamostore\"\n\nfunc main() {}\n")
	_, said, err := c.tries("list", "-mod=readonly", "-deps", ".")
	require.Error(t, err)
	require.Contains(t, said, "missing go.sum entry for module")
	c.goes("mod", "tidy")
	c.goes("list", "-mod=readonly", "-deps", ".")
}

// A module that requires the library keeps the versions that it has of what the library's
// handlers do not need. Each stands alone: one of them may require a newer version of another.
func TestTheLibraryRaisesNothing(t *testing.T) {
	t.Parallel()
	for path, old := range older {
		c, v := newConsumer(t)
		c.goes("mod", "edit", "-require="+path+"@"+old)
		before := c.versions()
		c.goes("mod", "edit", "-require="+library+"@"+v)
		after := c.versions()
		require.Equal(t, v, after[library])
		require.Equal(t, old, before[path])
		for path, version := range before {
			require.Equal(t, version, after[path], path)
		}
		for path, version := range after {
			known := before[path] != "" || path == library
			require.True(t, known || slices.ContainsFunc(allowed, func(p string) bool {
				return path == p || strings.HasPrefix(path, p+"/")
			}), "%s %s has come along", path, version)
			require.False(t, own(path) && path != library, "the library requires %s", path)
		}
	}
}

// The tools are installed from what a release tags, without the workspace.
func TestToolsAreInstalled(t *testing.T) {
	t.Parallel()
	c, v := newConsumer(t)
	for _, tool := range []string{"/idem/cmd/idemctl", "/local/cmd/with-dynamodb"} {
		c.goes("install", library+tool+"@"+v)
		require.FileExists(t, filepath.Join(c.dir, "bin", filepath.Base(tool)))
	}
}

// The other modules have what they need without the workspace.
func TestModulesAreComplete(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"/idem/otelidem", "/idem/idemhttp/coverage"} {
		c, v := newConsumer(t)
		c.write("main.go", "package main\n\nimport _ \""+library+pkg+"\"\n\nfunc main() {}\n")
		c.goes("get", library+pkg+"@"+v)
		c.goes("mod", "tidy")
		c.goes("list", "-deps", ".")
	}
}
