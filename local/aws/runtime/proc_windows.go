package runtime

import (
	"os"
	"syscall"
)

const (
	canFreeze = false
	// There are none here; Start refuses Options.Freeze.
	stopSignal     = syscall.Signal(-1)
	continueSignal = syscall.Signal(-1)
)

func processAttributes() *syscall.SysProcAttr { return nil }

// signalGroup can only kill here, and only the process itself.
func signalGroup(process *os.Process, signal os.Signal) error { return process.Signal(signal) }
