package gorun

import (
	"os"
	"syscall"
)

// Become runs the program in this process, whose parent stays `go run`. It returns
// only if it cannot.
func Become(path string, args []string) error {
	return &os.PathError{Op: "exec", Path: path, Err: syscall.Exec(path, args, os.Environ())}
}
