package runtime

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/idem-go/idempotency/idem/testenv/child"
)

// leaveGrace is how long a process that has aborted its poll, and has no work, may take to end.
const leaveGrace = time.Second

// instance is one process of the function and the Runtime API that it talks to.
type instance struct {
	pool    *Pool
	cmd     *exec.Cmd
	server  *http.Server
	folder  string
	started time.Time
	stdout  *child.Lines
	stderr  *child.Lines

	inbox   chan handover // to a pending poll
	first   chan struct{} // closed when the process first asks for work
	polled  chan struct{} // a token for each time that a worker is back
	leaving chan struct{} // closed when it aborts a poll: it takes no more work
	exited  chan struct{} // closed when it has ended and is cleaned up after

	// ready is closed when the init is over; if it failed, failure is set before.
	ready   chan struct{}
	failure func(requestID string) outcome

	// Of the pool's lock.
	free int // invocations that it could take now

	mu      sync.Mutex
	reaped  bool // another process may have its pid
	left    bool // leaving is closed
	frozen  bool
	working []*invocation
	polls   int
}

func (p *Pool) newInstance() *instance {
	return &instance{
		pool:    p,
		started: time.Now(),
		inbox:   make(chan handover),
		first:   make(chan struct{}),
		polled:  make(chan struct{}, p.function.Concurrency),
		leaving: make(chan struct{}),
		exited:  make(chan struct{}),
		ready:   make(chan struct{}),
		free:    p.function.Concurrency,
	}
}

// launch starts the process and its Runtime API.
func (i *instance) launch() error {
	p := i.pool
	folder, err := os.MkdirTemp(p.options.TempDir, "lambda-"+p.function.Name+"-")
	if err != nil {
		return fmt.Errorf("runtime: folder for an instance: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return errors.Join(fmt.Errorf("runtime: listen for an instance: %w", err), os.RemoveAll(folder))
	}
	i.folder = folder
	emit := func(line string) { p.output.Printf("%s[%d] %s", p.function.Name, i.pid(), line) }
	i.stdout = &child.Lines{Emit: emit}
	i.stderr = &child.Lines{Emit: emit}
	i.server = &http.Server{Handler: i.api(), ReadHeaderTimeout: 10 * time.Second}

	cmd := exec.Command(p.function.Path)
	cmd.Env = p.environment(listener.Addr().String(), folder, i.started)
	cmd.Dir = folder
	cmd.Stdout, cmd.Stderr = i.stdout, i.stderr
	cmd.SysProcAttr = child.OwnGroup()
	// A grandchild may keep the pipes open after the process has ended.
	cmd.WaitDelay = time.Second
	i.cmd = cmd

	ended, err := child.Run(cmd)
	if err != nil {
		return errors.Join(fmt.Errorf("runtime: start %s: %w", p.function.Path, err), listener.Close(), os.RemoveAll(folder))
	}
	if !p.adopt(i) {
		i.signal(syscall.SIGKILL) // the pool was closed while it started
	}
	go i.live(ended)
	go i.server.Serve(listener) // ends with the instance, see live
	return nil
}

// live waits for the process's end and cleans up.
func (i *instance) live(ended <-chan error) {
	<-ended // ProcessState says how
	i.mu.Lock()
	// What it has started and is still in its group; usually nothing. Another process may have its pid by now.
	_ = syscall.Kill(-i.cmd.Process.Pid, syscall.SIGKILL)
	i.reaped = true
	i.mu.Unlock()

	i.server.Close()
	i.stdout.Flush()
	i.stderr.Flush()
	os.RemoveAll(i.folder)
	i.pool.forget(i)
	close(i.exited)
}

// pid is 0 for a process that could not be started.
func (i *instance) pid() int {
	if i.cmd == nil || i.cmd.Process == nil {
		return 0
	}
	return i.cmd.Process.Pid
}

// signal reaches the process and all that it has started. It reports false if
// the process has ended.
func (i *instance) signal(signal syscall.Signal) bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return !i.reaped && signalGroup(i.cmd.Process, signal) == nil
}

// kill ends the process and returns when it has ended.
func (i *instance) kill() {
	i.signal(syscall.SIGKILL) // SIGKILL to a live group of our own cannot be refused
	<-i.exited
}

// handover is an invocation for a worker; taken says whether it took it.
type handover struct {
	*invocation
	taken chan bool
}

// hand gives an event to the process's next worker that asks for one. It reports false if
// the process ended, or was leaving, before it had the event.
func (i *instance) hand(inv *invocation) bool {
	i.thaw()
	h := handover{inv, make(chan bool, 1)}
	select {
	case i.inbox <- h:
		return <-h.taken
	case <-i.leaving:
	case <-i.exited:
	}
	return false
}

// leave notes that the process takes no more work, and ends it when it has none.
func (i *instance) leave() {
	i.mu.Lock()
	first := !i.left
	if first {
		i.left = true
		close(i.leaving)
	}
	i.mu.Unlock()
	if first {
		i.pool.retire(i)
		i.endIfLeft()
	}
}

// endIfLeft ends a process that is leaving once it has nothing to do.
func (i *instance) endIfLeft() {
	over := func() bool {
		i.mu.Lock()
		defer i.mu.Unlock()
		return i.left && len(i.working) == 0
	}
	if !over() {
		return
	}
	time.AfterFunc(leaveGrace, func() {
		if over() { // another worker may have taken work as this one left
			i.signal(syscall.SIGKILL)
		}
	})
}

// answer accepts the outcome that the process has posted for an invocation. It reports false
// if the process has posted one before.
func (i *instance) answer(inv *invocation, out outcome) bool {
	i.mu.Lock()
	at := slices.Index(i.working, inv)
	if at >= 0 {
		i.working = slices.Delete(i.working, at, at+1)
	}
	i.mu.Unlock()
	if at < 0 {
		return false
	}
	inv.finish(out) // without effect after its time-out
	close(inv.posted)
	i.endIfLeft()
	return true
}

// overdue reports that every worker of the process is past its time-out.
func (i *instance) overdue() bool {
	i.mu.Lock()
	defer i.mu.Unlock()
	return len(i.working) == i.pool.function.Concurrency &&
		!slices.ContainsFunc(i.working, func(inv *invocation) bool { return !inv.done() })
}

// inFlight lists the process's invocations that a caller waits for.
func (i *instance) inFlight() []*invocation {
	i.mu.Lock()
	defer i.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(i.working), (*invocation).done)
}
