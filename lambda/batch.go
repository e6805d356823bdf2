package idemlambda

import (
	"sync"

	"github.com/idem-go/idempotency/idem"
)

// batch is one event on its way.
type batch[R any] struct {
	*source[R]
	mu    sync.Mutex
	twins map[identity]*twin[R]
	// last is the latest record of each key.
	last map[string]*twin[R]
}

// identity is what twins in an event have in common.
type identity struct {
	key         string
	fingerprint idem.Fingerprint
}

// twin is the first record of its identity, to which the others listen. Its
// outcome is there when the channel is closed.
type twin[R any] struct {
	done chan struct{}
	out  Delivery[R]
}

// twin returns what the records of the identity share, and whether it is new; if it
// is, also the record before it that has the same key and another body.
func (b *batch[R]) twin(id identity) (t, before *twin[R], first bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t = b.twins[id]; t != nil {
		return t, nil, false
	}
	t, before = &twin[R]{done: make(chan struct{})}, b.last[id.key]
	b.twins[id], b.last[id.key] = t, t
	return t, before, true
}

// turn keeps the event's order where records start side by side: of two with one key
// the first one in the event gets it. Its record waits for the one before it, and lets
// the next one go as soon as it has its place.
type turn struct {
	before <-chan struct{}
	mine   chan struct{}
	once   sync.Once
}

// wait returns when it is the record's turn.
func (t *turn) wait() {
	if t != nil {
		<-t.before
	}
}

// pass lets the next one go, once all before it have.
func (t *turn) pass() {
	if t != nil {
		t.once.Do(func() {
			<-t.before
			close(t.mine)
		})
	}
}
