//go:build !unix

package gorun

import (
	"errors"
	"os"
	"os/exec"
	"os/signal"
)

// Become runs the program as a child where a process cannot become another one, and
// ends with its exit code. Ctrl-C reaches the child too, which ends in order.
func Become(path string, args []string) error {
	signal.Ignore(os.Interrupt)
	cmd := exec.Command(path, args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err == nil || errors.As(err, &exit) {
		os.Exit(cmd.ProcessState.ExitCode())
	}
	return err
}
