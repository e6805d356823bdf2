package templatetests

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

type program struct {
	file string
	env  []string
}

// programs are the functions of the default stacks with their binaries and what
// their environment says, references by name.
func programs(t *testing.T) map[string]program {
	t.Helper()
	s, all := withDefaults(t), map[string]program{}
	for _, tt := range []template{s.payments, s.orders} {
		for id, r := range tt.resources("AWS::Lambda::Function") {
			key, _ := at(r, "Properties", "Code", "S3Key").(string)
			p := all[name(id)]
			p.file = filepath.Join(s.folder, "asset."+strings.TrimSuffix(key, ".zip"),
				fmt.Sprint(at(r, "Properties", "Handler")))
			variables, _ := at(r, "Properties", "Environment", "Variables").(map[string]any)
			for name, value := range variables {
				text := strings.Join(s.named(value), "")
				for kind, address := range map[string]string{
					"AWS::SQS::Queue": "https://sqs.eu-west-1.amazonaws.com/111111111111/",
					"AWS::SNS::Topic": "arn:aws:sns:eu-west-1:111111111111:",
				} {
					for _, id := range namesOf(tt, kind) {
						text = regexp.MustCompile(`\b`+id+`\b`).ReplaceAllString(text, address+id)
					}
				}
				p.env = append(p.env, name+"="+text)
			}
			all[name(id)] = p
		}
	}
	require.Len(t, all, 7)
	return all
}

// TestAssetsRun starts the binaries, under qemu where the machine is another one,
// with the environment that their stack sets: each asks Lambda for an invocation.
func TestAssetsRun(t *testing.T) {
	command := []string{}
	if runtime.GOOS != "linux" {
		t.Skip("the binaries are for Linux")
	}
	if runtime.GOARCH != "arm64" {
		qemu, err := exec.LookPath("qemu-aarch64-static")
		if err != nil {
			t.Skip("qemu-aarch64-static is not on PATH: Debian has it in qemu-user-static")
		}
		command = append(command, qemu)
	}
	for name, p := range programs(t) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			var asked atomic.Bool
			api := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/2018-06-01/runtime/invocation/next" {
					asked.Store(true)
					cancel() // which ends the program
				}
				<-ctx.Done()
			}))
			defer api.Close()
			args := append(command[:len(command):len(command)], p.file)
			cmd := exec.CommandContext(ctx, args[0], args[1:]...)
			cmd.Env = append([]string{
				"AWS_LAMBDA_RUNTIME_API=" + strings.TrimPrefix(api.URL, "http://"), "AWS_REGION=eu-west-1",
				"AWS_LAMBDA_FUNCTION_NAME=" + name, "AWS_ACCESS_KEY_ID=AKIALOCAL", "AWS_SECRET_ACCESS_KEY=secret",
				"AWS_EC2_METADATA_DISABLED=true",
			}, p.env...)
			said, err := cmd.CombinedOutput()
			require.True(t, asked.Load(), "%v: %s", err, said)
		})
	}
}
