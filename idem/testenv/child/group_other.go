//go:build !linux

package child

import "syscall"

// OwnGroup puts a child into a process group of its own, so that its own children can
// be signalled with it and Ctrl-C in a terminal reaches only the parent.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// SameGroup leaves a child in its parent's process group, whose signals from a terminal it
// gets too.
func SameGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }

// Unprivileged is [OwnGroup] for a server that refuses to run as root: under root it runs as the
// user [Nobody].
func Unprivileged(syscall.Signal) *syscall.SysProcAttr {
	attr := OwnGroup()
	attr.Credential = unprivileged()
	return attr
}
