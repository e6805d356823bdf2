// Package progress reports every two seconds which steps of a command are under way, so that
// the command is not silent for long.
package progress

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// Board knows the steps that are under way. Its methods, and those of its steps, may be
// called from several goroutines at once.
type Board struct {
	say   func(format string, args ...any)
	begun time.Time

	mu    sync.Mutex
	steps []*Step

	stop chan struct{}
	work sync.WaitGroup
}

// Open returns a board that says a line every two seconds while a step is under way,
// until it is closed. say gets a line without its end, as of fmt.Sprintf.
func Open(say func(format string, args ...any)) *Board {
	b := &Board{say: say, begun: time.Now(), stop: make(chan struct{})}
	b.work.Go(b.run)
	return b
}

// Close stops the board. After it has returned, say is not called any more.
func (b *Board) Close() {
	close(b.stop)
	b.work.Wait()
}

func (b *Board) run() {
	tick := time.Tick(2 * time.Second)
	for {
		select {
		case <-b.stop:
			return
		case <-tick:
			if line := b.line(); line != "" {
				b.say("  %v: still %s", time.Since(b.begun).Round(time.Second), line)
			}
		}
	}
}

func (b *Board) line() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var parts []string
	for _, s := range b.steps {
		parts = append(parts, s.text)
	}
	return strings.Join(parts, ", ")
}

// Step is something under way.
type Step struct {
	board      *Board
	name, text string
}

// Begin adds a step: what is being done, such as "compiling".
func (b *Board) Begin(name string) *Step {
	s := &Step{board: b, name: name, text: name}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.steps = append(b.steps, s)
	return s
}

// Note says how far the step is.
func (s *Step) Note(format string, args ...any) {
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	s.text = s.name + " (" + fmt.Sprintf(format, args...) + ")"
}

// End removes the step from the board.
func (s *Step) End() {
	s.board.mu.Lock()
	defer s.board.mu.Unlock()
	s.board.steps = slices.DeleteFunc(s.board.steps, func(other *Step) bool { return other == s })
}
