package outbox_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// memoryStore is a store in memory.
type memoryStore struct {
	mu   sync.Mutex
	all  map[outbox.Ref]*outbox.Entry
	page int
	// largest is the size of the most that was loaded at once; loaded counts messages.
	largest, loaded int
	// fault, if set, is asked before every call; after, when it has been applied.
	fault, after func(op string) error
}

func newMemoryStore() *memoryStore {
	return &memoryStore{all: map[outbox.Ref]*outbox.Entry{}, page: 100}
}

// put stores the n-th message of a record, as a transaction does.
func (s *memoryStore) put(record string, n int, key string) outbox.Ref {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := &outbox.Entry{
		Record: record, State: outbox.New, Number: n, Created: time.Now(),
		Message: outbox.Message{
			ID: idOf(record, n), Destination: "orders", OrderingKey: key, Body: fmt.Appendf(nil, "%s/%d", record, n),
		},
	}
	for i := range n {
		e.After = append(e.After, idOf(record, i))
	}
	s.all[e.Ref()] = e
	return e.Ref()
}

// created is when all records of the tests were created.
var created = time.UnixMilli(1_700_000_000_000)

func idOf(record string, n int) string { return outbox.MessageID(record, created, fmt.Sprint(n)) }

func (s *memoryStore) get(ref outbox.Ref) outbox.Entry {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.all[ref]
}

// at has the store do this before each call of a method, which fails with what it returns.
func (s *memoryStore) at(op string, do func() error) {
	s.fault = func(called string) error {
		if called != op {
			return nil
		}
		return do()
	}
}

func (s *memoryStore) call(op string, f func() error) error {
	if s.fault != nil {
		if err := s.fault(op); err != nil {
			return err
		}
	}
	s.mu.Lock()
	err := f()
	s.mu.Unlock()
	if err == nil && s.after != nil {
		err = s.after(op)
	}
	return err
}

func (s *memoryStore) Load(_ context.Context, refs []outbox.Ref, size int) (found map[outbox.Ref]*outbox.Entry,
	read int, err error) {
	found = map[outbox.Ref]*outbox.Entry{}
	err = s.call("Load", func() error {
		sum := 0
		for _, ref := range refs {
			if e := s.all[ref]; e != nil {
				if size -= e.Size(); size < 0 && read > 0 {
					return nil
				}
				c := *e
				found[ref] = &c
				sum += e.Size()
				s.largest, s.loaded = max(s.largest, sum), s.loaded+1
			}
			read++
		}
		return nil
	})
	return found, read, err
}

func (s *memoryStore) Waiting(_ context.Context, shard int, destination string, before time.Time, cursor string) (
	[]outbox.Ref, string, error) {
	return s.list("Waiting", shard, func(name string) bool { return name == destination }, before, cursor)
}

func (s *memoryStore) Strays(_ context.Context, shard int, destinations []string, before time.Time, cursor string) (
	[]outbox.Ref, string, error) {
	return s.list("Strays", shard, func(name string) bool { return !slices.Contains(destinations, name) }, before, cursor)
}

func (s *memoryStore) list(op string, shard int, wanted func(destination string) bool, before time.Time,
	cursor string) (page []outbox.Ref, next string, err error) {
	err = s.call(op, func() error {
		var list []*outbox.Entry
		for _, e := range s.all {
			if wanted(e.Destination) && waits(e) && (isHeld(e) || !e.Created.After(before)) &&
				shardOf(cmp.Or(e.OrderingKey, e.ID)) == shard {
				list = append(list, e)
			}
		}
		slices.SortFunc(list, byPlace)
		lanes := map[outbox.Lane]int{}
		for i, e := range list {
			if place(e) <= cursor {
				continue
			}
			if lanes[laneOf(e)]++; isHeld(e) && lanes[laneOf(e)] > outbox.MaxHeld {
				continue
			}
			if len(page) == s.page {
				next = place(list[i-1])
				return nil
			}
			page = append(page, e.Ref())
		}
		return nil
	})
	return page, next, err
}

