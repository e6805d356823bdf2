package modules

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	cachefolder "github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/local/proof/internal/consumer"
)

// Limits of what a function that imports the wrapper and the DynamoDB store brings along, the AWS SDK included.
const (
	maxSums = 60
	maxZips = 6 << 20
)

// allowed is what the library may require: the AWS SDK, and what a handler or its tests need.
var allowed = []string{
	"github.com/aws/aws-lambda-go", "github.com/aws/aws-sdk-go-v2", "github.com/aws/smithy-go",
	"github.com/dunglas/httpsfv", "github.com/go-json-experiment/json", "github.com/sony/gobreaker/v2",
	"golang.org/x/sync",
	// Tests alone.
	"github.com/santhosh-tekuri/jsonschema/v6", "github.com/stretchr/testify",
	"github.com/davecgh/go-spew", "github.com/pmezard/go-difflib", "gopkg.in/yaml.v3", // testify's
	"golang.org/x/text", // jsonschema's
}

// older are versions that a service may have already, and that this repository's other modules raise.
var older = map[string]string{
	"github.com/aws/aws-cdk-go/awscdk/v2": "v2.195.0",
	"github.com/getkin/kin-openapi":       "v0.131.0",
	"github.com/stretchr/testify":         "v1.8.4",
	"go.opentelemetry.io/otel":            "v1.35.0",
	"go.opentelemetry.io/otel/metric":     "v1.35.0",
	"go.opentelemetry.io/otel/trace":      "v1.35.0",
}

func TestTheLibraryRequiresLittle(t *testing.T) {
	for _, r := range consumer.Requirements(t, consumer.Tagged(t)[0].Dir) {
		require.True(t, slices.ContainsFunc(allowed, func(path string) bool {
			return r.Path == path || strings.HasPrefix(r.Path, path+"/")
		}), "%s: what a handler does not need belongs into another module", r.Path)
	}
}

// versions are those of all modules, as the module graph selects them.
func versions(c *consumer.Module) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(c.Go("list", "-m", "all")) {
		if path, version, ok := strings.Cut(strings.TrimSpace(line), " "); ok { // not the module itself
			found[path] = version
		}
	}
	return found
}

