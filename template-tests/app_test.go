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

// The app alone, as make synth runs it. Each run starts CDK anew, 7 s of CPU: the
// short version has the run that fails; one that ends well is part of cloud's
// TestDeploy.
func TestApp(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "app")
	said, err := exec.Command("go", "build", "-o", binary, "../infra/app").CombinedOutput()
	require.NoError(t, err, string(said))
	run := func(args ...string) (string, error) {
		out, err := exec.Command(binary, args...).CombinedOutput()
		return string(out), err
	}

	if os.Getenv("IDEM_LONG") == "1" {
		folder := filepath.Join(t.TempDir(), "out")
		text, err := run("-o", folder, "-c", "provider=https://provider.example")
		require.NoError(t, err, text)
		require.Contains(t, text, "out: synthesized in ")
		require.NotContains(t, text, "warning at")
		for _, file := range []string{"payments-api.template.json", "orders-worker.template.json"} {
			require.FileExists(t, filepath.Join(folder, file))
		}
	}

	// What only the constructs find is an error too: here there is no go command to build with.
	node, err := exec.LookPath("node")
	require.NoError(t, err)
	path := t.TempDir()
	require.NoError(t, os.Symlink(node, filepath.Join(path, "node")))
	t.Setenv("PATH", path)
	text, err := run("-o", filepath.Join(t.TempDir(), "out"))
	require.Error(t, err)
	require.Contains(t, text, "error at payments-api/Payments: go build of ")
	require.Contains(t, text, "must not be deployed")
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
