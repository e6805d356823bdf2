package cloud_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
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
	c.account = cloud.New("111111111111", "eu-west-1")
	t.Cleanup(c.account.Close)
	return c
}

// run returns what the command line says, and its error. It may call the account
// alone.
func (c *cdk) run(t *testing.T, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "node", append([]string{c.cli, "--no-notices", "--no-color"}, args...)...)
	cmd.Dir = "../../infra" // where cdk.json is
	cmd.Env = append(os.Environ(), c.account.Env()...)
	cmd.Env = append(cmd.Env, "CDK_HOME="+c.home, "CI=true", "CDK_DISABLE_CLI_TELEMETRY=true")
	cmd.WaitDelay = 5 * time.Second
	started := time.Now()
	said, err := cmd.CombinedOutput()
	t.Logf("cdk %s took %.1f s", strings.Join(args, " "), time.Since(started).Seconds())
	require.Empty(t, c.account.Refused(), "%s", said)
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
	require.Subset(t, c.account.Calls(), []string{
		"sts:AssumeRole", "ssm:GetParameter", "s3:PutObject",
		"cloudformation:CreateChangeSet", "cloudformation:DescribeChangeSet", "cloudformation:ExecuteChangeSet",
		"cloudformation:DescribeStackEvents",
	})
	names := []string{"payments-api", "orders-worker"}
	for _, name := range names {
		got := c.account.Stack(name)
		require.NotNil(t, got, name)
		require.Equal(t, "CREATE_COMPLETE", got.Status)
		require.Equal(t, 1, got.Executed)
		want, err := os.ReadFile(filepath.Join(c.assemblies, name+".template.json"))
		require.NoError(t, err)
		require.JSONEq(t, string(want), got.Template)
	}
	require.Equal(t, "https://payments-api-"+logical(t, c, "payments-api", "AWS::ApiGatewayV2::Api")+
		".execute-api.eu-west-1.amazonaws.com",
		c.account.Stack("payments-api").Outputs["URL"])
	before := c.account.Objects()

	// The app runs again: what it makes must be the same. In the short version this is
	// for TestFunctionIsBuiltTheSameTwice, and what was deployed is deployed again.
	again := c.assemblies
	if os.Getenv("IDEM_LONG") == "1" {
		again = t.TempDir()
		said := c.must(t, "diff", "--all", "--fail", "--output", again)
		require.Contains(t, said, "Number of stacks with differences: 0")
	}

	c.account.Calls()
	c.must(t, "deploy", "--all", "--require-approval", "never", "--app", again)
	require.NotContains(t, c.account.Calls(), "cloudformation:ExecuteChangeSet")
	for _, name := range names {
		require.Equal(t, 1, c.account.Stack(name).Executed, name)
	}
	// Everything has the same bytes, built and synthesized anew too: an object's name
	// is its digest.
	require.Equal(t, keys(before), keys(c.account.Objects()))

	t.Run("a difference is seen", func(t *testing.T) { c.difference(t) })
	t.Run("the order counts", func(t *testing.T) { outOfOrder(t, c) })
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

// outOfOrder deploys the stack that imports into an account where nobody exports.
func outOfOrder(t *testing.T, deployed *cdk) {
	c := bootstrapped(t)
	said, err := c.run(t, "deploy", "orders-worker", "--exclusively", "--require-approval", "never", "--app",
		deployed.assemblies)
	require.Error(t, err)
	require.Contains(t, said, "no export named payments-api:")
	require.NotContains(t, c.account.Calls(), "cloudformation:ExecuteChangeSet")
}

func keys(objects map[string][]byte) map[string]int {
	all := map[string]int{}
	for key, body := range objects {
		all[key] = len(body)
	}
	return all
}

// logical id of the only resource of a kind in a deployed template.
func logical(t *testing.T, c *cdk, stack, kind string) string {
	t.Helper()
	var in struct {
		Resources map[string]struct{ Type string }
	}
	require.NoError(t, json.Unmarshal([]byte(c.account.Stack(stack).Template), &in))
	var found []string
	for id, r := range in.Resources {
		if r.Type == kind {
			found = append(found, id)
		}
	}
	require.Len(t, found, 1)
	return found[0]
}
