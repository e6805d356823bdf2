package outbox_test

import (
	"context"
	"fmt"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// request is a sender that makes requests of ten messages. Each request takes its time,
// unless the sender's is over before.
func request(took time.Duration, fault error, sent func(outbox.Message)) outbox.Sender {
	return inBatches(10, func(ctx context.Context, batch []outbox.Message) error {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(took):
		}
		if fault != nil {
			return fault
		}
		for _, m := range batch {
			if sent != nil {
				sent(m)
			}
		}
		return nil
	})
}

// failing are destinations that should cost the others nothing.
var failing = map[string]outbox.Sender{
	"healthy":         request(10*time.Millisecond, nil, nil),
	"fails at once":   request(0, errDown, nil),
	"fails in 20 ms":  request(20*time.Millisecond, errDown, nil),
	"fails in 900 ms": request(900*time.Millisecond, errDown, nil),
	"fails in 8 s":    request(8*time.Second, errDown, nil),
	"hangs":           request(time.Hour, nil, nil),
	"takes 1.5 s":     request(1500*time.Millisecond, nil, nil),
	"takes 5 s":       request(5*time.Second, nil, nil),
	"has no route":    nil,
	"fails each tenth": sending(func(_ context.Context, messages []outbox.Message) []outbox.Sent {
		all := make([]outbox.Sent, len(messages))
		for i := range all {
			if i%10 == 0 {
				all[i].Err = errDown
			}
		}
		return all
	}),
}

// isolation has a healthy destination, whose requests take 100 ms, and a failing one.
type isolation struct {
	*memoryStore
	relay *outbox.Relay
	mu    sync.Mutex
	at    map[string]time.Time // when the healthy one has got a message
}

func newIsolation(t *testing.T, other outbox.Sender) *isolation {
	w := &isolation{memoryStore: newMemoryStore(), at: map[string]time.Time{}}
	senders := map[string]outbox.Sender{"orders": request(100*time.Millisecond, nil, func(m outbox.Message) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.at[m.ID] = time.Now()
	})}
	if other != nil {
		senders["failing"] = other
	}
	var err error
	w.relay, err = outbox.NewRelay(w, senders, nil)
	require.NoError(t, err)
	return w
}

// publish stores a message for one of the two.
func (w *isolation) publish(record, key string, failing bool) outbox.Ref {
	ref := w.put(record, 0, key)
	if failing {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.memoryStore.all[ref].Destination = "failing"
	}
	return ref
}

// customer is the ordering key of a message, if it has one.
func customer(ordered bool, n int) string {
	if ordered {
		return fmt.Sprint("customer", n)
	}
	return ""
}

// stream publishes and delivers batches of a hundred messages, and returns how long
// that has taken. Every tenth message is for the failing destination.
func (w *isolation) stream(t *testing.T, batches int, ordered, alone bool) time.Duration {
	begun := time.Now()
	longest := time.Duration(0)
	for b := range batches {
		var refs []outbox.Ref
		for n := range 100 {
			if alone && n%10 == 5 {
				continue
			}
			refs = append(refs, w.publish(fmt.Sprintf("r%d-%d", b, n), customer(ordered, n), n%10 == 5))
		}
		called := time.Now()
		deliver(t, w.relay, refs...)
		longest = max(longest, time.Since(called))
	}
	require.Len(t, w.at, 90*batches, "all that is for the healthy one has been sent")
	require.LessOrEqual(t, longest, 5*time.Second, "what an invocation is kept alive for")
	return time.Since(begun)
}

// Whatever is wrong with a destination, the others' messages pass through the stream
// in one and a half times the time at most that they take alone.
func TestStreamIsNotHeldUp(t *testing.T) {
	batches := 20
	if os.Getenv("IDEM_LONG") == "1" {
		batches = 100 // a minute and a half
	}
	for name, other := range failing {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ordered %v", name, ordered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					alone := newIsolation(t, other).stream(t, batches, ordered, true)
					together := newIsolation(t, other).stream(t, batches, ordered, false)
					require.LessOrEqual(t, together, alone*3/2, "alone it takes %v", alone)
				})
			})
		}
	}
}

// The sweep too: what the stream has missed for a healthy destination goes out as if
// there were no backlog of a failing one.
func TestSweepIsNotHeldUp(t *testing.T) {
	healthy := 100
	if os.Getenv("IDEM_LONG") == "1" {
		healthy = 500
	}
	for name, other := range failing {
		for _, ordered := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, ordered %v", name, ordered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					last := func(backlog int) time.Duration {
						w := newIsolation(t, other)
						for n := range backlog {
							w.publish(fmt.Sprint("failing", n), customer(ordered, n), true)
						}
						time.Sleep(time.Second)
						for n := range healthy {
							w.publish(fmt.Sprint("healthy", n), customer(ordered, n), false)
						}
						time.Sleep(outbox.DefaultGrace)
						begun := time.Now()
						sweep(t, w.relay)
						require.Len(t, w.at, healthy)
						took := time.Duration(0)
						for _, at := range w.at {
							took = max(took, at.Sub(begun))
						}
						return took
					}
					alone := last(0)
					require.LessOrEqual(t, last(8*healthy), alone*3/2, "alone it takes %v", alone)
				})
			})
		}
	}
}

// A dead destination uses up the tries of those few that were sent to it, and of no
// other ones; once it is back, all go out, in their order.
func TestADeadDestinationSpendsNoTries(t *testing.T) {
	for _, ordered := range []bool{false, true} {
		deadDestination(t, hung, ordered)
		deadDestination(t, request(0, errDown, nil), ordered)
	}
}

func deadDestination(t *testing.T, failing outbox.Sender, ordered bool) {
	t.Helper()
	withStore(t, func(t *testing.T, s *memoryStore, p *post, _ *outbox.Relay) {
		dead := true
		r := relay(t, s, sending(func(ctx context.Context, messages []outbox.Message) []outbox.Sent {
			if dead {
				return failing.Send(ctx, messages)
			}
			return p.Send(ctx, messages)
		}), nil)
		var want []string
		looked := 0
		s.at("Held", func() error { looked++; return nil })
		for n := range 1000 {
			deliver(t, r, s.put(fmt.Sprintf("r%04d", n), 0, customer(ordered, n%50)))
			want = append(want, fmt.Sprintf("r%04d/0", n))
			time.Sleep(time.Second)
		}
		sweeps(t, r, 8, 5*time.Minute)
		tries := 0
		for _, e := range s.all {
			tries += e.Tries
			require.NotEqual(t, outbox.Dead, e.State)
		}
		require.Less(t, tries, 300, "one in ten seconds in the stream, and two requests a sweep")
		require.Less(t, looked, 200, "nor is it asked what waits for it each time")
		dead = false
		sweeps(t, r, 3, 5*time.Minute)
		require.ElementsMatch(t, want, p.bodies())
		if ordered {
			last := map[string]string{}
			for _, m := range p.sent {
				require.Less(t, last[m.OrderingKey], string(m.Body))
				last[m.OrderingKey] = string(m.Body)
			}
		}
	})
}
