package ledger

import (
	"time"

	"github.com/idem-go/idempotency/local/proof/faultnet"
)

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
