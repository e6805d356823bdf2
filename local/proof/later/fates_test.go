package later

import (
	"fmt"
	"hash/fnv"
)

// anyFate lets a worker end in every way, by the request and the run alone. A repeatable
// request is done at its third run at the latest.
func anyFate(n, run int) string {
	h := fnv.New32a()
	fmt.Fprintf(h, "seed 1/%d/%d", n, run)
	p := int(h.Sum32() % 100)
	for _, o := range []struct {
		below int
		fate  string
	}{{8, "die"}, {12, "panic"}, {18, "error"}, {26, "not executed"}} {
		if p < o.below && run < 3 {
			return o.fate
		}
	}
	if p >= 94 {
		return "permanent"
	}
	return "ok"
}
