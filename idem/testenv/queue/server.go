package queue

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os/exec"
	"regexp"
	"time"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/npm"
)

//go:embed serve.mjs
var serveScript string

// Options of [Start]. The zero value takes everything from the environment and
// the defaults.
type Options struct {
	// CacheDir is where the npm packages are kept, about 43 MB. It is created if
	// need be. Default: IDEM_CACHE_DIR, else "idem" in the user's cache folder
	// (os.UserCacheDir).
	CacheDir string

	// Log gets progress, one line a call without a newline. Default: nowhere.
	// It is called from the goroutine that called Start only.
	Log func(format string, args ...any)
}

// Server is a queue server that answers. Its methods may be called from several
// goroutines at once.
type Server struct {
	endpoint string
	source   string
	process  *child.Process
}

// Endpoint is the base URL, without a trailing slash: http://127.0.0.1:port.
func (s *Server) Endpoint() string { return s.endpoint }

// Source describes what runs.
func (s *Server) Source() string { return s.source }

// Ended is closed when the server's process is gone, whatever the reason.
func (s *Server) Ended() <-chan struct{} { return s.process.Ended() }

// Close stops the server and returns when it is gone. Queues and messages are
// gone with it. It may be called more than once.
func (s *Server) Close() error { return s.process.Close() }

// Start installs the server if necessary, starts it, and waits until it accepts requests. o
// may be nil. The context bounds only the start; the server lives until Close, or until
// this process ends.
func Start(ctx context.Context, o *Options) (*Server, error) {
	var opts Options
	if o != nil {
		opts = *o
	}
	if opts.Log == nil {
		opts.Log = func(string, ...any) {}
	}
	srv, err := run(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("queue: the queue server cannot be had: %w", err)
	}
	return srv, nil
}

func run(ctx context.Context, o Options) (*Server, error) {
	node, err := findNode(ctx)
	if err != nil {
		return nil, err
	}
	dir, err := Package.Install(ctx, o.CacheDir, o.Log)
	if err != nil {
		return nil, err
	}
	begin := time.Now()
	process, err := child.Start(serveCommand(node, dir))
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", node, err)
	}
	address, err := process.AwaitAddress(ctx)
	if err != nil {
		_ = process.Close() // it is of no use; its output says why
		return nil, fmt.Errorf("%s did not start: %w; the last it said:\n%s", Package, err, process.Output())
	}
	srv := &Server{
		endpoint: "http://" + address,
		source:   fmt.Sprintf("npm package %s (kept in %s), run by %s", Package, dir, node),
		process:  process,
	}
	o.Log("the queue server listens at %s after %v", srv.endpoint, time.Since(begin).Round(time.Millisecond))
	return srv, nil
}

// serveCommand passes the script as an argument, so that it is not kept next to the packages
// and always has this version.
func serveCommand(node, dir string) *exec.Cmd {
	cmd := exec.Command(node, "--input-type=module", "--eval", serveScript)
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
