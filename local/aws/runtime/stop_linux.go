package runtime

import (
	"encoding/binary"
	"os"
	"syscall"
	"time"
	"unsafe"
)

const (
	idTypePID     = 1   // P_PID of waitid(2)
	sizeofSiginfo = 128 // siginfo_t
	// The state is left in place, and exits are not asked for, so that this does
	// not interfere with the wait for the end.
	stoppedNotDead = syscall.WSTOPPED | syscall.WNOWAIT | syscall.WNOHANG

	stopPoll = 100 * time.Microsecond
	// stopLimit is for a process that is continued at the same time.
	stopLimit = 2 * time.Second
)

// awaitStop returns when a child that was sent SIGSTOP has stopped, or is gone. kill(2)
// returns earlier: on a busy machine a thread of the process may run for a while.
func awaitStop(process *os.Process, exited <-chan struct{}) {
	tick := time.NewTicker(stopPoll)
	defer tick.Stop()
	limit := time.NewTimer(stopLimit)
	defer limit.Stop()
	for !stopped(process.Pid) {
		select {
		case <-exited:
			return
		case <-limit.C:
			return
		case <-tick.C:
		}
	}
}

// stopped reports whether the child has stopped, or is no longer a child.
func stopped(pid int) bool {
	var info [sizeofSiginfo]byte
	_, _, errno := syscall.Syscall6(syscall.SYS_WAITID, idTypePID, uintptr(pid),
		uintptr(unsafe.Pointer(&info[0])), stoppedNotDead, 0, 0)
	if errno == syscall.EINTR {
		return false
	}
	// si_signo stays 0 if there was nothing to report.
	return errno != 0 || binary.NativeEndian.Uint32(info[:4]) != 0
}
