package ledger

import (
	"fmt"
	"regexp"
	"sync"
	"time"

	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// tally counts what was done to the calls, and what the processes said, and numbers the
// transactions that were sent.
type tally struct {
	*faultnet.Random

	mu         sync.Mutex
	unanswered map[string]int // transactions that got no answer, by which
	notices    map[string]int // by the processes' own messages
	commits    map[string]int // by client request token, from 1
}

// commit is the number of the transaction that a call sends, 0 if it sends none, and whether
// it sends it for the first time.
func (t *tally) commit(c *faultnet.Call) (number int, first bool) {
	if c.Operation != "TransactWriteItems" {
		return 0, false
	}
	var in struct{ ClientRequestToken string }
	_ = c.Read(&in) // the SDK has written it
	t.mu.Lock()
	defer t.mu.Unlock()
	if first = t.commits[in.ClientRequestToken] == 0; first {
		t.commits[in.ClientRequestToken] = len(t.commits) + 1
	}
	return t.commits[in.ClientRequestToken], first
}

func (t *tally) inject(fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.unanswered[fault]++
}

var notice = regexp.MustCompile(`idem: ([a-z, -]+?) kind=`)

// Write takes the output of processes.
func (t *tally) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range notice.FindAllSubmatch(p, -1) {
		t.notices[string(m[1])]++
	}
	return len(p), nil
}

func (t *tally) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return fmt.Sprintf("%d transactions; faults %v %v; notices %v", len(t.commits), t.Count(), t.unanswered, t.notices)
}

func (t *tally) fault(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.Count()[name] + t.unanswered[name]
}

func (t *tally) notice(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.notices[name]
}

// No try of a transaction is answered, and the first one arrives late: while its attempt
// still tries, or after it has given up.
const (
	stuckSoon  = "no try answered, one arrives soon"
	stuckLater = "no try answered, one arrives when all is over"
)

// everyStuck: one in so many transactions is stuck.
const everyStuck = 4

// stuck is a [faultnet.Rule] that has some transactions stuck, and leaves other calls to the
// rule.
func (t *tally) stuck(rule faultnet.Rule) faultnet.Rule {
	return func(c *faultnet.Call) faultnet.Fault {
		tx, first := t.commit(c)
		late := time.Duration(20+tx*379%1500) * time.Millisecond
		switch {
		case tx == 0 || tx%everyStuck != 0:
			return rule(c)
		case !first:
			return faultnet.LoseRequest
		case tx/everyStuck%2 == 0:
			t.inject(stuckSoon)
			return faultnet.LoseAndArrive(late / 10)
		}
		t.inject(stuckLater)
		return faultnet.LoseAndArrive(late + timeout)
	}
}
