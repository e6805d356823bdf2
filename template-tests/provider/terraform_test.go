package provider

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestTerraform runs Terraform on a copy of infra/terraform, with a mistake in handler.tf or without.
func TestTerraform(t *testing.T) {
	terraform, err := exec.LookPath("terraform")
	if err != nil {
		t.Skip("terraform 1.7 or later is not on PATH: https://developer.hashicorp.com/terraform/install")
	}
	self, err := os.Executable()
	require.NoError(t, err)
	providers := t.TempDir()
	require.NoError(t, os.Symlink(self, filepath.Join(providers, executable)))
	settings := filepath.Join(providers, "terraform.tfrc")
	require.NoError(t, os.WriteFile(settings, fmt.Appendf(nil,
		"provider_installation {\n dev_overrides {\n  \"hashicorp/aws\" = %q\n }\n}\n", providers), 0o600))
	t.Setenv("TF_CLI_CONFIG_FILE", settings)
	t.Setenv("CHECKPOINT_DISABLE", "1")
	for name, tc := range map[string]struct{ command, mistake, instead, says string }{
		"format":       {"fmt -check -diff", "", "", ""},
		"no format":    {"fmt -check -diff", "skip_destroy      =", "skip_destroy =", "handler.tf"},
		"fine":         {"validate", "", "", "The configuration is valid"},
		"no attribute": {"validate", "memory_size ", "memory ", `An argument named "memory" is not expected here`},
		"another type": {"validate", "timeout          = 10", `timeout = "long"`, `"timeout": a number is required`},
		"missing":      {"validate", "role = aws_iam_role.handler_role.name", "", `The argument "role" is required`},
		"no export":    {"validate", "handler_logs.arn", "handler_logs.urn", "has no argument, nested block, or exported"},
		"plan":         {"test", "", "", "2 passed, 0 failed"},
	} {
		t.Run(name, func(t *testing.T) {
			folder := t.TempDir()
			for _, files := range []string{"../../infra/terraform", "testdata"} {
				require.NoError(t, os.CopyFS(folder, os.DirFS(files)))
			}
			changed := filepath.Join(folder, "handler.tf")
			text, err := os.ReadFile(changed)
			require.NoError(t, err)
			require.Contains(t, string(text), tc.mistake)
			require.NoError(t, os.WriteFile(changed, []byte(strings.Replace(string(text), tc.mistake, tc.instead, 1)), 0o600))
			cmd := exec.CommandContext(t.Context(), terraform, strings.Fields(tc.command+" -no-color")...)
			cmd.Dir = folder
			said, err := cmd.CombinedOutput()
			require.Equal(t, tc.mistake == "", err == nil, "%s", said)
			require.Contains(t, string(said), tc.says)
		})
	}
}
