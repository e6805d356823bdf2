package rig

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"sync"
	"testing"
)

// Run is one time that a function ran.
type Run struct {
	Attempt, Pid int
	About        url.Values // all that it said when it began
	Fate         string     // what it had to do
	End          string     // how it ended; empty if it did not say so, such as one that was killed
}

// Recorder is asked by functions what to do, in the words of package runs, and so knows every
// run, whatever becomes of the process and of the table.
type Recorder struct {
	URL  string
	fate func(n, run int) string

	mu   sync.Mutex
	runs map[int][]*Run
}

// NewRecorder serves until the test ends. The fate is that of a request's run, counted from 1.
func NewRecorder(tb testing.TB, fate func(n, run int) string) *Recorder {
	r := &Recorder{fate: fate, runs: map[int][]*Run{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /begin", r.begin)
	mux.HandleFunc("POST /end", r.end)
	server := httptest.NewServer(mux)
	tb.Cleanup(server.Close)
	r.URL = server.URL
	return r
}

func number(w http.ResponseWriter, req *http.Request, name string) int {
	v, err := strconv.Atoi(req.FormValue(name))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		panic(http.ErrAbortHandler)
	}
	return v
}

func (r *Recorder) begin(w http.ResponseWriter, req *http.Request) {
	n := number(w, req, "n")
	begun := &Run{Attempt: number(w, req, "attempt"), Pid: number(w, req, "pid")}
	begun.About = req.Form // which the above has parsed
	r.mu.Lock()
	defer r.mu.Unlock()
	begun.Fate = r.fate(n, len(r.runs[n])+1)
	r.runs[n] = append(r.runs[n], begun)
	fmt.Fprintf(w, "%d %q", len(r.runs[n]), begun.Fate)
}

func (r *Recorder) end(w http.ResponseWriter, req *http.Request) {
	n, i := number(w, req, "n"), number(w, req, "run")
	r.mu.Lock()
	defer r.mu.Unlock()
	if i < 1 || i > len(r.runs[n]) {
		http.Error(w, "it has not begun", http.StatusConflict)
		return
	}
	r.runs[n][i-1].End = req.FormValue("end")
}

// Of are the runs of a request so far.
func (r *Recorder) Of(n int) (all []Run) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, begun := range r.runs[n] {
		all = append(all, *begun)
	}
	return all
}

// Fates count the runs by what they had to do.
func (r *Recorder) Fates() map[string]int {
	r.mu.Lock()
	defer r.mu.Unlock()
	count := map[string]int{}
	for _, runs := range r.runs {
		for _, run := range runs {
			count[run.Fate]++
		}
	}
	return count
}

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
