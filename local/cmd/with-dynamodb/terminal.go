package main

import (
	"os"
	"syscall"
	"unsafe"
)

// passedOn are the signals that a terminal, make or a CI runner sends to stop a
// command.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP}

// fromTerminal tells whether the terminal has sent s to the command too: it
// sends Ctrl-C and Ctrl-\ to the whole foreground process group, of which the
// command is a part. Passing it on would deliver it twice, and many programs
// take the second one for "at once".
func fromTerminal(s os.Signal) bool {
	if s != syscall.SIGINT && s != syscall.SIGQUIT {
		return false
	}
	tty, err := os.Open("/dev/tty")
	if err != nil {
		return false // no controlling terminal
	}
	defer tty.Close()
	var foreground int32
	_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, tty.Fd(), syscall.TIOCGPGRP, uintptr(unsafe.Pointer(&foreground)))
	return errno == 0 && int(foreground) == syscall.Getpgrp()
}
