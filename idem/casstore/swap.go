package casstore

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	mrand "math/rand/v2"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// change makes what is to be written of the row that is there, whose Version is 0 if there is none. It returns nil if
// nothing is: then the write has landed before. maybe says that an earlier try may have made the row.
type change func(old Row, maybe bool) (*Change, error)

const (
	// maxTries bounds how often a call is made that fails, of a context without a deadline.
	maxTries = 8
	// firstPause is about how long the third try waits: the second one is made at once, since a connection is often dead
	// after a process was frozen. Each further one waits twice as long, up to lastPause.
	firstPause = 20 * time.Millisecond
	lastPause  = time.Second
	// tryTime is what the first try gets besides the time for its bytes, listTime one that lists, later ones twice as
	// much each, and all no more than two thirds of what is left: a connection that is silently dead leaves time for
	// another try. leastTry is the least of all.
	tryTime  = time.Second
	listTime = 5 * tryTime
	leastTry = 50 * time.Millisecond
)

// swap changes a row, and follows it while others change it too. guess, if not nil, is what the row may be: a read
// that it saves if it is. What follows from a guess alone is not answered.
func (s *Store) swap(ctx context.Context, op, id string, guess *Row, make change) error {
	t := try{ctx: ctx, op: op}
	row := guess
	var read Row
	for {
		err := ctx.Err()
		if err == nil && row == nil {
			err = t.once(tryTime, 0, func(ctx context.Context) error {
				read, err = s.driver.Read(ctx, id)
				return err
			})
			if err == nil {
				row = &read
			}
		}
		if err == nil {
			var c *Change
			c, err = make(*row, t.maybe)
			switch {
			case c == nil && row == guess:
				row = nil
				continue
			case c == nil:
				return err
			}
			c.Seen, c.Row.ID, c.Row.Version = row.Version, id, version()
			var written bool
			write := func(ctx context.Context) error {
				read, written, err = s.driver.Write(ctx, *c)
				return err
			}
			if c.Unit != nil { // it cannot be sent again
				err = write(ctx)
			} else {
				err = t.once(tryTime, c.size(), write)
			}
			if written {
				s.claims.note(c)
				return nil
			}
			if row = &read; err == nil {
				continue
			}
			row = nil
		}
		if !t.again(err) {
			return t.failed(err)
		}
	}
}

// version is a random one: a row that was removed and made again never has a version that it had.
func version() int64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return int64(binary.LittleEndian.Uint64(b[:])>>1) | 1
}

// try makes a call again that fails.
type try struct {
	ctx   context.Context
	op    string
	n     int
	maybe bool  // an earlier try may have been applied
	up    bool  // one failed although the store may work
	last  error // of the last try that was not too late: it says more
}

// once makes one try, in its share of the time: so much at most, and what so many bytes need.
func (t *try) once(most time.Duration, size int, call func(context.Context) error) error {
	bytes := allowance(size)
	most <<= min(t.n, maxTries)
	if end, bounded := t.ctx.Deadline(); bounded {
		most = max(min(most, (time.Until(end)-bytes)*2/3), leastTry)
	}
	ctx, cancel := context.WithTimeout(t.ctx, bytes+most)
	defer cancel()
	return call(ctx)
}

// allowance is the time for so many bytes.
func allowance(size int) time.Duration { return time.Duration(size) * time.Second >> 20 }

// size is how many bytes the change has.
func (c *Change) size() int {
	n := len(c.Row.Data) + len(c.Row.Body)
	for _, part := range c.Put {
		n += len(part)
	}
	return n
}

// again reports whether the call is worth another try, once it has waited for it.
func (t *try) again(err error) bool {
	failed, ok := errors.AsType[*protocol.StoreError](err)
	t.maybe = t.maybe || ok && failed.Ambiguous
	t.up = t.up || ok && !failed.Down
	late := errors.Is(err, context.DeadlineExceeded)
	if !late {
		t.last = err
	}
	if !late && (!ok || !failed.Ambiguous && !failed.Down) {
		return false
	}
	pause := time.Duration(0)
	if t.n > 0 {
		pause = min(firstPause<<min(t.n-1, maxTries), lastPause)
		pause += time.Duration(mrand.Int64N(int64(pause)))
	}
	end, bounded := t.ctx.Deadline()
	if t.n++; !bounded && t.n == maxTries || bounded && time.Until(end) <= pause {
		return false
	}
	select {
	case <-time.After(pause):
		return t.ctx.Err() == nil
	case <-t.ctx.Done():
		return false
	}
}

// failed is the error of a call that was not made: an answer as it is.
func (t *try) failed(err error) error {
	failed, ok := errors.AsType[*protocol.StoreError](err)
	late := ok && errors.Is(err, context.DeadlineExceeded)
	if last, before := errors.AsType[*protocol.StoreError](t.last); late && before {
		failed = last
	}
	switch {
	case ok:
		e := *failed
		e.Op, e.Ambiguous, e.Down = t.op, t.maybe, !t.up
		e.Throttled = e.Throttled && e.Down
		return &e
	case t.ctx.Err() != nil && errors.Is(err, t.ctx.Err()):
		return &protocol.StoreError{Op: t.op, Ambiguous: t.maybe, Err: context.Cause(t.ctx)}
	}
	return err
}
