// Package npm keeps npm packages in the cache folder, for the servers that the local
// commands run from them.
//
// A package-lock.json pins the packages with their integrity, which npm checks. They come
// from the registry that npm is configured with, and their scripts are not run. Later uses
// need no npm: they compare the kept files with a digest of the installed ones.
package npm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/testenv/cache"
)

// Package is a package to install, with its dependencies.
type Package struct {
	Name     string // as in node_modules
	Version  string
	Download string // approximate size of the download, to be shown: "43 MB"

	// Manifest and Lock are a package.json that depends on the package, and its
	// package-lock.json. The latter is written so that it names no registry:
	//
	//	npm install --package-lock-only --omit-lockfile-registry-resolved
	Manifest, Lock []byte
}

// String is the package with its version, as npm writes it.
func (p Package) String() string { return p.Name + "@" + p.Version }

// InstallNode says how to install npm and Node.js, which runs the packages.
const InstallNode = "install Node.js 20 or newer with npm (for example Debian and Ubuntu: apt install nodejs npm; " +
	"macOS: brew install node; or nodejs.org)"

// timeout bounds a whole installation; at 100 KB/s it is enough for 57 MB.
const timeout = 10 * time.Minute

// stampName is the file that holds the digest of what was installed in its folder.
const stampName = "installed.sha256"

// Install returns the folder whose node_modules has the complete package. It installs the
// package if it is missing or damaged. cacheDir is as for [cache.Folder]. Several processes
// may call Install at once on one folder: one of them installs. log gets progress, one line
// a call, on the caller's goroutine.
func (p Package) Install(ctx context.Context, cacheDir string, log func(format string, args ...any)) (string, error) {
	folder, err := cache.Folder(cacheDir)
	if err != nil {
		return "", err
	}
	pinned := sha256.Sum256(append(append([]byte(nil), p.Manifest...), p.Lock...))
	dir := filepath.Join(folder, path.Base(p.Name)+"-"+p.Version+"-"+hex.EncodeToString(pinned[:6]))
	if check(dir) == nil {
		return dir, nil
	}
	unlock, err := cache.Lock(ctx, dir+".lock", func() { log("waiting for another process that installs %s", p) })
	if err != nil {
		return "", err
	}
	defer unlock()
	// Under the lock again: another process may have installed it before.
	damage := check(dir)
	if damage == nil {
		return dir, nil
	}
	if !errors.Is(damage, os.ErrNotExist) {
		log("the package in %s is damaged (%v): it is deleted and installed again", dir, damage)
	}
	log("installing npm package %s (%s, once) into %s", p, p.Download, folder)
	return dir, p.install(ctx, folder, dir)
}

// install installs into a temporary folder and renames it to dir.
func (p Package) install(ctx context.Context, folder, dir string) (err error) {
	work, err := os.MkdirTemp(folder, ".install-*")
	if err != nil {
		return fmt.Errorf("the cache folder cannot be written to: %w; set %s to one that can", err, cache.Env)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	if err := p.ci(ctx, work); err != nil {
		return err
	}
	digest, err := treeDigest(work)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(work, stampName), []byte(digest), 0o644); err != nil {
		return err
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete the damaged %s: %w; delete it by hand", dir, err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.Rename(work, dir); err != nil {
		return fmt.Errorf("put %s into the cache: %w", p, err)
	}
	return nil
}

// ci lets npm install the lock file's packages into dir.
func (p Package) ci(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is not on PATH, and it is needed once to install %s; %s", p, InstallNode)
	}
	for name, content := range map[string][]byte{"package.json": p.Manifest, "package-lock.json": p.Lock} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, timeout, fmt.Errorf("it took longer than %v", timeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--legacy-peer-deps", "--no-bin-links", "--no-audit",
		"--no-fund", "--loglevel=error")
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	said := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n  ")
	if err != nil {
		return fmt.Errorf("npm ci for %s failed (%w); check the network and the registry that npm is configured with. "+
			"npm said:\n  %s", p, err, said)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", p.Name, "package.json")); err != nil {
		return fmt.Errorf("npm ci succeeded but did not install %s (%w); npm said:\n  %s", p, err, said)
	}
	return nil
}

// check reports an error if dir no longer has the files that were installed there.
// Otherwise a cache that was partly cleaned, or a full disk, would appear as an error of the
// server.
func check(dir string) error {
	want, err := os.ReadFile(filepath.Join(dir, stampName))
	if err != nil {
		return err
	}
	got, err := treeDigest(dir)
	if err != nil {
		return err
	}
	if got != string(want) {
		return fmt.Errorf("its digest is %s, expected %s", got, want)
	}
	return nil
}

// treeDigest is the SHA-256 over the name, length and content of every file below dir
// except the stamp, in the order of their names.
func treeDigest(dir string) (string, error) {
	tree, files := sha256.New(), os.DirFS(dir)
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || name == stampName {
			return err
		}
		content, err := fs.ReadFile(files, name)
		fmt.Fprintf(tree, "%s\x00%d\n", name, len(content))
		tree.Write(content)
		return err
	})
	return hex.EncodeToString(tree.Sum(nil)), err
}
