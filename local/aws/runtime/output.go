package runtime

import (
	"bytes"
	"fmt"
	"io"
	"sync"
)

// maxLine bounds the memory of a line that never ends.
const maxLine = 64 << 10

// lines passes on each line of a stream.
type lines struct {
	emit func(line string)

	mu      sync.Mutex
	partial []byte
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
			l.emit(string(bytes.TrimSuffix(l.partial[:end], []byte{'\r'})))
			l.partial = l.partial[end+1:]
		case len(l.partial) > maxLine:
			l.emit(string(l.partial[:maxLine]))
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
		l.emit(string(l.partial))
		l.partial = nil
	}
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
