package templatetests

import (
	"debug/elf"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/infra"
)

const paymentsPackage = "github.com/idem-go/idempotency/lambda/functions/payments"

// given is a function's code for tests that are not about it: nothing is built.
func given(t *testing.T) awslambda.Code {
	folder := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(folder, "bootstrap"), []byte("a binary"), 0o755))
	return awslambda.Code_FromAsset(&folder, nil)
}

func TestFunctionRefuses(t *testing.T) {
	build := func(props infra.FunctionProps) func(awscdk.Stack) {
		return func(s awscdk.Stack) { infra.NewFunction(s, "Handler", &props) }
	}
	setting := func(name string) func(awscdk.Stack) {
		return build(infra.FunctionProps{Code: given(t), Environment: &map[string]*string{name: jsii.String("3")}})
	}
	objects(t, nil, map[string]objection{
		"two codes": refuses(build(infra.FunctionProps{Package: paymentsPackage, Code: given(t)}), "both Package and Code"),
		"a part of a second": refuses(build(infra.FunctionProps{Code: given(t), Timeout: 1500 * time.Millisecond}),
			"Timeout is 1.5s", "whole seconds"),
		"a long time-out": refuses(build(infra.FunctionProps{Code: given(t), Timeout: time.Hour}),
			"Timeout is 1h0m0s", "15m0s"),
		"little memory": refuses(build(infra.FunctionProps{Code: given(t), Memory: 64}), "Memory is 64", "128"),
		"minus concurrency": refuses(build(infra.FunctionProps{Code: given(t), ReservedConcurrency: -1}),
			"ReservedConcurrency is -1", "zero to reserve none"),
		"its time-out's name": refuses(setting(schema.EnvFunctionTimeout), schema.EnvFunctionTimeout, "follows from Timeout"),
		"a local endpoint":    refuses(setting(schema.EnvEndpoint), schema.EnvEndpoint, "leave it out"),
	})
}

// Lambda kills a process that needs more than its memory, and sets no limit for Go's collector.
func TestFunctionsKnowTheirMemory(t *testing.T) {
	got, _ := synth(t, func(s awscdk.Stack) {
		infra.NewFunction(s, "Usual", &infra.FunctionProps{Code: given(t)})
		infra.NewFunction(s, "Large", &infra.FunctionProps{Code: given(t), Memory: 1024})
		infra.NewFunction(s, "Own", &infra.FunctionProps{Code: given(t),
			Environment: &map[string]*string{"GOMEMLIMIT": jsii.String("off")}})
	})
	for id, want := range map[string]string{"Usual": "217MiB", "Large": "870MiB", "Own": "off"} {
		require.Equal(t, want, got.property("AWS::Lambda::Function", id, "Environment", "Variables", "GOMEMLIMIT"), id)
	}
}

// A function without its code is not synthesized, and what the go command says is read.
func TestFunctionWithoutCodePanics(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	for pkg, says := range map[string][]string{
		"":                  {"there is no code", "Package", "Code"},
		"./testdata/broken": {"go build of ./testdata/broken failed", "undefined: nothing"},
		"./nowhere":         {"go build of ./nowhere failed", "nowhere", "Dir"},
		"github.com/idem-go/idempotency/idem/schema": {"is not a main package"},
	} {
		stack := awscdk.NewStack(nil, jsii.String("Test"), nil)
		err := panicked(t, func() { infra.NewFunction(stack, "Handler", &infra.FunctionProps{Package: pkg}) })
		for _, text := range append(says, "Test/Handler: ") {
			require.ErrorContains(t, err, text)
		}
	}
	left, err := filepath.Glob(filepath.Join(folder, "idem-function-*"))
	require.NoError(t, err)
	require.Empty(t, left, "folders are left behind")
}

func panicked(t *testing.T, f func()) (err error) {
	t.Helper()
	defer func() { err, _ = recover().(error) }()
	f()
	return nil
}

// built synthesizes the payments function into a folder of its own and returns the hash of its code and the binary.
func built(t *testing.T, dir string) (hash, binary string) {
	out := t.TempDir()
	app := awscdk.NewApp(&awscdk.AppProps{Outdir: &out, AnalyticsReporting: jsii.Bool(false)})
	stack := awscdk.NewStack(app, jsii.String("Test"), nil)
	infra.NewFunction(stack, "Handler", &infra.FunctionProps{Package: paymentsPackage, Dir: dir})
	app.Synth(nil)
	require.Empty(t, infra.Problems(app))
	found, err := filepath.Glob(filepath.Join(out, "asset.*", "bootstrap"))
	require.NoError(t, err)
	require.Len(t, found, 1)
	return filepath.Base(filepath.Dir(found[0])), found[0]
}

func TestFunctionIsBuiltTheSameTwice(t *testing.T) {
	folder := t.TempDir()
	t.Setenv("TMPDIR", folder)
	first, binary := built(t, "")
	t.Setenv("GOFLAGS", "-ldflags=-X=main.x=y")
	t.Setenv("GOARM64", "v8.2")
	second, _ := built(t, "..")
	require.Equal(t, first, second)
	left, err := filepath.Glob(filepath.Join(folder, "idem-function-*"))
	require.NoError(t, err)
	require.Empty(t, left, "folders are left behind")

	info, err := os.Stat(binary)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o755), info.Mode())
	file, err := elf.Open(binary)
	require.NoError(t, err)
	defer file.Close()
	require.Equal(t, elf.EM_AARCH64, file.Machine)
	require.Equal(t, elf.ET_EXEC, file.Type)
	libraries, err := file.ImportedLibraries()
	require.NoError(t, err)
	require.Empty(t, libraries, "the binary is not static")
}
