package dynamodblocal

import (
	"context"
	"crypto/sha512"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/idem-go/idempotency/local/aws/cache"
)

// SimulatorPackage is the npm package that holds DynamoDB Local 1.25.1. AWS's
// licence allows using DynamoDB Local and not passing it on, so it is fetched.
const SimulatorPackage = "amplify-dynamodb-simulator@2.9.30"

// simulatorSHA512 is the digest of the package's tarball, in the form of npm's
// integrity field.
const simulatorSHA512 = "xTeeRLvzEfqyd5lh3bH4c0kHvSHHmmhD5ZDsHFKAQ5g2Zl6JqlFdutaQhCLHzxEp6Ry1o7TB6niIoXuQAnSewQ=="

// simulatorTree is the digest, as of treeDigest, of what is unpacked from it.
const simulatorTree = "108c87dd7ccac14bdab6b143d3a83745480b7ad54f7adff0762c5183bb2f9f59"

// fetchTimeout bounds the whole fetch; 57 MB come within it at 100 KB/s.
const fetchTimeout = 10 * time.Minute

// simulator returns where in the cache folder DynamoDB Local is, whole and
// checked; it is fetched where it is missing or damaged. Several processes may
// call it at once on one folder: one of them fetches.
func simulator(ctx context.Context, s settings, folder string) (string, error) {
	dir := filepath.Join(folder, "dynamodb-local-1.25.1")
	if checkTree(dir) == nil {
		return dir, nil
	}
	unlock, err := cache.Lock(ctx, dir+".lock", func() {
		s.Log("waiting for another process that fetches DynamoDB Local")
	})
	if err != nil {
		return "", err
	}
	defer unlock()
	// Under the lock again: another process may have done it meanwhile.
	damage := checkTree(dir)
	if damage == nil {
		return dir, nil
	}
	if !errors.Is(damage, os.ErrNotExist) {
		s.Log("what is kept in %s is damaged (%v): it is deleted and fetched anew", dir, damage)
	}
	return dir, fetch(ctx, s, folder, dir)
}

// fetch packs, checks and unpacks beside dir, and renames into place.
func fetch(ctx context.Context, s settings, folder, dir string) (err error) {
	work, err := os.MkdirTemp(folder, ".fetch-*")
	if err != nil {
		return fmt.Errorf("the cache folder cannot be written to: %w; set %s to one that can", err, EnvCacheDir)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	s.Log("fetching npm package %s (57 MB, once) into %s", SimulatorPackage, folder)
	tarball, err := npmPack(ctx, work)
	if err != nil {
		return err
	}
	if err := checkTarball(tarball); err != nil {
		return err
	}
	fresh := filepath.Join(work, "unpacked")
	if err := unpack(tarball, "package/emulator/", fresh); err != nil {
		return fmt.Errorf("unpack %s: %w", SimulatorPackage, err)
	}
	if err := checkTree(fresh); err != nil {
		return fmt.Errorf("unpack %s: %w", SimulatorPackage, err)
	}
	// Where there is no lock, another process may have been faster.
	if checkTree(dir) == nil {
		return nil
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("delete the damaged %s: %w; delete it by hand", dir, err)
	}
	if err := os.Rename(fresh, dir); err != nil && checkTree(dir) != nil {
		return fmt.Errorf("put %s into the cache: %w", SimulatorPackage, err)
	}
	return nil
}

// npmPack has npm put the package's tarball into dir, from the registry that
// npm is configured with.
func npmPack(ctx context.Context, dir string) (string, error) {
	npm, err := exec.LookPath("npm")
	if err != nil {
		return "", errors.New("npm is not on PATH, and it is needed once to fetch DynamoDB Local; " +
			"install Node.js with npm (for example Debian and Ubuntu: apt install npm; macOS: brew install node; or nodejs.org)")
	}
	ctx, cancel := context.WithTimeoutCause(ctx, fetchTimeout, fmt.Errorf("it took longer than %v", fetchTimeout))
	defer cancel()
	cmd := exec.CommandContext(ctx, npm, "pack", SimulatorPackage, "--pack-destination", dir, "--ignore-scripts", "--loglevel=error")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if ctx.Err() != nil {
		err = context.Cause(ctx)
	}
	if err != nil {
		return "", fmt.Errorf("npm pack %s failed (%w); check the network and the registry that npm is configured with. npm said:\n  %s",
			SimulatorPackage, err, strings.ReplaceAll(strings.TrimSpace(string(out)), "\n", "\n  "))
	}
	tarballs, err := filepath.Glob(filepath.Join(dir, "*.tgz"))
	if err != nil {
		return "", err
	}
	if len(tarballs) != 1 {
		return "", fmt.Errorf("npm pack %s succeeded but left %d tarballs instead of one; npm said: %s", SimulatorPackage, len(tarballs), firstLine(string(out)))
	}
	return tarballs[0], nil
}

// checkTarball deletes the tarball if it is not the pinned one.
func checkTarball(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	sum := sha512.New()
	_, err = io.Copy(sum, f)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	if got := base64.StdEncoding.EncodeToString(sum.Sum(nil)); got != simulatorSHA512 {
		return errors.Join(fmt.Errorf("the checksum of %s is wrong: SHA-512 %s, expected %s. "+
			"It was deleted and not used; check the registry that npm is configured with, and npm cache verify",
			SimulatorPackage, got, simulatorSHA512), os.Remove(path))
	}
	return nil
}
