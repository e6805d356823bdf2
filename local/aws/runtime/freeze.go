package runtime

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/idem-go/idempotency/idem/testenv/child"
)

// Lambda freezes an execution environment between invocations: nothing in it runs, so
// goroutines that a handler leaves behind stop until the next event, and connections may be
// dead by then.

const (
	stopPoll = 100 * time.Microsecond
	// stopLimit is for a process that is continued at the same time.
	stopLimit = 2 * time.Second
)

// freeze stops the process and all that it has started, and returns when the process has
// stopped, or has ended. kill(2) returns earlier: on a busy machine a thread of the process may run
// for a while.
func (i *instance) freeze() {
	i.mu.Lock()
	if !i.reaped && signalGroup(i.cmd.Process, syscall.SIGSTOP) == nil {
		i.frozen = true
	}
	i.mu.Unlock()
	limit := time.After(stopLimit)
	for !stopped(i.cmd.Process.Pid) {
		select {
		case <-i.exited:
			return
		case <-limit:
			return
		case <-time.After(stopPoll):
		}
	}
}

// stopped reports whether all threads of a process have stopped. It is always true where the system
// has no /proc.
func stopped(pid int) bool {
	threads, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", pid))
	for _, thread := range threads {
		if state, err := os.ReadFile(thread); err == nil && !bytes.Contains(state, []byte(") T ")) {
			return false
		}
	}
	return true
}

// thaw continues a frozen process.
func (i *instance) thaw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.frozen && !i.reaped {
		signalGroup(i.cmd.Process, syscall.SIGCONT) // to a live group of our own
	}
	i.frozen = false
}

// killAll ends a process, its group, and what it has started in other groups, such as the program of a debugger. The
// latter are found where the system has /proc.
func killAll(pid int) error {
	for _, started := range child.Descendants(pid) {
		_ = syscall.Kill(started, syscall.SIGKILL) // or it has ended
	}
	return syscall.Kill(-pid, syscall.SIGKILL)
}

// signalGroup sends a signal to the process and all that it has started. Only SIGKILL reaches other groups.
func signalGroup(process *os.Process, signal syscall.Signal) error {
	if signal == syscall.SIGKILL {
		return killAll(process.Pid)
	}
	return syscall.Kill(-process.Pid, signal)
}
