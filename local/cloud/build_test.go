package cloud

import (
	"archive/zip"
	"debug/elf"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/local/cmd/gorun"
)

// built is a folder with the program shop for an architecture, as a deployment has it.
func built(t *testing.T, arch string) string {
	t.Helper()
	dir := t.TempDir()
	_, err := gorun.Go(t.Context(), []string{"CGO_ENABLED=0", "GOOS=linux", "GOARCH=" + arch}, "build",
		"-o", filepath.Join(dir, bootstrap), "./testdata/shop")
	require.NoError(t, err)
	return dir
}

// zipped is an archive with the files of a folder.
func zipped(t *testing.T, dir string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "code.zip")
	f, err := os.Create(path)
	require.NoError(t, err)
	z := zip.NewWriter(f)
	require.NoError(t, z.AddFS(os.DirFS(dir)))
	require.NoError(t, z.Close())
	require.NoError(t, f.Close())
	return path
}

// asset is a template of one function with a URL, whose code is at a path.
func asset(t *testing.T, path string) string {
	t.Helper()
	text := `
Resources:
  Echo:
    Type: AWS::Lambda::Function
    Metadata: {"aws:asset:path": "` + filepath.Base(path) + `"}
    Properties: {Runtime: provided.al2023, Timeout: 60, Code: {S3Bucket: b, S3Key: k}}
  Url: {Type: AWS::Lambda::Url, Properties: {TargetFunctionArn: !GetAtt Echo.Arn, AuthType: NONE}}
`
	template := filepath.Join(filepath.Dir(path), "App.template.yaml")
	require.NoError(t, os.WriteFile(template, []byte(text), 0o600))
	return template
}

// other is the architecture that this machine does not have.
var other = map[string]string{"amd64": "arm64", "arm64": "amd64"}[runtime.GOARCH]

func echoes(t *testing.T, template string) {
	t.Helper()
	out := &childtest.Output{}
	r, err := Start(t.Context(), template, &Options{RunDir: t.TempDir(), Output: out})
	require.NoError(t, err)
	defer r.Close()
	require.Contains(t, post(t, r.Endpoints.APIs["App-Url"]+"/x", "y"), `"rawPath":"/x"`, out)
}

// A package may have any name, and is built again while it runs.
func TestAPackageNamedLock(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		require.NoError(t, os.MkdirAll(filepath.Join(dir, "lock"), 0o700))
		require.NoError(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	write("go.mod", "module example.com/x\n\ngo 1.26\n")
	t.Setenv("GOWORK", "off")
	r := &Running{options: Options{RunDir: dir, CacheDir: t.TempDir()}}
	for _, text := range []string{"time.Sleep(time.Hour)", "time.Sleep(time.Minute)"} {
		write("lock/main.go", "package main\nimport \"time\"\nfunc main() { "+text+" }\n")
		require.NoError(t, r.newFolder())
		require.NoError(t, r.compile(t.Context(), module{dir: dir}, false, "", "./lock"))
		require.NoError(t, exec.CommandContext(t.Context(), filepath.Join(r.folder(), "lock")).Start())
	}
}

// A function runs from the folder or the archive that it is deployed from.
func TestAssets(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("binaries of Lambda run on Linux alone")
	}
	dir := built(t, runtime.GOARCH)
	echoes(t, asset(t, dir))
	archive := zipped(t, dir)
	echoes(t, asset(t, archive))
}

// A binary for arm64 runs with an emulator.
func TestAssetForAnotherMachine(t *testing.T) {
	_, err := exec.LookPath("qemu-aarch64")
	if err != nil {
		_, err = exec.LookPath("qemu-aarch64-static")
	}
	if runtime.GOOS != "linux" || other != "arm64" || err != nil {
		t.Skip("there is no qemu-aarch64 here: apt-get install qemu-user-static")
	}
	echoes(t, asset(t, built(t, other)))
}

// What is wrong with an asset is said before a server starts or a package is compiled.
func TestAssetsThatAreRefused(t *testing.T) {
	t.Setenv("PATH", filepath.Dir(goCommand(t))) // without emulators
	empty, broken, foreign := t.TempDir(), filepath.Join(t.TempDir(), "code.zip"), t.TempDir()
	require.NoError(t, os.WriteFile(broken, []byte("no archive"), 0o600))
	machine := map[string]elf.Machine{"amd64": elf.EM_X86_64, "arm64": elf.EM_AARCH64}[other]
	binary, err := os.ReadFile(filepath.Join(built(t, runtime.GOARCH), bootstrap))
	require.NoError(t, err)
	binary[18], binary[19] = byte(machine), byte(machine>>8) // e_machine
	require.NoError(t, os.WriteFile(filepath.Join(foreign, bootstrap), binary, 0o700))
	for path, want := range map[string]string{
		filepath.Join(empty, "asset.none"): "App/Echo: its asset is missing: stat ",
		empty:                              "App/Echo: its asset " + empty + " has no bootstrap",
		zipped(t, empty):                   " has no bootstrap",
		broken:                             "App/Echo: its asset " + broken + ": zip: not a valid zip file",
		foreign: "App/Echo: its binary is for " + other + ", and this machine is " + runtime.GOOS + "/" +
			runtime.GOARCH + ": name the package that it is built from in its metadata (idem:package); or, on Linux, build",
	} {
		template := asset(t, path)
		text, err := os.ReadFile(template)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(template, append(text, "  Q: {Type: AWS::SQS::Queue}\n"...), 0o600))
		var log strings.Builder
		_, err = Start(t.Context(), template, &Options{RunDir: t.TempDir(), CacheDir: t.TempDir(), Output: io.Discard,
			Log: func(format string, args ...any) { log.WriteString(format) }})
		require.ErrorContains(t, err, want)
		require.Empty(t, log.String(), "a server starts")
	}
}

func TestOldSDK(t *testing.T) {
	const v1, v2 = "github.com/aws/aws-sdk-go", "github.com/aws/aws-sdk-go-v2/config"
	for module, old := range map[debug.Module]bool{
		{Path: v1, Version: "v1.55.8"}: true, {Path: v2, Version: "v1.11.0"}: true, {Path: v2, Version: "v1.20.2"}: true,
		{Path: v2, Version: "v1.21.0"}: false, {Path: v2, Version: "v1.32.31"}: false, {Path: "a", Version: "v1.0.0"}: false,
	} {
		name := oldSDK([]*debug.Module{{Path: "other", Version: "v0.1.0"}, &module})
		require.Equal(t, old, name == module.Path+" "+module.Version, module)
		require.Equal(t, old, name != "", module)
	}
}

func goCommand(t *testing.T) string {
	t.Helper()
	path, err := exec.LookPath("go")
	require.NoError(t, err)
	return path
}
