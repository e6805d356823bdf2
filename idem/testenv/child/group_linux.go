package child

import "syscall"

// OwnGroup puts a child into a process group of its own, so that its own children can
// be signalled with it and Ctrl-C in a terminal reaches only the parent. The kernel
// kills it when the thread that started it ends.
func OwnGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
}

// SameGroup leaves a child in its parent's process group, whose signals from a terminal it
// gets too. The kernel sends it a SIGTERM when the thread that started it ends.
func SameGroup() *syscall.SysProcAttr {
	return &syscall.SysProcAttr{Pdeathsig: syscall.SIGTERM}
}

// Unprivileged is [OwnGroup] for a server that refuses to run as root: under root it runs as the
// user [Nobody]. The kernel sends it end when the thread that started it ends.
func Unprivileged(end syscall.Signal) *syscall.SysProcAttr {
	attr := OwnGroup()
	attr.Pdeathsig, attr.Credential = end, unprivileged()
	return attr
}
