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

// Tail keeps the last 20 lines of an output and passes on the address in the
// child's announcement. Safe for concurrent use.
type Tail struct {
	listening chan string // gets at most one

	mu      sync.Mutex
	lines   []string
	partial []byte
}

// NewTail returns an empty one.
func NewTail() *Tail { return &Tail{listening: make(chan string, 1)} }

// Listening gets the address of the first announcement, once.
func (t *Tail) Listening() <-chan string { return t.listening }

// Write never fails.
func (t *Tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.partial = append(t.partial, p...)
	for {
		line, rest, found := bytes.Cut(t.partial, []byte("\n"))
		if !found {
			break
		}
		t.add(string(bytes.TrimRight(line, "\r")))
		t.partial = rest
	}
	// A line without an end must not grow for ever.
	if len(t.partial) > 4096 {
		t.add(string(t.partial))
		t.partial = nil
	}
	return len(p), nil
}

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

// String returns the kept lines, indented.
func (t *Tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	lines := t.lines
	if len(t.partial) > 0 {
		lines = append(lines[:len(lines):len(lines)], string(t.partial))
	}
	if len(lines) == 0 {
		return "  (nothing)"
	}
	return "  " + strings.Join(lines, "\n  ")
}
