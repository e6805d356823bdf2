package main

import (
	"os"
	"syscall"
	"unsafe"
)

// passedOn are the signals that a terminal, make or a CI runner sends to stop a
// command.
var passedOn = []os.Signal{syscall.SIGINT, syscall.SIGQUIT, syscall.SIGTERM, syscall.SIGHUP}

// fromTerminal reports whether the terminal has sent s to the command too. The terminal sends
// Ctrl-C and Ctrl-\ to the whole foreground process group, which includes the command. If
// the signal were passed on, the command would get it twice, and many programs end at once
// after the second one.
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
