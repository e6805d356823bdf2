package runtime

import (
	"os"
	"syscall"
)

// Lambda freezes an execution environment between invocations: nothing in it runs, so
// goroutines that a handler leaves behind stop until the next event, and connections may be
// dead by then.

// freeze stops the process and all that it has started, and returns when the process has
// stopped.
func (i *instance) freeze() {
	i.mu.Lock()
	if !i.gone && signalGroup(i.cmd.Process, syscall.SIGSTOP) == nil {
		i.frozen = true
	}
	i.mu.Unlock()
	awaitStop(i.cmd.Process, i.exited)
}

// thaw continues a frozen process.
func (i *instance) thaw() {
	i.mu.Lock()
	defer i.mu.Unlock()
	if i.frozen && !i.gone {
		signalGroup(i.cmd.Process, syscall.SIGCONT) // to a live group of our own
	}
	i.frozen = false
}

// signalGroup sends a signal to the process and all that it has started.
func signalGroup(process *os.Process, signal syscall.Signal) error {
	return syscall.Kill(-process.Pid, signal)
}
