package infra

import (
	"bytes"
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// bootstrap is the name that the custom runtime starts.
const bootstrap = "bootstrap"

// buildEnv fixes the variables that change the resulting bytes: the caller's environment
// must not count.
var buildEnv = []string{"GOOS=linux", "GOARCH=arm64", "GOARM64=v8.0", "CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT="}

// buildArgs leave out everything that differs between two machines with the same
// source: paths, the state of the checkout, the build id.
var buildArgs = []string{
	"build", "-trimpath", "-buildvcs=false",
	"-tags", "lambda.norpc", // without the RPC mode of the retired go1.x runtime
	"-ldflags", "-s -w -buildid=",
}

// module is the library's module, which has the functions that are deployed.
const module = "github.com/idem-go/idempotency"

// home returns the folder where the go command has the library, seen from dir, if the
// package is part of it. The package is built there, with the library's versions and
// checksums of what it imports. A module that only requires it has none of them for
// programs that it does not import, and go mod tidy drops them. The library's own
// workspace, which lies in that folder too, has folders that a download does not have.
func home(dir, pkg string) (folder string, env []string, err error) {
	if !strings.HasPrefix(pkg, module+"/") {
		return dir, nil, nil
	}
	// A vendor folder has only the packages that are imported.
	cmd := exec.Command("go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", module)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOFLAGS=")
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	found := strings.TrimSpace(string(out))
	switch {
	case err != nil:
		return "", nil, fmt.Errorf("looking for %s: %w: %s", module, err, strings.TrimSpace(said.String()))
	case found == "":
		return "", nil, fmt.Errorf("%s is not downloaded: run go mod download %s", module, module)
	}
	return found, []string{"GOWORK=off"}, nil
}

// build compiles a main package into folder/bootstrap, for provided.al2023 on
// arm64. dir is where the go command runs; empty means the working directory.
func build(dir, pkg, folder string) error {
	dir, env, err := home(dir, pkg)
	if err != nil {
		return err
	}
	out := filepath.Join(folder, bootstrap)
	cmd := exec.Command("go", append(buildArgs[:len(buildArgs):len(buildArgs)], "-o", out, pkg)...)
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), buildEnv...), env...)
	if said, err := cmd.CombinedOutput(); err != nil {
		if text := strings.TrimSpace(string(said)); text != "" {
			return fmt.Errorf("%w: %s", err, text)
		}
		return err
	}
	// The go command makes an archive of a package that is not main.
	binary, err := elf.Open(out)
	if err != nil {
		return fmt.Errorf("%s is not a main package", pkg)
	}
	binary.Close()
	// The archive has the mode, which must not depend on the umask.
	return os.Chmod(out, 0o755)
}
