package child

import (
	"bytes"
	"strings"
	"sync"
)

// The child's announcement.
const listeningPrefix = "Listening on "

// How much of the output is kept for an error message.
const tailLines = 20

// Lines is a writer that passes on each line. Safe for concurrent use.
type Lines struct {
	Emit func(line string)

	mu      sync.Mutex
	partial []byte
}

// maxLine bounds the memory of a line that never ends.
const maxLine = 64 << 10

// Write takes any piece of the stream and never fails, so that a process does not die of
// a broken pipe.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.partial = append(l.partial, p...)
	for {
		line, rest, whole := bytes.Cut(l.partial, []byte("\n"))
		switch {
		case whole:
			l.Emit(string(bytes.TrimSuffix(line, []byte("\r"))))
			l.partial = rest
		case len(line) > maxLine:
			l.Emit(string(line[:maxLine]))
			l.partial = line[maxLine:]
		default:
			return len(p), nil
		}
	}
}

// Flush ends a last line without newline.
func (l *Lines) Flush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.partial) > 0 {
		l.Emit(string(l.partial))
		l.partial = nil
	}
}

// Tail keeps the last 20 lines of an output and passes on the address in the
// child's announcement. Safe for concurrent use.
type Tail struct {
	Lines
	listening chan string // gets at most one
	lines     []string
}

// NewTail returns an empty one.
func NewTail() *Tail {
	t := &Tail{listening: make(chan string, 1)}
	t.Emit = t.add
	return t
}

// Listening gets the address of the first announcement, once.
func (t *Tail) Listening() <-chan string { return t.listening }

func (t *Tail) add(line string) {
	if address, ok := strings.CutPrefix(line, listeningPrefix); ok {
		select {
		case t.listening <- address:
		default:
		}
	}
	t.lines = append(t.lines, line)
	if len(t.lines) > tailLines {
		t.lines = t.lines[len(t.lines)-tailLines:]
	}
}

// String returns the kept lines, indented. A line that has no end yet is one, too.
func (t *Tail) String() string {
	t.Flush()
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.lines) == 0 {
		return "  (nothing)"
	}
	return "  " + strings.Join(t.lines, "\n  ")
}
