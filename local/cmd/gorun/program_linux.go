package gorun

import (
	"os"
	"strconv"
	"strings"
)

// programOf returns the name of the program that a process runs, empty if there is
// no such process.
func programOf(pid int) string {
	name, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/comm")
	if err != nil {
		return ""
	}
	return strings.TrimSuffix(string(name), "\n")
}
