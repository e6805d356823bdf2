package runtime

import (
	"fmt"
	"io"
	"sync"
)

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
