package ledger

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// tally counts what went over the networks, what the processes said, and what became
// of the transactions that were sent.
type tally struct {
	mu      sync.Mutex
	calls   map[string]int // by operation
	faults  map[string]int // by fault
	notices map[string]int // by the processes' own messages
	commits map[string]*commit
}

// commit is a transaction under its client request token.
type commit struct {
	number    int  // from 1, in the order in which they come
	thrown    bool // the network's: its first try has had its fault
	tries     int
	ambiguous bool // a try got no answer
	killed    bool // the process that sent it was killed over it
	applied   bool
	answered  bool // a try after an ambiguous one was answered
}

func newTally() *tally {
	return &tally{calls: map[string]int{}, faults: map[string]int{}, notices: map[string]int{}, commits: map[string]*commit{}}
}

// noted is one call of a tally.
type noted struct {
	*tally
	commit *commit
	fault  string
}

func (t *tally) call(c *faultnet.Call) *noted {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.calls[c.Operation]++
	n := &noted{tally: t}
	if c.Operation != "TransactWriteItems" {
		return n
	}
	var in struct{ ClientRequestToken string }
	_ = c.Read(&in) // the SDK has written it
	n.commit = t.commits[in.ClientRequestToken]
	if n.commit == nil {
		n.commit = &commit{number: len(t.commits) + 1}
		t.commits[in.ClientRequestToken] = n.commit
	}
	n.commit.tries++
	return n
}

func (n *noted) inject(fault string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.fault = fault; fault == "" {
		return
	}
	n.faults[fault]++
	if n.commit == nil || fault == conflict {
		return
	}
	n.commit.ambiguous = true
	if strings.HasPrefix(fault, "killed") {
		n.commit.killed = true
	}
}

func (n *noted) passed(status int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.commit == nil {
		return
	}
	if status == http.StatusOK {
		n.commit.applied = true
	}
	if n.commit.ambiguous && n.fault == "" {
		n.commit.answered = true
	}
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
	ambiguous := map[string]int{}
	for _, c := range t.commits {
		if !c.ambiguous {
			continue
		}
		how := "fenced, read or left to the next attempt"
		if c.killed {
			how = "killed over it"
		} else if c.answered {
			how = "answered when sent again"
		}
		if c.applied {
			how += ", landed"
		}
		ambiguous[how]++
	}
	var b strings.Builder
	for _, part := range []struct {
		name   string
		counts map[string]int
	}{{"calls", t.calls}, {"faults", t.faults}, {"ambiguous commits", ambiguous}, {"notices", t.notices}} {
		fmt.Fprintf(&b, "\n%s:", part.name)
		for _, name := range slices.Sorted(maps.Keys(part.counts)) {
			fmt.Fprintf(&b, " %s %d;", name, part.counts[name])
		}
	}
	return b.String()
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
