//go:build !linux

package child

import "syscall"

// OwnGroup puts a child into a process group of its own, so that its own children can
// be signalled with it and Ctrl-C in a terminal reaches only the parent.
func OwnGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setpgid: true} }

// SameGroup leaves a child in its parent's process group, whose signals from a terminal it
// gets too.
func SameGroup() *syscall.SysProcAttr { return &syscall.SysProcAttr{} }
