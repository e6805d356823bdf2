package queuepoller

import (
	"context"
	"sync"
	"time"
)

const (
	firstPause = 100 * time.Millisecond
	lastPause  = 5 * time.Second
)

// limiter bounds how many batches are on their way at once, and lowers the bound
// while the function fails.
type limiter struct {
	max int

	mu      sync.Mutex
	changed *sync.Cond
	allowed int
	running int
	pause   time.Duration // grows while the bound is down to one
	resume  time.Time
}

func newLimiter(most int) *limiter {
	l := &limiter{max: most, allowed: most}
	l.changed = sync.NewCond(&l.mu)
	return l
}

// acquire waits for a place. It reports false if the context ends first.
func (l *limiter) acquire(ctx context.Context) bool {
	stop := context.AfterFunc(ctx, l.wake)
	defer stop()
	l.mu.Lock()
	defer l.mu.Unlock()
	for ctx.Err() == nil {
		wait := time.Until(l.resume)
		if l.running < l.allowed && wait <= 0 {
			l.running++
			return true
		}
		if wait > 0 {
			timer := time.AfterFunc(wait, l.wake)
			l.changed.Wait()
			timer.Stop()
			continue
		}
		l.changed.Wait()
	}
	return false
}

// wake takes the lock, so that nobody misses it between looking and waiting.
func (l *limiter) wake() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed.Broadcast()
}

func (l *limiter) release() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running--
	l.changed.Broadcast()
}

// succeeded raises the bound by one, up to the maximum.
func (l *limiter) succeeded() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.allowed = min(l.max, l.allowed+1)
	l.pause, l.resume = 0, time.Time{}
	l.changed.Broadcast()
}

// failed halves the bound; where it is one already, the next batch waits.
func (l *limiter) failed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.allowed > 1 {
		l.allowed /= 2
		return
	}
	l.pause = min(max(firstPause, 2*l.pause), lastPause)
	l.resume = time.Now().Add(l.pause)
}
