//go:build unix

package runtime

import (
	"fmt"
	"os"
	"syscall"
)

const (
	canFreeze      = true
	stopSignal     = syscall.SIGSTOP
	continueSignal = syscall.SIGCONT
)

// signalGroup sends a signal to the process and all that it has started.
func signalGroup(process *os.Process, signal os.Signal) error {
	number, ok := signal.(syscall.Signal)
	if !ok {
		return fmt.Errorf("runtime: signal %v is not a syscall.Signal", signal)
	}
	return syscall.Kill(-process.Pid, number)
}
