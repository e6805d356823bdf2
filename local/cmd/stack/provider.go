package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// provider stands for the payment provider of the example. It counts the requests, so that
// the tour can tell how often a handler really ran.
type provider struct {
	mu      sync.Mutex
	asked   map[string]int // by the reference in the request
	charges map[string]string
	refunds map[string]receipt // by the caller's name for them
	held    map[string]chan struct{}
	silent  map[string]bool
	reports map[string]report // by their ids
}

// report is what a statement is made of.
type report struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
	Kilobytes int    `json:"kilobytes"`
}

type receipt struct {
	ID        string `json:"id"`
	Reference string `json:"reference,omitempty"`
	Amount    int64  `json:"amount"`
	Currency  string `json:"currency"`
}

func newProvider() *provider {
	return &provider{
		asked: map[string]int{}, charges: map[string]string{}, refunds: map[string]receipt{},
		held: map[string]chan struct{}{}, silent: map[string]bool{}, reports: map[string]report{},
	}
}

// ServeHTTP makes a charge or a refund. A charge under a key that it has seen is
// the same charge; refunds take no key, and it says what became of one with a name.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, ofReport := strings.CutPrefix(r.URL.Path, "/reports/")
	switch {
	case ofReport:
		p.read(w, r, id)
		return
	case r.URL.Path == "/reports":
		p.order(w, r)
		return
	case r.Method == http.MethodGet:
		p.find(w, r.URL.Query().Get("reference"))
		return
	}
	var in receipt
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.asked[in.Reference]++
	held := p.held[in.Reference]
	in.ID = rand.Text()
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		if known, ok := p.charges[key]; ok {
			in.ID = known
		}
		p.charges[key] = in.ID
	}
	if name := r.Header.Get("Merchant-Reference"); name != "" {
		p.refunds[name] = in
	}
	p.mu.Unlock()
	if !answers(held, r) {
		return
	}
	write(w, in)
}

// answers waits until answers are not held any more; it is false if nobody waits for one.
func answers(held chan struct{}, r *http.Request) bool {
	if held == nil {
		return true
	}
	select {
	case <-held:
		return true
	case <-r.Context().Done():
		return false
	}
}

// order takes the order of a report. An order under a key that it has seen is the same order.
func (p *provider) order(w http.ResponseWriter, r *http.Request) {
	var in report
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.asked[in.Reference]++
	in.ID = r.Header.Get("Idempotency-Key")
	p.reports[in.ID] = in
	p.mu.Unlock()
	write(w, in)
}

// read answers with the text of a report.
func (p *provider) read(w http.ResponseWriter, r *http.Request, id string) {
	p.mu.Lock()
	of, ok := p.reports[id]
	held := p.held[of.Reference]
	p.asked[readOf(of.Reference)]++
	p.mu.Unlock()
	switch {
	case !ok:
		http.NotFound(w, r)
	case answers(held, r):
		line := strings.Repeat("0123456789abcde", 4)[:59] + "\n"
		write(w, map[string]string{"id": id, "text": strings.Repeat(line, of.Kilobytes<<10/len(line)+1)[:of.Kilobytes<<10]})
	}
}

// readOf is the name under which the provider counts how often a report is read.
func readOf(reference string) string { return reference + ", read" }

func write(w http.ResponseWriter, r any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(r)
}

// find answers with the refund of that name. It never says that there is none: this
// provider remembers nothing from before its start, and a table may be older.
func (p *provider) find(w http.ResponseWriter, name string) {
	p.mu.Lock()
	found, ok := p.refunds[name]
	ok = ok && !p.silent[found.Reference]
	p.mu.Unlock()
	if !ok {
		http.Error(w, "cannot tell now", http.StatusServiceUnavailable)
		return
	}
	write(w, found)
}

// hold lets the provider's answers to a reference wait until release is called.
func (p *provider) hold(reference string) (release func()) {
	ch := make(chan struct{})
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held[reference] = ch
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.held, reference)
		close(ch)
	}
}

// silence lets the provider say nothing of what became of a reference.
func (p *provider) silence(reference string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent[reference] = true
}

// times is how often the provider was asked to move money for a reference.
func (p *provider) times(reference string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[reference]
}

// refund is the provider's id of the refund for a reference.
func (p *provider) refund(reference string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.refunds {
		if r.Reference == reference {
			return r.ID
		}
	}
	return ""
}
