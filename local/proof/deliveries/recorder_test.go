package deliveries

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
)

// run is one time that the handler ran.
type run struct {
	attempt, pid int
	fate         string
	end          string // how the handler ended; empty if its process went before
}

// recorder is asked by the function what to do, and so knows every run, whatever
// becomes of its process.
type recorder struct {
	url  string
	fate func(n, run int) string

	mu   sync.Mutex
	runs map[int][]*run
}

func newRecorder(t *testing.T, fate func(n, run int) string) *recorder {
	r := &recorder{fate: fate, runs: map[int][]*run{}}
	server := httptest.NewServer(r)
	t.Cleanup(server.Close)
	r.url = server.URL
	return r
}

func (r *recorder) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	number := func(name string) int {
		v, err := strconv.Atoi(req.FormValue(name))
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			panic(http.ErrAbortHandler)
		}
		return v
	}
	n, attempt, pid := number("n"), number("attempt"), number("pid")
	r.mu.Lock()
	defer r.mu.Unlock()
	switch req.URL.Path {
	case "/begin":
		begun := &run{attempt: attempt, pid: pid, fate: r.fate(n, len(r.runs[n])+1)}
		r.runs[n] = append(r.runs[n], begun)
		fmt.Fprint(w, begun.fate)
	case "/end":
		for _, of := range r.runs[n] {
			if of.attempt == attempt && of.pid == pid {
				of.end = req.FormValue("end")
				return
			}
		}
		http.Error(w, "it has not begun", http.StatusConflict)
	default:
		http.NotFound(w, req)
	}
}

// of are the runs of a message so far.
func (r *recorder) of(n int) []run {
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []run
	for _, begun := range r.runs[n] {
		all = append(all, *begun)
	}
	return all
}

// count of runs of all messages.
func (r *recorder) count() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, runs := range r.runs {
		n += len(runs)
	}
	return n
}

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
