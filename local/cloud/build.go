package cloud

import (
	"archive/zip"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/idem-go/idempotency/local/cmd/gorun"
)

// build returns the binaries of the functions by their name, compiled from their packages or taken from their assets.
func (r *Running) build(ctx context.Context, p *Plan) (map[string]string, error) {
	bins := map[string]string{}
	r.builds++
	for _, f := range p.Functions {
		// A binary that runs is not written to.
		path := filepath.Join(r.options.BinDir, fmt.Sprintf("%s-%d", f.Name, r.builds))
		if f.Package != "" {
			if err := compile(ctx, r.options.Dir, f, path); err != nil {
				return nil, fmt.Errorf("%s: cannot compile %s: %w", f.of, f.Package, err)
			}
			bins[f.Name] = path
			continue
		}
		path, err := fromAsset(f.Asset, path)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.of, err)
		}
		bins[f.Name] = path
	}
	return bins, nil
}

// library is the module that has functions which are deployed as they are, such as the relay.
const library = "github.com/idem-go/idempotency"

// compile compiles a function's package. A package of the library is built in the library's folder: a module that only
// requires it has none of the checksums for programs that it does not import.
func compile(ctx context.Context, dir string, f Function, to string) error {
	if filepath.IsAbs(f.Dir) {
		dir = f.Dir
	} else if dir = filepath.Join(dir, f.Dir); dir == "" {
		dir = "."
	}
	env := []string{"CGO_ENABLED=0"}
	if strings.HasPrefix(f.Package, library+"/") {
		list := exec.CommandContext(ctx, "go", "list", "-mod=readonly", "-m", "-f", "{{.Dir}}", library)
		list.Dir = dir
		out, err := list.Output()
		if err != nil {
			return fmt.Errorf("look for %s: %w", library, err)
		}
		if found := strings.TrimSpace(string(out)); found != "" && found != dir {
			dir, env = found, append(env, "GOWORK=off")
		}
	}
	return gorun.Build(ctx, env, "-C", dir, "-tags", "lambda.norpc", "-o", to, f.Package)
}

const bootstrap = "bootstrap"

// fromAsset is the binary of a folder or an archive, which is unpacked to a path.
func fromAsset(asset, to string) (string, error) {
	info, err := os.Stat(asset)
	if err != nil {
		return "", fmt.Errorf("its asset is missing: %w", err)
	}
	path := filepath.Join(asset, bootstrap)
	if !info.IsDir() {
		if path, err = unpacked(asset, to); err != nil {
			return "", err
		}
	}
	binary, err := elf.Open(path)
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return "", fmt.Errorf("its asset %s has no %s", asset, bootstrap)
		}
		return path, nil // a script, for example
	}
	defer binary.Close()
	machine, emulator := map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}[binary.Machine], ""
	if machine == runtime.GOARCH {
		return path, nil
	}
	if machine == "arm64" {
		emulator, _ = exec.LookPath("qemu-aarch64")
	}
	if emulator == "" {
		return "", fmt.Errorf("its binary is for %s, and this machine is %s: name the package that it is built from in its "+
			"metadata (%s), or install qemu-aarch64 for arm64", machine, runtime.GOARCH, PackageMetadata)
	}
	script := to + ".sh"
	text := fmt.Sprintf("#!/bin/sh\nexec %s '%s'\n", emulator, strings.ReplaceAll(path, "'", `'\''`))
	return script, os.WriteFile(script, []byte(text), 0o700)
}

// unpacked takes the binary out of an archive.
func unpacked(archive, to string) (string, error) {
	z, err := zip.OpenReader(archive)
	if err != nil {
		return "", fmt.Errorf("its asset %s: %w", archive, err)
	}
	defer z.Close()
	in, err := z.Open(bootstrap)
	if err != nil {
		return "", fmt.Errorf("its asset %s has no %s", archive, bootstrap)
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o700)
	if err != nil {
		return "", err
	}
	_, err = io.Copy(out, in)
	return to, errors.Join(err, out.Close())
}
