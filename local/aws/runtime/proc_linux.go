package runtime

import "syscall"

// processAttributes puts the child into a process group of its own, so that its
// own children can be signalled with it and Ctrl-C in a terminal reaches only
// the parent, and has the kernel kill it if the thread that started it dies.
func processAttributes() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
