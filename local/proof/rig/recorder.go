package rig

import (
	"fmt"
	"hash/fnv"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Run is one time that a function ran.
type Run struct {
	Attempt, Pid int
	About        url.Values // all that it said when it began
	Fate         string     // what it had to do
	End          string     // how it ended; empty if it did not say so, such as one that was killed
}

// Effect is what a run has done outside of the table.
type Effect struct {
	N, Run int
	Token  string
}

// Recorder is asked by functions what to do, in the words of package runs, and has their effects. So it knows every
// run and every effect, whatever becomes of the process and of the table.
type Recorder struct {
	URL string
	// Now is the clock by which an effect comes too late; nil means time.Now.
	Now  func() time.Time
	fate func(n, run int) string

	mu      sync.Mutex
	runs    map[int][]*Run
	effects []Effect
	done    map[Effect]bool // by request and token
}

// NewRecorder serves until the test ends. The fate is that of a request's run, counted from 1.
// Further routes may be added with handle.
func NewRecorder(tb testing.TB, fate func(n, run int) string, handle ...func(*http.ServeMux)) *Recorder {
	r := &Recorder{fate: fate, runs: map[int][]*Run{}, done: map[Effect]bool{}, Now: time.Now}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /begin", r.begin)
	mux.HandleFunc("POST /effect", r.effect)
	mux.HandleFunc("POST /end", r.end)
	for _, add := range handle {
		add(mux)
	}
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

func (r *Recorder) effect(w http.ResponseWriter, req *http.Request) {
	n, run, token := number(w, req, "n"), number(w, req, "run"), req.FormValue("token")
	r.mu.Lock()
	defer r.mu.Unlock()
	if until, err := time.Parse(time.RFC3339Nano, req.FormValue("until")); err == nil && !r.Now().Before(until) {
		http.Error(w, "too late", http.StatusGone)
		return
	}
	once := Effect{N: n, Token: token}
	if token == "" || !r.done[once] {
		r.effects = append(r.effects, Effect{n, run, token})
	}
	r.done[once] = true
}

// Effects are all, in the order in which they took place.
func (r *Recorder) Effects() []Effect {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.effects)
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

// anyFate is in how many of a thousand runs a request ends in a way other than "ok".
var anyFate = []struct {
	of1000 int
	name   string
}{
	{40, "die before"}, {40, "die after"}, {50, "error before"}, {40, "error after"}, {60, "not executed"},
	{20, "panic before"}, {20, "panic after"},
}

// Declines says that every run of a request fails for good.
func Declines(n int) bool { return n%17 == 11 }

// AnyFate lets a run end in every way, by the seed, the request and the run alone. What it does not decline is done at
// its fourth run at the latest.
func AnyFate(seed int) func(n, run int) string {
	return func(n, run int) string {
		switch {
		case Declines(n):
			return "permanent"
		case run > 3:
			return "ok"
		}
		h := fnv.New32a()
		fmt.Fprintf(h, "seed %d/%d/%d", seed, n, run)
		p := int(h.Sum32() % 1000)
		for _, f := range anyFate {
			if p -= f.of1000; p < 0 {
				return f.name
			}
		}
		return "ok"
	}
}
