//go:build unix && !linux

package gorun

import (
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// programOf returns the name of the program that a process runs, empty if there is
// no such process. ps and these options are POSIX's.
func programOf(pid int) string {
	name, err := exec.Command("ps", "-o", "comm=", "-p", strconv.Itoa(pid)).Output()
	if err != nil {
		return ""
	}
	return filepath.Base(strings.TrimSpace(string(name)))
}
