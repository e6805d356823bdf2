package queue

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"regexp"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/npm"
)

//go:embed serve.mjs
var serveScript string

// Start installs the server if necessary, starts it, and waits until it accepts requests. The npm
// packages, about 43 MB, are kept in cacheDir, which is as for [npm.Package.Install]; so is log.
// A file keeps the messages for the next start, also if the server is killed: a queue that is made gets
// those that it had, and they count as not received. Without one, "", they are in memory.
// The context bounds only the start; the server lives until Close, or until this process ends.
func Start(
	ctx context.Context, cacheDir, file string, log func(format string, args ...any),
) (_ *child.Server, err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("queue: the queue server cannot be had: %w", err)
		}
	}()
	node, err := findNode(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := Package.Install(ctx, cacheDir, log)
	if err != nil {
		return nil, err
	}
	source := fmt.Sprintf("npm package %s (kept in %s), run by %s", Package, dir, node)
	return child.Serve(ctx, "the queue server", source, serveCommand(node, dir, file), log)
}

// serveCommand passes the script as an argument, so that it is not kept next to the packages
// and always has this version.
func serveCommand(node, dir, file string) *exec.Cmd {
	cmd := exec.Command(node, "--input-type=module", "--eval", serveScript, file)
	cmd.Dir = dir
	return cmd
}

// package.json holds back one package whose latest release needs Node.js 22.
var (
	//go:embed package.json
	manifest []byte
	//go:embed package-lock.json
	lockFile []byte
)

// Package is the npm package that is run.
var Package = npm.Package{Name: "fauxqs", Version: "1.9.2", Download: "43 MB", Manifest: manifest, Lock: lockFile}

// oldestNode is the oldest major release that the packages run on.
const oldestNode = 20

var nodeVersion = regexp.MustCompile(`(?m)^v(\d+)\.`)

// findNode returns the node on PATH if it is new enough.
func findNode(ctx context.Context) (string, error) {
	path, err := exec.LookPath("node")
	if err != nil {
		return "", errors.New("node is not on PATH; " + npm.InstallNode)
	}
	version, err := child.Version(ctx, path, "--version", nodeVersion)
	switch {
	case ctx.Err() != nil:
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w; %s", err, npm.InstallNode)
	case version < oldestNode:
		return "", fmt.Errorf("%s is Node.js %d; %s", path, version, npm.InstallNode)
	}
	return path, nil
}
