// Package child runs a server as a child process that cannot outlive the process that
// started it: it ends when its standard input does, and on Linux the kernel also kills it
// when its parent has ended. The child says where it listens with a line "Listening on
// host:port".
package child

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"
)

// Process is a child that was started. Its methods may be called from several
// goroutines at once.
type Process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	output *Tail
	ended  chan struct{} // closed when the child has ended
	err    error         // how it ended; read after ended is closed
}

// Start starts cmd in a process group of its own, so that a Ctrl-C in the terminal reaches
// only the parent, which then shuts down in order: with the attributes of [OwnGroup] unless it
// has some. It uses the command's standard input and output.
func Start(cmd *exec.Cmd) (*Process, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: cmd, stdin: stdin, output: NewTail(), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = p.output, p.output
	cmd.WaitDelay = 5 * time.Second
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = OwnGroup()
	}
	ended, err := Run(cmd)
	if err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	go func() {
		p.err = <-ended
		close(p.ended)
	}()
	return p, nil
}

// Run starts a command whose SysProcAttr is of [OwnGroup], [SameGroup] or [Unprivileged]. The channel gets
// what Wait returns when the command has ended.
func Run(cmd *exec.Cmd) (<-chan error, error) {
	started, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		// Linux sends the parent-death signal when the thread that forked ends, so this
		// thread is kept while the command runs. It is never unlocked: it ends with this
		// goroutine.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err == nil {
			ended <- cmd.Wait()
		}
	}()
	return ended, <-started
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Ended is closed when the child has ended.
func (p *Process) Ended() <-chan struct{} {
	if p == nil {
		return nil
	}
	return p.ended
}

// startTimeout is how long a server may take to start.
const startTimeout = time.Minute

// awaitAddress waits for the child's line "Listening on host:port" and returns
// host:port.
func (p *Process) awaitAddress(ctx context.Context) (string, error) {
	select {
	case address := <-p.output.Listening():
		return strings.TrimSpace(address), nil
	case <-p.ended:
		return "", fmt.Errorf("it ended before it answered: %v", p.err)
	case <-time.After(startTimeout):
		return "", fmt.Errorf("it did not listen within %v", startTimeout)
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// endTimeout is the time between the end of input and the kill. An orderly end takes
// milliseconds.
const endTimeout = 3 * time.Second

// Close ends the child's input, kills the child if it still runs 3 s later, and returns when
// it has ended. It may be called more than once.
func (p *Process) Close() error {
	if p == nil {
		return nil
	}
	_ = p.stdin.Close() // closed already if the child has ended
	select {
	case <-p.ended:
		return nil
	case <-time.After(endTimeout):
	}
	err := p.cmd.Process.Kill()
	<-p.ended
	return err
}

// Version runs a program with the argument that makes it tell its version, and returns
// the number in the pattern's first group.
func Version(ctx context.Context, path, argument string, pattern *regexp.Regexp) (int, error) {
	out, err := exec.CommandContext(ctx, path, argument).CombinedOutput()
	if ctx.Err() != nil {
		return 0, context.Cause(ctx)
	}
	said, _, _ := strings.Cut(strings.TrimSpace(string(out)), "\n")
	if err != nil {
		return 0, fmt.Errorf("%s does not work: %s: %w: %s", path, argument, err, said)
	}
	m := pattern.FindSubmatch(out)
	if m == nil {
		return 0, fmt.Errorf("%s printed no version: %s", path, said)
	}
	return strconv.Atoi(string(m[1]))
}

// Server is a server that answers, at a URL without a trailing slash. Its process is nil if it
// runs elsewhere: nothing stops it then, and Ended is never ready.
type Server struct {
	*Process
	endpoint, source string
}

// Elsewhere is a server that was not started here.
func Elsewhere(endpoint, source string) *Server { return &Server{nil, endpoint, source} }

// Endpoint is the base URL: http://127.0.0.1:port unless it runs elsewhere.
func (s *Server) Endpoint() string { return s.endpoint }

// Source describes where the server comes from, and what runs it.
func (s *Server) Source() string { return s.source }

// Serve starts the named server and waits until it says where it listens.
func Serve(
	ctx context.Context, name, source string, cmd *exec.Cmd, log func(format string, args ...any),
) (*Server, error) {
	begin := time.Now()
	p, err := Start(cmd)
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	address, err := p.awaitAddress(ctx)
	if err != nil {
		_ = p.Close() // it is of no use; its output says why
		return nil, fmt.Errorf("%s did not start: %w; the last it said:\n%s", name, err, p.output)
	}
	log("%s is ready after %v", name, time.Since(begin).Round(time.Millisecond))
	return &Server{p, "http://" + address, source}, nil
}
