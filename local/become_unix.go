//go:build unix

package main

import (
	"os"
	"syscall"
)

// become runs the program in this process, whose parent stays `go run`. It returns
// only if it cannot.
func become(path string, args []string) error {
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, args, os.Environ())}
}
