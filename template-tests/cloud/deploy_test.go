package cloud_test

import (
	"archive/zip"
	"bytes"
	"context"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/template-tests/cloud"
	"github.com/idem-go/idempotency/template-tests/npm"
)

// cdk is the pinned command line in front of an account.
type cdk struct {
	account    *cloud.Server
	cli, home  string
	assemblies string // what the app synthesized last
}

func bootstrapped(t *testing.T) *cdk {
	t.Helper()
	// With an empty module cache the app and its build of the functions, which is outside of the
	// workspace, would call more than the account.
	for dir, env := range map[string][]string{"../../infra": nil, "../../lambda": {"GOWORK=off"}} {
		list := exec.CommandContext(t.Context(), "go", "list", "-deps", "./...")
		list.Dir, list.Env = dir, append(os.Environ(), env...)
		out, err := list.CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	c := &cdk{cli: filepath.Join(npm.Modules(t, "../.."), "aws-cdk", "bin", "cdk"), home: t.TempDir(),
		assemblies: t.TempDir()}
	c.account = cloud.New()
	t.Cleanup(c.account.Close)
	return c
}

// run returns what the command line says, and its error. It may call the account alone.
func (c *cdk) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if end, ok := t.Deadline(); ok { // with empty caches it compiles CDK's bindings first, for minutes on a busy machine
		ctx, cancel = context.WithDeadline(ctx, end.Add(-time.Minute))
		defer cancel()
	}
	cmd := exec.CommandContext(ctx, "node", append([]string{c.cli, "--no-notices", "--no-color"}, args...)...)
	cmd.Dir = "../../infra" // where cdk.json is
	cmd.Env = append(os.Environ(), c.account.Env()...)
	cmd.Env = append(cmd.Env, "CDK_HOME="+c.home, "CI=true", "CDK_DISABLE_CLI_TELEMETRY=true")
	cmd.WaitDelay = 5 * time.Second
	started := time.Now()
	said, err := cmd.CombinedOutput()
	t.Logf("cdk %s took %.1f s", strings.Join(args, " "), time.Since(started).Seconds())
	require.Empty(t, c.account.State().Refused, "%s", said)
	return string(said), err
}

func (c *cdk) must(t *testing.T, args ...string) string {
	t.Helper()
	said, err := c.run(t, args...)
	require.NoError(t, err, "%s", said)
	return said
}

// As make deploy does it, but for the question before permissions are granted.
func TestDeploy(t *testing.T) {
	if testing.Short() {
		t.Skip("the app is synthesized")
	}
	sources(t)
	c := bootstrapped(t)
	c.must(t, "deploy", "--all", "--require-approval", "never", "--output", c.assemblies)
	account := c.account.State()
	require.Subset(t, account.Calls, []string{
		"sts:AssumeRole", "ssm:GetParameter", "s3:PutObject",
		"cloudformation:CreateChangeSet", "cloudformation:DescribeChangeSet", "cloudformation:ExecuteChangeSet",
		"cloudformation:DescribeStackEvents",
	})
	names := []string{"payments-api", "orders-worker"} // the second imports what the first exports
	require.Equal(t, names, account.Deployed)
	for _, name := range names {
		want, err := os.ReadFile(filepath.Join(c.assemblies, name+".template.json"))
		require.NoError(t, err)
		require.JSONEq(t, string(want), account.Templates[name])
		code := regexp.MustCompile(`"S3Key": "([^"]+)"`).FindAllStringSubmatch(string(want), -1)
		require.NotEmpty(t, code)
		for _, m := range code {
			requireProgram(t, account.Objects[m[1]])
		}
	}

	// The app runs again: what it makes must be the same. In the short version this is
	// for TestFunctionIsBuiltTheSameTwice, and what was deployed is deployed again.
	again := c.assemblies
	if os.Getenv("IDEM_LONG") == "1" {
		again = t.TempDir()
		said := c.must(t, "diff", "--all", "--fail", "--output", again)
		require.Contains(t, said, "Number of stacks with differences: 0")
	}

	c.must(t, "deploy", "--all", "--require-approval", "never", "--app", again)
	after := c.account.State()
	require.Equal(t, names, after.Deployed)
	// Everything has the same bytes, built and synthesized again too: an object's name is its digest.
	require.ElementsMatch(t, slices.Collect(maps.Keys(account.Objects)), slices.Collect(maps.Keys(after.Objects)))

	t.Run("a difference is seen", func(t *testing.T) { c.difference(t) })
}

// sources looks at what other processes build here: a kept result of this test is
// for the files that it has looked at.
func sources(t *testing.T) {
	t.Helper()
	for _, folder := range []string{"idem", "lambda", "infra"} {
		require.NoError(t, filepath.WalkDir(filepath.Join("../..", folder),
			func(path string, _ fs.DirEntry, err error) error {
				if err == nil && filepath.Ext(path) == ".go" {
					_, err = os.Stat(path)
				}
				return err
			}))
	}
}

// difference changes one time-out: diff tells, and deploy changes that stack alone.
func (c *cdk) difference(t *testing.T) {
	file := filepath.Join(c.assemblies, "payments-api.template.json")
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	changed := bytes.Replace(text, []byte(`"Timeout": 20`), []byte(`"Timeout": 21`), 1)
	require.NotEqual(t, text, changed)
	require.NoError(t, os.WriteFile(file, changed, 0o644))
	defer func() { require.NoError(t, os.WriteFile(file, text, 0o644)) }()

	said, err := c.run(t, "diff", "--all", "--fail", "--app", c.assemblies)
	require.Error(t, err)
	require.Contains(t, said, "Number of stacks with differences: 1")
	require.Contains(t, said, "Timeout")
}

// requireProgram requires an archive with the program that Lambda starts.
func requireProgram(t *testing.T, code []byte) {
	archive, err := zip.NewReader(bytes.NewReader(code), int64(len(code)))
	require.NoError(t, err)
	require.Len(t, archive.File, 1)
	require.Equal(t, "bootstrap", archive.File[0].Name)
	require.NotZero(t, archive.File[0].Mode()&0o111)
}