func shardOf(key string) int {
	h := fnv.New32a()
	h.Write([]byte(key))
	return int(h.Sum32() % outbox.Shards)
}

func place(e *outbox.Entry) string {
	lane := ""
	if isHeld(e) {
		lane = e.Destination + " " + e.OrderingKey
	}
	return fmt.Sprintf("%v %s %020d %s %04d", !isHeld(e), lane, e.Created.UnixNano(), e.Record, e.Number)
}

func byPlace(a, b *outbox.Entry) int { return strings.Compare(place(a), place(b)) }

// isHeld reports whether the message is one of those that Held lists.
func isHeld(e *outbox.Entry) bool { return e.OrderingKey != "" && e.State == outbox.Retrying }

func laneOf(e *outbox.Entry) outbox.Lane {
	return outbox.Lane{Destination: e.Destination, OrderingKey: e.OrderingKey}
}

func (s *memoryStore) Held(_ context.Context, lanes []outbox.Lane) (map[outbox.Lane][]outbox.Ref, error) {
	found := map[outbox.Lane][]outbox.Ref{}
	return found, s.call("Held", func() error {
		var list []*outbox.Entry
		for _, e := range s.all {
			if isHeld(e) && slices.Contains(lanes, laneOf(e)) {
				list = append(list, e)
			}
		}
		slices.SortFunc(list, byPlace)
		for _, e := range list {
			if l := laneOf(e); len(found[l]) < outbox.MaxHeld {
				found[l] = append(found[l], e.Ref())
			}
		}
		return nil
	})
}

func (s *memoryStore) HeldAfter(_ context.Context, last *outbox.Entry) (refs []outbox.Ref, err error) {
	err = s.call("HeldAfter", func() error {
		after := *last
		after.State = outbox.Retrying
		var list []*outbox.Entry
		for _, e := range s.all {
			if isHeld(e) && laneOf(e) == laneOf(last) && place(e) > place(&after) {
				list = append(list, e)
			}
		}
		slices.SortFunc(list, byPlace)
		for _, e := range list[:min(len(list), outbox.MaxHeld)] {
			refs = append(refs, e.Ref())
		}
		return nil
	})
	return refs, err
}

func (s *memoryStore) change(ctx context.Context, op string, e *outbox.Entry, may func(*outbox.Entry) bool,
	change func(*outbox.Entry)) (ok bool, err error) {
	err = s.call(op, func() error {
		if err := ctx.Err(); err != nil {
			return err // as of a database
		}
		now := s.all[e.Ref()]
		if ok = now != nil && now.Created.Equal(e.Created) && may(now); ok {
			change(now)
		}
		return nil
	})
	return ok && err == nil, err
}

func waits(e *outbox.Entry) bool { return e.State == outbox.New || e.State == outbox.Retrying }

func (s *memoryStore) Begin(ctx context.Context, e *outbox.Entry, tries int, next time.Time) (bool, error) {
	return s.change(ctx, "Begin", e, func(e *outbox.Entry) bool { return waits(e) && e.Tries < tries },
		func(e *outbox.Entry) { e.Tries, e.NextTry, e.State = tries, next, outbox.Retrying })
}

func (s *memoryStore) Retry(ctx context.Context, e *outbox.Entry, tries int, next time.Time,
	reason string) (bool, error) {
	known := max(tries, e.Tries)
	return s.change(ctx, "Retry", e, func(e *outbox.Entry) bool { return waits(e) && e.Tries <= known },
		func(e *outbox.Entry) { e.Tries, e.NextTry, e.Reason, e.State = tries, next, reason, outbox.Retrying })
}

func (s *memoryStore) DeadLetter(ctx context.Context, _ time.Time, e *outbox.Entry, tries int,
	reason string) (bool, error) {
	return s.change(ctx, "DeadLetter", e, waits,
		func(e *outbox.Entry) { e.Tries, e.Reason, e.State = tries, reason, outbox.Dead })
}

