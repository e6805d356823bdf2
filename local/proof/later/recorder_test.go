package later

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
)

// run is one time that a worker ran a request.
type run struct {
	tenant, operation string
	attempt, pid      int
	fate              string
	ended             bool // the worker had done what it was told
	wrong             bool // it had the input of another request
}

// recorder is asked by the workers what to do, and so knows every run, whatever becomes of
// the process and of the table.
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
	n := number("n")
	r.mu.Lock()
	defer r.mu.Unlock()
	if req.URL.Path == "/end" {
		if i := number("run"); i < 1 || i > len(r.runs[n]) {
			http.Error(w, "it has not begun", http.StatusConflict)
		} else {
			r.runs[n][i-1].ended = true
		}
		return
	}
	sum := sha256.Sum256([]byte(padOf(n)))
	begun := &run{
		tenant: req.FormValue("tenant"), operation: req.FormValue("operation"), attempt: number("attempt"), pid: number("pid"),
		fate: r.fate(n, len(r.runs[n])+1), wrong: req.FormValue("pad") != hex.EncodeToString(sum[:]),
	}
	r.runs[n] = append(r.runs[n], begun)
	fmt.Fprintf(w, "%d %q", len(r.runs[n]), begun.fate)
}

// of are the runs of a request so far.
func (r *recorder) of(n int) (all []run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, begun := range r.runs[n] {
		all = append(all, *begun)
	}
	return all
}

// fates count the runs by what they were told.
func (r *recorder) fates() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[string]int{}
	for _, runs := range r.runs {
		for _, run := range runs {
			count[run.fate]++
		}
	}
	return count
}

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
