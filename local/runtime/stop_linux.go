package runtime

import (
	"os"
	"syscall"
	"unsafe"
)

const (
	idTypePID      = 1   // P_PID of waitid(2)
	sizeofSiginfo  = 128 // siginfo_t
	stoppedNotDead = syscall.WSTOPPED | syscall.WNOWAIT
)

// awaitStop returns when a child that was sent SIGSTOP stands still, or is
// gone. kill(2) returns earlier: a thread of the process on a busy machine may
// go on for a while.
func awaitStop(process *os.Process, signal os.Signal) {
	if signal != syscall.SIGSTOP {
		return
	}
	var info [sizeofSiginfo]byte
	for {
		// The state is left in place, and exits are not asked for, so that this
		// does not interfere with the wait for the end.
		_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idTypePID, uintptr(process.Pid),
			uintptr(unsafe.Pointer(&info[0])), stoppedNotDead, 0, 0)
		if errno != syscall.EINTR {
			return
		}
	}
}
