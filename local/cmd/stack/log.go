package main

import (
	"os"
	"slices"
	"strings"
	"sync"
)

// keptLines bounds the memory of a stack that runs for days; the tour looks at a few.
const keptLines = 10_000

// logFile takes the lines of the functions, and of the parts that deliver to them. A function's
// line begins with its name and the process id in brackets. It is safe for concurrent use.
type logFile struct {
	*os.File
	mu     sync.Mutex
	latest []string
}

func newLog(path string) (*logFile, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	return &logFile{File: f}, err
}

// Write takes a whole line.
func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.latest = append(l.latest, string(line))
	l.latest = l.latest[max(len(l.latest)-keptLines, 0):]
	return l.File.Write(line)
}

// about lists the texts of those of the latest lines that have the text, such as a request's id.
func (l *logFile) about(text string) (all []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, line := range slices.Backward(l.latest) {
		if strings.Contains(line, text) {
			_, said, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			all = append(all, said)
		}
	}
	slices.Reverse(all)
	return all
}
