package ledger

import (
	"fmt"
	"regexp"
	"sync"

	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// tally counts what was done to the calls, and what the processes said, and knows the
// transactions that were sent.
type tally struct {
	mu      sync.Mutex
	faults  map[string]int // by fault
	notices map[string]int // by the processes' own messages
	commits map[string]*commit
}

// commit is a transaction under its client request token.
type commit struct {
	number int  // from 1, in the order in which they come
	thrown bool // the network's: its first try has had its fault
}

func newTally() *tally {
	return &tally{faults: map[string]int{}, notices: map[string]int{}, commits: map[string]*commit{}}
}

// commit is the transaction that a call sends, nil if it sends none.
func (t *tally) commit(c *faultnet.Call) *commit {
	if c.Operation != "TransactWriteItems" {
		return nil
	}
	var in struct{ ClientRequestToken string }
	_ = c.Read(&in) // the SDK has written it
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.commits[in.ClientRequestToken] == nil {
		t.commits[in.ClientRequestToken] = &commit{number: len(t.commits) + 1}
	}
	return t.commits[in.ClientRequestToken]
}

func (t *tally) inject(fault string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults[fault]++
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
	return fmt.Sprintf("%d transactions; faults %v; notices %v", len(t.commits), t.faults, t.notices)
}

func (t *tally) fault(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.faults[name]
}

func (t *tally) notice(name string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.notices[name]
}
