package deliveries

import (
	"fmt"
	"hash/fnv"
	"slices"
)

const (
	poisonEvery    = 97
	permanentEvery = 89
	// From this run on a message that is not poison fails no more.
	lastFailure = 3
)

// poison is for the long runs: all its receives have to be used up.
func poison(n int) bool    { return long() && n%poisonEvery == 7 }
func permanent(n int) bool { return !poison(n) && n%permanentEvery == 11 }

// anyFate lets a handler end in every way, depending on the message and the run
// alone.
func anyFate(n, run int) string {
	switch {
	case poison(n):
		return "error before"
	case permanent(n):
		return "permanent"
	case run > lastFailure:
		return "ok"
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "seed 5/%d/%d", n, run)
	p := int(h.Sum32() % 1000)
	at := slices.IndexFunc(odds, func(o odd) bool { return p < o.below })
	if at < 0 {
		return "ok"
	}
	return odds[at].fate
}

type odd struct {
	below int
	fate  string
}

var odds = []odd{
	{50, "error before"}, {90, "error after"}, {140, "not executed"}, {160, "panic before"}, {180, "panic after"}, {182, "hang"},
}