// zips is how much was downloaded.
func zips(c *consumer.Module) (n int64) {
	downloads := filepath.Join(c.Modules, "cache", "download")
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

// A function that imports the wrapper and the store: little is downloaded, and little has to be reviewed.
func TestAFunctionBringsLittleAlong(t *testing.T) {
	t.Parallel()
	program, err := os.ReadFile("../../measure/size/wrapped/main.go")
	require.NoError(t, err)
	c, v := consumer.New(t)
	c.Write("main.go", string(program))
	c.Go("mod", "edit", "-require="+consumer.Library+"@"+v)
	c.Go("mod", "tidy")
	sums, err := os.ReadFile(filepath.Join(c.Dir, "go.sum"))
	require.NoError(t, err)
	lines := bytes.Count(sums, []byte("\n"))
	require.LessOrEqual(t, lines, maxSums, "lines of go.sum:\n%s", sums)
	reviewed := zips(c)
	c.Modules = t.TempDir()
	c.Go("build", "-o", filepath.Join(c.Dir, "bootstrap"), ".")
	require.LessOrEqual(t, zips(c), int64(maxZips), "bytes that go build downloads")
	t.Logf("%d lines of go.sum; go build downloads %d bytes, go mod tidy %d", lines, zips(c), reviewed)
}

// A copy of each function has all that it imports in another module.
func TestFunctionsCanBeCopied(t *testing.T) {
	t.Parallel()
	c, v := consumer.New(t)
	c.Go("mod", "edit", "-require="+consumer.Library+"@"+v)
	functions, err := filepath.Glob("../../../lambda/functions/*/*.go")
	require.NoError(t, err)
	for _, path := range functions {
		if strings.HasSuffix(path, "_test.go") {
			continue
		}
		source, err := os.ReadFile(path)
		require.NoError(t, err)
		name := filepath.Join(filepath.Base(filepath.Dir(path)), filepath.Base(path))
		c.Write(name, string(source))
	}
	c.Go("mod", "tidy")
	c.Go("list", "-deps", "./...") // refuses what is internal
}

// The message that lambda/README.md explains, and what it says to do.
func TestMissingSumsAreTidiedUp(t *testing.T) {
	t.Parallel()
	c, v := consumer.New(t)
	c.Go("get", consumer.Library+"@"+v)
	c.Write("main.go", "package main\n\nimport _ \""+consumer.Library+"/idem/dynamostore\"\n\nfunc main() {}\n")
	_, said, err := c.Try("list", "-mod=readonly", "-deps", ".")
	require.Error(t, err)
	require.Contains(t, said, "missing go.sum entry for module")
	c.Go("mod", "tidy")
	c.Go("list", "-mod=readonly", "-deps", ".")
}

// A module that requires the library keeps the versions that it has of what the library's
// handlers do not need. Each stands alone: one of them may require a newer version of another.
func TestTheLibraryRaisesNothing(t *testing.T) {
	t.Parallel()
	for path, old := range older {
		c, v := consumer.New(t)
		c.Go("mod", "edit", "-require="+path+"@"+old)
		before := versions(c)
		c.Go("mod", "edit", "-require="+consumer.Library+"@"+v)
		after := versions(c)
		require.Equal(t, v, after[consumer.Library])
		require.Equal(t, old, before[path])
		for path, version := range before {
			require.Equal(t, version, after[path], path)
		}
		for path, version := range after {
			known := before[path] != "" || path == consumer.Library
			require.True(t, known || slices.ContainsFunc(allowed, func(p string) bool {
				return path == p || strings.HasPrefix(path, p+"/")
			}), "%s %s has come along", path, version)
			require.False(t, consumer.Own(path) && path != consumer.Library, "the library requires %s", path)
		}
	}
}

// The tools are installed from what a release tags, without the workspace.
func TestToolsAreInstalled(t *testing.T) {
	t.Parallel()
	c, v := consumer.New(t)
	for _, tool := range []string{"/idem/cmd/idemctl", "/local/cmd/with-dynamodb"} {
		c.Go("install", consumer.Library+tool+"@"+v)
		require.FileExists(t, filepath.Join(c.Dir, "bin", filepath.Base(tool)))
	}
}

// The local command is a tool of another module, however that module's go commands are set. Each version of it has a
// folder of its own.
func TestLocalIsATool(t *testing.T) {
	t.Parallel()
	c, v := consumer.New(t)
	cache := t.TempDir()
	c.Env = []string{cachefolder.Env + "=" + cache, "GOFLAGS=" + consumer.Flags}
	c.Go("get", "-tool", consumer.Library+"/local@"+v)
	c.Write("go.work", "go 1.26.0\n\nuse .\n")
	c.Go("mod", "vendor")
	for _, set := range []string{"GOFLAGS=" + consumer.Flags, "GOFLAGS=" + consumer.Flags + " -mod=mod",
		"GOFLAGS=" + consumer.Flags + " -mod=vendor", "GOWORK=" + filepath.Join(c.Dir, "go.work")} {
		c.Env = append(c.Env, set)
		_, said, err := c.Try("tool", "local", "up", "-help")
		require.NoError(t, err, "%s: %s", set, said)
		require.Contains(t, said, "local up [flags] -function PKG", set)
	}
	built, err := filepath.Glob(filepath.Join(cache, "bin", "*", "stack"))
	require.NoError(t, err)
	require.Equal(t, []string{filepath.Join(cache, "bin", v, "stack")}, built)
}

// A folder may replace the module, such as a checkout of the repository.
func TestLocalIsAToolFromAFolder(t *testing.T) {
	t.Parallel()
	c, v := consumer.New(t)
	checkout, err := filepath.Abs("../../..")
	require.NoError(t, err)
	c.Env = []string{cachefolder.Env + "=" + t.TempDir(), "GOWORK=", "GOFLAGS=" + consumer.Flags}
	c.Go("mod", "edit", "-replace="+consumer.Library+"/local="+filepath.Join(checkout, "local"))
	c.Go("get", "-tool", consumer.Library+"/local@"+v)
	_, said, err := c.Try("tool", "local", "up", "-help")
	require.NoError(t, err, said)
	require.Contains(t, said, "local up [flags] -function PKG")
}

// The other modules have what they need without the workspace.
func TestModulesAreComplete(t *testing.T) {
	t.Parallel()
	for _, pkg := range []string{"/idem/otelidem", "/idem/idemhttp/coverage"} {
		c, v := consumer.New(t)
		c.Write("main.go", "package main\n\nimport _ \""+consumer.Library+pkg+"\"\n\nfunc main() {}\n")
		c.Go("get", consumer.Library+pkg+"@"+v)
		c.Go("mod", "tidy")
		c.Go("list", "-deps", ".")
	}
}
