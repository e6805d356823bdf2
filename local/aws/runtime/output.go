package runtime

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// Output is what an instance has written last, line by line.
type Output struct {
	Stdout, Stderr []string
}

// maxLine bounds the memory of a line that never ends.
const maxLine = 64 << 10

// lines keeps the last lines of one stream and passes each on.
type lines struct {
	limit int
	emit  func(line string)

	mu      sync.Mutex
	partial []byte
	last    []string
}

// Write takes any piece of the stream and never fails, so that a function does
// not die of a broken pipe.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		end := bytes.IndexByte(l.partial, '\n')
		switch {
		case end >= 0:
			l.add(string(bytes.TrimSuffix(l.partial[:end], []byte{'\r'})))
			l.partial = l.partial[end+1:]
		case len(l.partial) > maxLine:
			l.add(string(l.partial[:maxLine]))
			l.partial = l.partial[maxLine:]
		default:
			return len(p), nil
		}
	}
}

// flush ends a last line without newline.
func (l *lines) flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.add(string(l.partial))
		l.partial = nil
	}
}

func (l *lines) add(line string) {
	if len(l.last) == l.limit {
		l.last = append(l.last[:0], l.last[1:]...)
	}
	l.last = append(l.last, line)
	l.emit(line)
}

func (l *lines) snapshot() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]string(nil), l.last...)
}

// sharedWriter serialises the lines of all instances.
type sharedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (s *sharedWriter) line(name string, pid int, line string) {
	if s.w == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprintf(s.w, "%s[%d] %s\n", name, pid, line) // a writer that fails must not stop a function
}
