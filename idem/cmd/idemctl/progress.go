package main

import (
	"fmt"
	"time"
)

// progress says on a terminal how far a long read is. Elsewhere it says nothing.
type progress struct {
	s           *session
	began, last time.Time
	shown       bool
}

// Reads shorter than patience say nothing.
const (
	patience = time.Second
	pace     = 200 * time.Millisecond
)

func (s *session) progress() *progress { return &progress{s: s, began: time.Now()} }

func (p *progress) say(format string, args ...any) {
	now := time.Now()
	if !p.s.watched || now.Sub(p.began) < patience || now.Sub(p.last) < pace {
		return
	}
	p.last, p.shown = now, true
	fmt.Fprintf(p.s.err, "\r\x1b[K"+format, args...)
}

// done takes the line away.
func (p *progress) done() {
	if p.shown {
		fmt.Fprint(p.s.err, "\r\x1b[K")
	}
}
