package peer

import (
	"fmt"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// story is a fault. Its calls have one key. play returns what the callers got; what comes of it is the
// number of times that the handler has run, and these answers.
type story struct {
	name             string
	play             func(*world) []answer
	powertools, idem string
}

func charge(number int) call { return call{Number: number, Key: "payment-1"} }

func once(number int) call {
	c := charge(number)
	c.Once = true
	return c
}

func waits(c call) call { c.Waits = true; return c }

// loseOneReply loses the reply to the first call of an operation.
func loseOneReply(n *faultnet.Network, operation string) {
	var lost atomic.Bool
	n.Set(func(c *faultnet.Call) faultnet.Fault {
		if c.Operation == operation && lost.CompareAndSwap(false, true) {
			return faultnet.LoseReply
		}
		return nil
	})
}

// superseded has call 1 frozen while its handler runs, call 2 made in another process when the time of the first
// one is over, and then the handler of call 1 end. Call 3 comes after that.
func superseded(w *world, first call) []answer {
	frozen, n := w.process()
	other, _ := w.process()
	frozen.begin(waits(first))
	w.untilBegun(1)
	n.Set(func(*faultnet.Call) faultnet.Fault { return faultnet.LoseRequest })
	time.Sleep(over)
	second := w.do(other, charge(2))
	n.Set(nil)
	frozen.proceed(1)
	return []answer{w.answer(1), second, w.do(other, charge(3))}
}

var stories = []story{{
	name: "the reply to the claim is lost",
	play: func(w *world) []answer {
		i, n := w.process()
		loseOneReply(n, "PutItem")
		return []answer{w.do(i, charge(1))}
	},
	powertools: "0 runs; IdempotencyAlreadyInProgressError",
	idem:       "1 run; the result of call 1",
}, {
	name:       "an attempt that another one has replaced succeeds late",
	play:       func(w *world) []answer { return superseded(w, charge(1)) },
	powertools: "2 runs; the result of call 1; the result of call 2; the result of call 1",
	idem:       "2 runs; the result of call 2; the result of call 2; the result of call 2",
}, {
	name: "an attempt that another one has replaced fails late",
	play: func(w *world) []answer {
		first := charge(1)
		first.Fails = true
		return superseded(w, first)
	},
	powertools: "3 runs; Error; the result of call 2; the result of call 3",
	idem:       "2 runs; the result of call 2; the result of call 2; the result of call 2",
}, {
	name: "the result has 450 KB",
	play: func(w *world) []answer {
		i, _ := w.process()
		large := func(number int) call {
			c := charge(number)
			c.Size = 450 << 10
			return c
		}
		first := w.do(i, large(1))
		time.Sleep(over)
		return []answer{first, w.do(i, large(2))}
	},
	powertools: "2 runs; IdempotencyPersistenceLayerError; IdempotencyPersistenceLayerError",
	idem:       "1 run; the result of call 1; the result of call 1",
}, {
	name: "the process dies in an operation that must not run twice",
	play: func(w *world) []answer {
		dies, _ := w.process()
		other, _ := w.process()
		dies.begin(waits(once(1)))
		w.untilBegun(1)
		dies.kill()
		time.Sleep(over)
		return []answer{w.do(other, once(2))}
	},
	powertools: "2 runs; the result of call 2",
	idem:       "1 run; ErrOutcomeUnknown",
}, {
	name: "the handler changes its input",
	play: func(w *world) []answer {
		i, _ := w.process()
		changes := func(number int) call {
			c := charge(number)
			c.Changes = true
			return c
		}
		first := w.do(i, changes(1))
		time.Sleep(over)
		return []answer{first, w.do(i, changes(2))}
	},
	powertools: "2 runs; the result of call 1; the result of call 2",
	idem:       "1 run; the result of call 1; the result of call 1",
}}

// What comes of each fault with Powertools, and with the library. The page has the same.
func TestFaults(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	t.Run("stories", func(t *testing.T) {
		for _, s := range stories {
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				require.Equal(t, s.powertools, tell(t, s, newWorld(t, startScript(t, powertoolsScript, remaining))), "Powertools")
				require.Equal(t, s.idem, tell(t, s, newWorld(t, startOurs(t, remaining))), "idem")
				require.Contains(t, string(page), fmt.Sprintf("| %s | %s | %s |\n", s.name, s.powertools, s.idem))
			})
		}
	})
	if t.Failed() {
		return
	}
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "fault\tPowertools\tidem")
	for _, s := range stories {
		fmt.Fprintf(table, "%s\t%s\t%s\n", s.name, s.powertools, s.idem)
	}
	require.NoError(t, table.Flush())
}

func tell(t *testing.T, s story, w *world) string {
	t.Helper()
	var answers []string
	for _, a := range s.play(w) {
		answers = append(answers, a.String())
	}
	runs := "runs"
	if w.runs() == 1 {
		runs = "run"
	}
	return fmt.Sprintf("%d %s; %s", w.runs(), runs, strings.Join(answers, "; "))
}
