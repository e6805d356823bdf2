package main

import (
	"context"
	"io"
)

// interruptible is an input that ends with the context: a terminal or a pipe may have nothing
// for long, and a read of it does not end by Ctrl-C.
type interruptible struct {
	ctx context.Context
	in  io.Reader
}

// Read leaves a read behind that has not ended. What that reads is lost.
func (r interruptible) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	type answer struct {
		n   int
		err error
	}
	own, done := make([]byte, len(p)), make(chan answer, 1)
	go func() {
		n, err := r.in.Read(own)
		done <- answer{n, err}
	}()
	select {
	case <-r.ctx.Done():
		return 0, r.ctx.Err()
	case a := <-done:
		return copy(p, own[:a.n]), a.err
	}
}
