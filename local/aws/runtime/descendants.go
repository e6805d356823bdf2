package runtime

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
)

// killAll ends a process, its group, and what it has started in other groups, such as the program of a debugger. The
// latter are found where the system has /proc.
func killAll(pid int) error {
	for _, child := range descendants(pid) {
		_ = syscall.Kill(child, syscall.SIGKILL) // or it has ended
	}
	return syscall.Kill(-pid, syscall.SIGKILL)
}

// descendants are the processes that a process has started, and those that these have started.
func descendants(pid int) (all []int) {
	children := map[int][]int{}
	stats, _ := filepath.Glob("/proc/[0-9]*/stat") // a bad pattern is its only error
	for _, path := range stats {
		text, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		_, fields, _ := strings.Cut(string(text[strings.LastIndexByte(string(text), ')')+1:]), " ")
		if f := strings.Fields(fields); len(f) > 1 {
			parent, _ := strconv.Atoi(f[1])
			children[parent] = append(children[parent], id)
		}
	}
	for next := children[pid]; len(next) > 0; {
		all, next = append(all, next[0]), append(next[1:], children[next[0]]...)
	}
	return all
}
