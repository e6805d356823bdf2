package cloud

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"debug/elf"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/idem-go/idempotency/idem/testenv/cache"
	"github.com/idem-go/idempotency/local/cmd/gorun"
)

// folder is where functions are built. A binary that runs is not written to.
func (r *Running) folder() string {
	return filepath.Join(r.options.RunDir, fmt.Sprintf("bin%d", r.builds))
}

// newFolder makes another one, and removes those from which no process starts any more.
func (r *Running) newFolder() error {
	r.mu.Lock()
	used := slices.Collect(maps.Values(r.generations))
	r.mu.Unlock()
	r.folders = slices.DeleteFunc(r.folders, func(folder string) bool {
		return !slices.Contains(used, folder) && os.RemoveAll(folder) == nil
	})
	r.builds++
	r.folders = append(r.folders, r.folder())
	return os.MkdirAll(r.folder(), 0o700)
}

// fromAssets returns the binaries of the functions that are built already, by the functions' names.
func (r *Running) fromAssets(p *Plan) (map[string]string, error) {
	bins := map[string]string{}
	wrong := []error{r.newFolder()}
	for _, f := range p.Functions {
		if f.Package != "" {
			continue
		}
		bin, err := fromAsset(f.Asset, filepath.Join(r.folder(), "function-"+f.Name))
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", f.of, err))
		}
		bins[f.Name] = bin
	}
	return bins, errors.Join(wrong...)
}

// build adds the binaries of the other functions, compiled from their packages. Functions of one package have one
// binary.
func (r *Running) build(ctx context.Context, p *Plan, bins map[string]string) error {
	type source struct {
		dir     string
		library bool
	}
	modules := map[source]module{}
	together := map[module][]string{} // packages that the go command compiles at once, which saves seconds
	made := map[string]bool{}         // binaries
	into := r.folder()
	for _, f := range p.Functions {
		if f.Package == "" {
			continue
		}
		from := source{f.Dir, strings.HasPrefix(f.Package, library+"/")}
		m, known := modules[from]
		if !known {
			var err error
			if m.dir, m.workspace, err = folderOf(ctx, r.options.Dir, from.dir, from.library); err != nil {
				return fmt.Errorf("%s: %w", f.of, err)
			}
			modules[from] = m
		}
		bin := filepath.Join(into, path.Base(f.Package))
		if bins[f.Name] = bin; slices.Contains(together[m], f.Package) && !f.debugged {
			continue
		}
		if plain.MatchString(path.Base(f.Package)) && !made[bin] && !f.debugged {
			made[bin], together[m] = true, append(together[m], f.Package)
			continue
		}
		bins[f.Name] = filepath.Join(into, "function-"+f.Name)
		if err := r.compile(ctx, m, f.debugged, bins[f.Name], f.Package); err != nil {
			return fmt.Errorf("%s: cannot compile %s: %w", f.of, f.Package, err)
		}
	}
	for m, packages := range together {
		if err := r.compile(ctx, m, false, "", packages...); err != nil {
			return fmt.Errorf("cannot compile %s: %w", strings.Join(packages, ", "), err)
		}
	}
	return nil
}

// plain are the last elements of packages' paths for which the go command names a binary: not ".", nor v2.
var plain = regexp.MustCompile(`^([a-uw-zA-Z]|v[^0-9])[^.]*$`)

// library is the module that has functions which are deployed as they are, such as the relay.
const library = "github.com/idem-go/idempotency"

// folderOf is where a function's package is compiled. A package of the library is compiled in the library's folder: a
// module that only requires it has none of the checksums for programs that it does not import.
func folderOf(ctx context.Context, dir, within string, ofLibrary bool) (folder, workspace string, err error) {
	if filepath.IsAbs(within) {
		dir = within
	} else if dir = filepath.Join(dir, within); dir == "" {
		dir = "."
	}
	if !ofLibrary {
		return dir, "", nil
	}
	found, err := gorun.Folder(ctx, dir, library)
	if err != nil {
		return "", "", fmt.Errorf("look for %s: %w", library, err)
	}
	if found != "" && found != dir {
		return found, "GOWORK=off", nil
	}
	return dir, "", nil
}

// module is where the go command runs, and a setting of its environment.
type module struct{ dir, workspace string }

// compile compiles packages to a path, or each to its name in the folder of the binaries. They are kept where the next
// start finds them: linking them takes seconds, and a binary that is up to date is not linked again.
func (r *Running) compile(ctx context.Context, m module, debugged bool, to string, packages ...string) error {
	sum := sha256.Sum256([]byte(fmt.Sprint(m, debugged, filepath.Base(to))))
	kept, err := cache.Folder(r.options.CacheDir)
	if err == nil {
		kept, err = cache.Folder(filepath.Join(kept, "functions", hex.EncodeToString(sum[:8])))
	}
	if err != nil {
		return err
	}
	unlock, err := cache.Lock(ctx, kept+".lock", func() {})
	if err != nil {
		return err
	}
	defer unlock()
	args := []string{"build", "-C", m.dir, "-tags", "lambda.norpc", "-o", kept + string(os.PathSeparator)}
	if to != "" {
		args[len(args)-1] = filepath.Join(kept, filepath.Base(to))
	}
	if debugged {
		args = append(args, "-gcflags=all=-N -l")
	}
	env := []string{"CGO_ENABLED=0"}
	if m.workspace != "" { // a download, which has no vendor folder
		env, args = append(env, m.workspace), append(args, "-mod=readonly")
	}
	if _, err := gorun.Go(ctx, env, append(args, packages...)...); err != nil {
		return err
	}
	if to != "" {
		return copied(filepath.Join(kept, filepath.Base(to)), to)
	}
	for _, pkg := range packages {
		name := path.Base(pkg)
		if err := copied(filepath.Join(kept, name), filepath.Join(r.folder(), name)); err != nil {
			return err
		}
	}
	return nil
}

// copied copies a binary, without a second copy of its bytes where the file system can do that: the go command replaces
// a binary and does not write to it.
func copied(from, to string) error {
	if os.Link(from, to) == nil {
		return nil
	}
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	return written(in, to)
}

// written writes a new program.
func written(in io.Reader, to string) error {
	out, err := os.OpenFile(to, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o700)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// oldSDK names the module of a program that does not read the endpoints in its environment; empty if there is none.
func oldSDK(modules []*debug.Module) string {
	for _, m := range modules {
		minor := 0
		_, _ = fmt.Sscanf(m.Version, "v1.%d.", &minor)
		if m.Path == "github.com/aws/aws-sdk-go" || m.Path == "github.com/aws/aws-sdk-go-v2/config" && minor < 21 {
			return m.Path + " " + m.Version
		}
	}
	return ""
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
	this := runtime.GOOS + "/" + runtime.GOARCH
	if this == "linux/"+machine {
		return path, nil
	}
	for _, name := range []string{"qemu-aarch64", "qemu-aarch64-static"} { // Debian has the latter
		if found, err := exec.LookPath(name); err == nil && machine == "arm64" {
			emulator = found
		}
	}
	if emulator == "" {
		of := map[string]string{"amd64": "X86_64", "arm64": "ARM_64"}[runtime.GOARCH]
		return "", fmt.Errorf("its binary is for %v, and this machine is %s: name the package that it is built from in its "+
			"metadata (%s); or, on Linux, build it for this machine (in an app of the CDK: Architecture: "+
			"awslambda.Architecture_%s()), or install qemu-aarch64 for arm64 (Debian: qemu-user-static)",
			cmp.Or(machine, binary.Machine.String()), this, PackageMetadata, of)
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
	return to, written(in, to)
}
