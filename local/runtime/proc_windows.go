package runtime

import (
	"os"
	"syscall"
)

func processAttributes() *syscall.SysProcAttr { return nil }

// signalGroup can only kill here, and only the process itself.
func signalGroup(process *os.Process, signal os.Signal) error { return process.Signal(signal) }
