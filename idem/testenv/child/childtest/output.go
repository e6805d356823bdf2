package childtest

import (
	"strings"
	"sync"
)

// Output collects what a process writes, while a test reads it. The zero value is ready.
type Output struct {
	mu   sync.Mutex
	text strings.Builder
}

// Write adds to the text.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// String is the text so far.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