func (s *memoryStore) Dispatch(ctx context.Context, now time.Time, e *outbox.Entry, sentID string,
	_ time.Time) (bool, error) {
	return s.change(ctx, "Dispatch", e, func(e *outbox.Entry) bool { return e.State != outbox.Dispatched },
		func(e *outbox.Entry) { e.State, e.SentID, e.SentAt = outbox.Dispatched, sentID, now })
}

// post is a sender that keeps what it was given.
type post struct {
	mu    sync.Mutex
	sent  []outbox.Message // taken, in order
	tries int
	// fault, if set, decides on each message.
	fault func(m outbox.Message) error
	calls [][]string
	// before, if set, is called before each call: it may sleep.
	before func()
}

// failIf makes the sends of some messages fail.
func (p *post) failIf(fails func(outbox.Message) bool, err error) {
	p.fault = func(m outbox.Message) error {
		if fails(m) {
			return err
		}
		return nil
	}
}

// fails makes every send fail while down is true, as it is at first.
func (p *post) fails() (down *atomic.Bool) {
	down = new(atomic.Bool)
	down.Store(true)
	p.failIf(func(outbox.Message) bool { return down.Load() }, errDown)
	return down
}

// failFor makes the sends of one message fail.
func (p *post) failFor(id string, err error) {
	p.failIf(func(m outbox.Message) bool { return m.ID == id }, err)
}

func (p *post) Send(_ context.Context, messages []outbox.Message) []outbox.Sent {
	if p.before != nil {
		p.before()
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]outbox.Sent, len(messages))
	keys := map[string]bool{}
	var call []string
	for i, m := range messages {
		if m.OrderingKey != "" && keys[m.OrderingKey] {
			panic("two messages with one ordering key in a call")
		}
		keys[m.OrderingKey] = true
		call = append(call, string(m.Body))
		p.tries++
		if p.fault != nil {
			all[i].Err = p.fault(m)
		}
		if all[i].Err == nil {
			all[i].ID = serviceID(p.tries)
			p.sent = append(p.sent, m)
		}
	}
	p.calls = append(p.calls, call)
	return all
}

// serviceID is what a service gives to the message of the n-th try that reaches it.
func serviceID(n int) string { return fmt.Sprint("sent-", n) }

// sending is a sender.
type sending func(context.Context, []outbox.Message) []outbox.Sent

func (f sending) Send(ctx context.Context, messages []outbox.Message) []outbox.Sent {
	return f(ctx, messages)
}

// inBatches sends so many messages a request, which fails as a whole or not.
func inBatches(count int, request func(context.Context, []outbox.Message) error) outbox.Sender {
	return sending(func(ctx context.Context, messages []outbox.Message) []outbox.Sent {
		return outbox.InBatches(ctx, messages, outbox.Limits{Count: count, Bytes: 1 << 20},
			func(*outbox.Message) int { return 1 }, func(ctx context.Context, batch []outbox.Message) ([]outbox.Sent, error) {
				return make([]outbox.Sent, len(batch)), request(ctx, batch)
			})
	})
}

func (p *post) bodies() (list []string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.sent {
		list = append(list, string(m.Body))
	}
	return list
}

var errDown = errors.New("the queue is down")

func relay(t *testing.T, s outbox.Store, orders outbox.Sender, o *outbox.Options) *outbox.Relay {
	t.Helper()
	r, err := outbox.NewRelay(s, map[string]outbox.Sender{"orders": orders}, o)
	require.NoError(t, err)
	return r
}

// withStore runs a test with a store, a sender to "orders" and a relay of theirs with the default
// options, in a bubble with a clock of its own.
func withStore(t *testing.T, test func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s, p := newMemoryStore(), &post{}
		test(t, s, p, relay(t, s, p, nil))
	})
}
