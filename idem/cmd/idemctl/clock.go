package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/internal/view"
)

// serverClock is the clock of the endpoints, as the Date of their replies has it. A decision
// uses the time: a lease that is over lets the handler run again. The clock of an operator's
// own machine may be wrong by minutes, and it is not noticed: the SDK corrects it where it signs.
//
// Between replies it goes on with the machine's. A Date is never fast: it is cut to its second,
// and is as old as its reply took. Within that the clock does not go back, also not behind the
// last write of a record that is read: else changes of one second would have no order. It is never
// ahead of the last Date and the time since then by more than the margin that a lease is given.
// https://www.rfc-editor.org/rfc/rfc9110#name-date
type serverClock struct {
	local func() time.Time

	mu          sync.Mutex
	date, heard time.Time     // the last Date, and when it came; both zero until a reply has had one
	ahead       time.Duration // by how much the clock is ahead of that, less than late
}

// late is by how much a Date may be late, and other machines' clocks ahead of it.
const late = idem.DefaultMargin

func (c *serverClock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := c.local()
	if c.date.IsZero() {
		return now
	}
	return c.dated(now).Add(c.ahead)
}

// dated is the time by the last Date, at a machine's time.
func (c *serverClock) dated(local time.Time) time.Time { return c.date.Add(local.Sub(c.heard)) }

// fast is by how much the machine's clock is ahead; known is false until a reply has had a Date.
func (c *serverClock) fast() (ahead time.Duration, known bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.heard.Round(0).Sub(c.date) - c.ahead, !c.date.IsZero()
}

// hear takes the time of a reply.
func (c *serverClock) hear(h http.Header) {
	if date, err := http.ParseTime(h.Get("Date")); err == nil {
		c.is(date)
	}
}

// is takes the time of a server.
func (c *serverClock) is(date time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	local := c.local()
	now := date
	if !c.date.IsZero() {
		now = c.dated(local).Add(c.ahead)
	}
	c.date, c.heard, c.ahead = date, local, 0
	c.advance(now.Sub(date))
}

// follow has the clock be later than a record's last write, by a millisecond, in which times are
// kept. A write that is further ahead has another clock's time.
func (c *serverClock) follow(written time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.date.IsZero() {
		c.advance(written.Add(time.Millisecond).Sub(c.dated(c.local())))
	}
}

// advance brings the clock that far ahead of the last Date and the time since, if it may be.
func (c *serverClock) advance(ahead time.Duration) {
	if ahead > c.ahead && ahead < late {
		c.ahead = ahead
	}
}

// followed is a store whose records the clock follows.
type followed struct {
	*dynamostore.AdminStore
	clock *serverClock
}

// Get implements [reconcile.Store].
func (f followed) Get(ctx context.Context, id string) (*idem.Record, error) {
	rec, err := f.AdminStore.Get(ctx, id)
	if rec != nil {
		f.clock.follow(rec.UpdatedAt)
	}
	return rec, err
}

// listen is an APIOption: the clock hears every reply of the clients, refusals too.
func (c *serverClock) listen(stack *middleware.Stack) error {
	return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("idemctl.serverClock",
		func(ctx context.Context, in middleware.DeserializeInput,
			next middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
			out, meta, err := next.HandleDeserialize(ctx, in)
			if res, ok := out.RawResponse.(*smithyhttp.Response); ok && res != nil {
				c.hear(res.Header)
			}
			return out, meta, err
		}), middleware.After)
}

// errUndated refuses changes.
var errUndated = errors.New("the server's replies have no Date, so its time is unknown, " +
	"and nothing was changed: leave the header in where a proxy takes it out")

// askTime has the clock hear the endpoint before the time is used.
func (s *session) askTime(ctx context.Context) error {
	ahead, known, err := s.table.time(ctx)
	switch {
	case err != nil:
		return err
	case !known:
		s.undated = true
		say(s.err, "The server's replies have no Date: times are those of this machine, "+
			"and changes are refused.")
	case ahead.Abs() > idem.DefaultMargin+time.Second:
		word := "fast"
		if ahead < 0 {
			word = "slow"
		}
		say(s.err, "The clock of this machine is %s by %s: times are those of the server.", word, view.Span(ahead))
	}
	return nil
}
