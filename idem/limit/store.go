package limit

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// countedFor is how long a counter is kept once its window has ended, for callers with slow clocks.
const countedFor = time.Hour

// store counts a key before its record is made.
type store struct {
	protocol.Store
	counter    Counter
	operations map[string]PerTenant
	commits    attempts // that were counted
}

// Acquire implements [protocol.Store].
func (s *store) Acquire(ctx context.Context, now time.Time, c protocol.Claim) error {
	if _, err := s.admit(ctx, now, c, c.Record.Write); err != nil {
		return err
	}
	return s.Store.Acquire(ctx, now, c)
}

// Finish implements [protocol.Store]. An attempt's commit counts once, however often it is sent: a
// commit whose reply was lost may have landed, and one that was refused, or whose result was too
// large, is sent again in another form.
func (s *store) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	how, ok := f.Attempt.(protocol.Atomic)
	if ok && !s.commits.has(f.Owner) {
		counted, err := s.admit(ctx, now, how.Claim, f.Write)
		if err != nil {
			return err
		}
		if counted {
			s.commits.add(f.Owner)
		}
	}
	err := s.Store.Finish(ctx, now, f)
	if ok && err == nil {
		s.commits.remove(f.Owner)
	}
	return err
}

// admit counts the key of a claim that makes a record, or replaces one as a whole. A claim over
// another record than it has seen is refused as the store would refuse it, without counting. The
// store itself answers a write that has landed.
func (s *store) admit(ctx context.Context, now time.Time, c protocol.Claim, write string) (counted bool, err error) {
	id := c.Record.ID
	_, operation, _ := protocol.ParseRecordID(id) // empty for a record of shadow
	limit, limited := s.operations[operation]
	if !limited || c.Seen != "" && !c.Replace {
		return false, nil
	}
	rec, err := s.Get(ctx, id)
	switch {
	case err != nil:
		return false, protocol.Unsent(err)
	case rec.Bears(write):
		return false, nil
	case rec == nil && c.Seen != "", rec != nil && rec.Write != c.Seen:
		return false, &protocol.ConflictError{Existing: rec}
	}
	start := now.Truncate(limit.Window)
	end := start.Add(limit.Window)
	tenant := id[:strings.LastIndexByte(id, '#')] // and operation
	counter := fmt.Sprintf("%s#limit#%d#%d", tenant, limit.Window/time.Second, start.Unix())
	counted, err = s.counter.CountKey(ctx, counter, limit.Keys, end.Add(countedFor))
	if err != nil {
		return false, protocol.Unsent(err)
	}
	if !counted {
		return false, &protocol.LimitExceededError{RetryAfter: max(end.Sub(now), time.Second)}
	}
	return true, nil
}

// generation is how many attempts are remembered at least.
const generation = 1024

// attempts remembers the latest attempts, by their owners. One that is forgotten counts again.
type attempts struct {
	mu           sync.Mutex
	newer, older map[string]bool
}

func (a *attempts) has(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newer[owner] || a.older[owner]
}

func (a *attempts) add(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newer == nil || len(a.newer) >= generation {
		a.newer, a.older = map[string]bool{}, a.newer
	}
	a.newer[owner] = true
}

func (a *attempts) remove(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.newer, owner)
	delete(a.older, owner)
}
