package runtime

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	goruntime "runtime"
	"sync"
	"time"
)

// instance is one process of the function and the Runtime API that it talks to.
type instance struct {
	pool    *Pool
	cmd     *exec.Cmd
	server  *http.Server
	folder  string
	started time.Time
	stdout  *lines
	stderr  *lines

	inbox  chan *invocation // handed to the process by its pending poll
	polled chan struct{}    // holds a token when the process has asked for work
	exited chan struct{}    // closed when it is gone and cleaned up after

	mu          sync.Mutex
	gone        bool // reaped; its pid may belong to somebody else
	current     *invocation
	invocations int
	initError   []byte
	initType    string
}

// launch starts a process and its Runtime API.
func (p *Pool) launch() (*instance, error) {
	folder, err := os.MkdirTemp("", "lambda-"+p.function.Name+"-")
	if err != nil {
		return nil, fmt.Errorf("runtime: folder for an instance: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(fmt.Errorf("runtime: listen for an instance: %w", err), os.RemoveAll(folder))
	}
	inst := &instance{
		pool:    p,
		folder:  folder,
		started: time.Now(),
		inbox:   make(chan *invocation),
		polled:  make(chan struct{}, 1),
		exited:  make(chan struct{}),
	}
	emit := func(line string) { p.output.line(p.function.Name, inst.pid(), line) }
	inst.stdout = &lines{limit: p.options.OutputLines, emit: emit}
	inst.stderr = &lines{limit: p.options.OutputLines, emit: emit}
	inst.server = &http.Server{Handler: inst.api(), ReadHeaderTimeout: 10 * time.Second}

	cmd := exec.Command(p.function.Path, p.function.Args...)
	cmd.Env = p.environment(listener.Addr().String(), folder, logStream(inst.started))
	cmd.Dir = folder
	cmd.Stdout, cmd.Stderr = inst.stdout, inst.stderr
	cmd.SysProcAttr = processAttributes()
	// A grandchild may keep the pipes open after the process has gone.
	cmd.WaitDelay = time.Second
	inst.cmd = cmd

	failed := make(chan error, 1)
	go inst.live(failed)
	if err := <-failed; err != nil {
		return nil, errors.Join(fmt.Errorf("runtime: start %s: %w", p.function.Path, err), listener.Close(), os.RemoveAll(folder))
	}
	go inst.server.Serve(listener) // ends with the instance, see live
	return inst, nil
}

// live starts the process, waits for its end and cleans up. It keeps its thread
// for itself: the kernel ties the child's life to the thread that started it.
func (i *instance) live(failed chan<- error) {
	goruntime.LockOSThread()
	defer goruntime.UnlockOSThread()
	if err := i.cmd.Start(); err != nil {
		failed <- err
		return
	}
	if !i.pool.adopt(i) {
		i.signal(os.Kill) // closed meanwhile
	}
	failed <- nil
	i.cmd.Wait() // the end, however it came, is in ProcessState
	i.mu.Lock()
	signalGroup(i.cmd.Process, os.Kill) // what it has started; usually nothing
	i.gone = true
	i.mu.Unlock()

	i.server.Close()
	i.stdout.flush()
	i.stderr.flush()
	os.RemoveAll(i.folder)
	i.pool.forget(i)
	close(i.exited)
}

func (i *instance) pid() int { return i.cmd.Process.Pid }

// signal reaches the process and all that it has started. It reports false if
// the process is gone.
func (i *instance) signal(signal os.Signal) (bool, error) {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.gone {
		return false, nil
	}
	return true, signalGroup(i.cmd.Process, signal)
}

// kill ends the process and returns when it is gone.
func (i *instance) kill() {
	i.signal(os.Kill) // SIGKILL to a live group of our own cannot be refused
	<-i.exited
}

// hand gives an event to the idle process; the deadline starts to run. It
// reports false if the process went away before it had the event.
func (i *instance) hand(inv *invocation) bool {
	select {
	case <-i.polled: // left over from a poll that was broken off
	default:
	}
	inv.started = time.Now()
	inv.deadline = inv.started.Add(i.pool.function.Timeout)
	select {
	case i.inbox <- inv:
		return true
	case <-i.exited:
		return false
	}
}

// initFailure says why the process ended before it asked for work.
func (i *instance) initFailure(requestID string) outcome {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.initError != nil {
		return postedError(i.initError, i.initType)
	}
	return exitError(requestID, i.cmd.ProcessState)
}
