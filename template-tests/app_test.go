package templatetests

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The app alone, as make synth runs it. Each run starts CDK again, 7 s of CPU: the
// short version has the run that fails; one that ends well is part of cloud's
// TestDeploy. What is on stderr is ours: CDK's runtime says nothing about itself.
func TestApp(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "app")
	said, err := exec.Command("go", "build", "-o", binary, "../infra/app").CombinedOutput()
	require.NoError(t, err, string(said))
	for _, name := range []string{"JSII_DEPRECATED", "JSII_SILENCE_WARNING_END_OF_LIFE_NODE_VERSION"} {
		t.Setenv(name, "") // so that the test's end puts it back
		require.NoError(t, os.Unsetenv(name))
	}
	run := func(dir string, args ...string) (stdout, stderr string, err error) {
		cmd := exec.Command(binary, args...)
		var failed strings.Builder
		cmd.Dir, cmd.Stderr = dir, &failed
		out, err := cmd.Output()
		return string(out), failed.String(), err
	}

	if os.Getenv("IDEM_LONG") == "1" {
		folder := filepath.Join(t.TempDir(), "out")
		stdout, stderr, err := run(".", "-o", folder, "-c", "provider=https://provider.example")
		require.NoError(t, err, stderr)
		require.Empty(t, stderr)
		require.Contains(t, stdout, "out: synthesized in ")
		for _, file := range []string{"payments-api.template.json", "orders-worker.template.json"} {
			require.FileExists(t, filepath.Join(folder, file))
		}
	}

	// A function that does not compile ends the program with what the compiler says.
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod": "module example.com/shop\n\ngo 1.26\n\nrequire github.com/idem-go/idempotency v0.0.0\n\n" +
			"replace github.com/idem-go/idempotency => ./library\n",
		"library/go.mod": "module github.com/idem-go/idempotency\n\ngo 1.26\n",
		"library/lambda/functions/payments/main.go": "package main\n\nfunc main() { nothing() }\n",
	} {
		file := filepath.Join(dir, name)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o700))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
	}
	_, stderr, err := run(dir, "-o", "out")
	require.Error(t, err)
	require.Regexp(t, "^panic: infra: payments-api/Payments: go build of "+paymentsPackage+" failed", stderr)
	require.Contains(t, stderr, "main.go:3:15: undefined: nothing")
	staged, err := filepath.Glob(filepath.Join(dir, "out", "asset.*"))
	require.NoError(t, err)
	require.Empty(t, staged, "what stands in for the function would be deployed")
}

// The command line comes in one version, with its digest, from any registry.
func TestCommandLineIsPinned(t *testing.T) {
	var wanted struct {
		DevDependencies map[string]string `json:"devDependencies"`
	}
	var locked struct {
		Packages map[string]struct{ Version, Integrity, Resolved string }
	}
	for file, v := range map[string]any{"../package.json": &wanted, "../package-lock.json": &locked} {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.NoError(t, json.Unmarshal(text, v), file)
	}
	version := wanted.DevDependencies["aws-cdk"]
	require.Regexp(t, `^\d+\.\d+\.\d+$`, version)
	require.Equal(t, version, locked.Packages["node_modules/aws-cdk"].Version)
	for name, p := range locked.Packages {
		require.Empty(t, p.Resolved, name)
		if name != "" {
			require.NotEmpty(t, p.Integrity, name)
		}
	}
	page, err := os.ReadFile("../infra/README.md")
	require.NoError(t, err)
	mod, err := os.ReadFile("../infra/go.mod")
	require.NoError(t, err)
	require.Contains(t, string(page), "its command line "+version+" ")
	_, cdk, _ := strings.Cut(string(mod), "github.com/aws/aws-cdk-go/awscdk/v2 v")
	require.Contains(t, string(page), "CDK "+strings.Fields(cdk)[0]+",")
}
