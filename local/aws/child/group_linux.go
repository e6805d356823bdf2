package child

import "syscall"

// ownGroup also asks for a kill when the parent is gone. The end of standard
// input says the same; this one needs no cooperation from the child.
func ownGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}
