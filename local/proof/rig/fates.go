package rig

import (
	"fmt"
	"hash/fnv"
)

// Fate is one way in which a run ends, and how many of a thousand runs do.
type Fate struct {
	Of1000 int
	Name   string
}

// Fates draws the fate of a request's run, by the seed, the request and the run alone. What is
// left of a thousand is "ok".
func Fates(seed string, odds []Fate) func(n, run int) string {
	return func(n, run int) string {
		h := fnv.New32a()
		fmt.Fprintf(h, "seed %s/%d/%d", seed, n, run)
		p := int(h.Sum32() % 1000)
		for _, o := range odds {
			if p -= o.Of1000; p < 0 {
				return o.Name
			}
		}
		return "ok"
	}
}
