package dynamodblocal

import (
	"bytes"
	"errors"
	"io"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"
)

// child is a process that ends when its standard input does.
type child struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	output *tail
	ended  chan struct{} // closed when it is gone
	err    error         // how it ended; read after ended is closed
}

// startChild starts cmd in a process group of its own, so that a Ctrl-C in the
// terminal reaches the parent only, which then shuts down in order.
func startChild(cmd *exec.Cmd) (*child, error) {
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	c := &child{cmd: cmd, stdin: stdin, output: newTail(), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = c.output, c.output
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = ownGroup()
	started := make(chan error, 1)
	go func() {
		// Linux's parent-death signal follows the thread that forked, so that
		// thread is kept for as long as the child lives. Never unlocked: the
		// thread ends with this goroutine.
		runtime.LockOSThread()
		err := cmd.Start()
		started <- err
		if err != nil {
			return
		}
		c.err = cmd.Wait()
		close(c.ended)
	}()
	if err := <-started; err != nil {
		return nil, errors.Join(err, stdin.Close())
	}
	return c, nil
}

// Between the end of input and the kill. Ending takes milliseconds.
const endTimeout = 3 * time.Second

// close ends the child and returns when it is gone.
func (c *child) close() error {
	_ = c.stdin.Close() // closed already when the child is gone already
	select {
	case <-c.ended:
		return nil
	case <-time.After(endTimeout):
	}
	err := c.cmd.Process.Kill()
	<-c.ended
	return err
}

// The wrapper's announcement.
const listeningPrefix = "Listening on "

// How much of the output is kept for an error message.
const tailLines = 20

// tail keeps the last lines of an output and passes on the address in the
// wrapper's announcement. Safe for concurrent use.
type tail struct {
	listening chan string // gets at most one

	mu      sync.Mutex
	lines   []string
	partial []byte
}

func newTail() *tail { return &tail{listening: make(chan string, 1)} }

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = append(t.partial, p...)
	for {
		line, rest, found := bytes.Cut(t.partial, []byte("\n"))
		if !found {
			break
		}
		t.add(string(bytes.TrimRight(line, "\r")))
		t.partial = rest
	}
	// A line without an end must not grow for ever.
	if len(t.partial) > 4096 {
		t.add(string(t.partial))
		t.partial = nil
	}
	return len(p), nil
}

func (t *tail) add(line string) {
	if address, ok := strings.CutPrefix(line, listeningPrefix); ok {
		select {
		case t.listening <- address:
		default:
		}
	}
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = t.lines[len(t.lines)-tailLines:]
	}
}

// String returns the kept lines, indented.
func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if len(t.partial) > 0 {
		lines = append(lines[:len(lines):len(lines)], string(t.partial))
	}
	if len(lines) == 0 {
		return "  (nothing)"
	}
	return "  " + strings.Join(lines, "\n  ")
}
