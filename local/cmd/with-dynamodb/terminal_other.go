//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd)

package main

import "os"

var passedOn = []os.Signal{os.Interrupt}

// fromTerminal: an interrupt reaches every process of the console by itself.
func fromTerminal(os.Signal) bool { return true }
