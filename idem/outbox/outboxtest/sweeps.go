package outboxtest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// counting is a sender that counts by ordering key what it is given, and fails or ends the sweep where it should.
type counting struct {
	mu    sync.Mutex
	calls int
	sent  map[string]int
	err   error
	last  int // the call after which end is called
	end   func()
}

// Send implements [outbox.Sender].
func (c *counting) Send(_ context.Context, messages []outbox.Message) []outbox.Sent {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := make([]outbox.Sent, len(messages))
	for i, m := range messages {
		c.sent[m.OrderingKey]++
		all[i].Err = c.err
	}
	if c.calls++; c.calls == c.last {
		c.end()
	}
	return all
}

// sweep sweeps in a process of its own, which ends after so many calls.
func (b *box) sweep(c *counting, calls int) outbox.Report {
	ctx, cancel := context.WithCancel(b.t.Context())
	defer cancel()
	c.calls, c.last, c.end, c.sent = 0, calls, cancel, map[string]int{}
	r, err := outbox.NewRelay(b.Store, map[string]outbox.Sender{"orders": c}, nil)
	require.NoError(b.t, err)
	report, err := r.Sweep(ctx)
	require.True(b.t, err == nil || ctx.Err() != nil, "%v", err)
	return report
}

// Long lanes are sent side by side, ten messages a call, and to their ends.
func sideBySide(b *box) {
	for n := range 10 {
		b.left(Order(b.Lane(n)), 25, base)
	}
	var c counting
	require.Equal(b.t, 250, b.sweep(&c, -1).Sent)
	require.LessOrEqual(b.t, c.calls, 40)
}

// A lane with more than a sweep can send holds up no other one of its shard, and does not hide the oldest message.
func lookBehind(b *box) {
	b.left(Order(b.Lane(0)), 120, base)
	for n := range 30 {
		b.left(Order(b.Lane(1+n)), 1, base.Add(-3*time.Hour))
	}
	var c counting
	report := b.sweep(&c, 20)
	require.Len(b.t, c.sent, 31)
	require.Equal(b.t, base.Add(-3*time.Hour), report.OldestAt.UTC())
}

// Of what waits for a destination that is down a sweep reads no more than two pages, however long the lanes are.
func whenDown(b *box) {
	for n := range 11 {
		b.left(Order(b.Lane(n)), 60, base)
	}
	c := counting{err: errors.New("down")}
	report := b.sweep(&c, -1)
	require.Equal(b.t, 2, c.calls)
	require.LessOrEqual(b.t, report.Failed+report.Deferred+report.Skipped, 200)
}
