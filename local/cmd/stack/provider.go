package main

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
)

// provider stands for the payment provider of the examples. It counts the requests, so that
// the tour can tell how often a handler really ran.
type provider struct {
	mu     sync.Mutex
	asked  map[string]int           // how often, by reference
	made   map[string]made          // by the caller's key or name for it
	held   map[string]chan struct{} // answers, by reference
	silent map[string]bool          // by reference
}

// made is a charge, a refund or a report.
type made struct {
	ID        string `json:"id"`
	Reference string `json:"reference"`
	Amount    int64  `json:"amount,omitempty"`
	Currency  string `json:"currency,omitempty"`
	Kilobytes int    `json:"kilobytes,omitempty"`
}

// ServeHTTP makes what is posted, finds a refund, or reads a report.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	id, report := strings.CutPrefix(r.URL.Path, "/reports/")
	switch {
	case report:
		p.read(w, r, id)
	case r.Method == http.MethodGet:
		p.find(w, r.URL.Query().Get("reference"))
	default:
		p.make(w, r)
	}
}

// make makes a charge, a refund or a report. One under a key that it has seen is the same. Refunds
// have a name instead, and each request makes another one.
func (p *provider) make(w http.ResponseWriter, r *http.Request) {
	var in made
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	key := r.Header.Get("Idempotency-Key")
	p.mu.Lock()
	in.ID = cmp.Or(p.made[key].ID, rand.Text())
	p.made[cmp.Or(key, r.Header.Get("Merchant-Reference"))] = in
	p.mu.Unlock()
	if p.answers(r, in.Reference) {
		_ = json.NewEncoder(w).Encode(in)
	}
}

// read answers with the text of a report.
func (p *provider) read(w http.ResponseWriter, r *http.Request, id string) {
	var report made
	p.mu.Lock()
	for _, m := range p.made {
		if m.ID == id {
			report = m
		}
	}
	p.mu.Unlock()
	if p.answers(r, readOf(report.Reference)) {
		text := strings.Repeat("0123456789abcdef", report.Kilobytes<<6)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": id, "text": text})
	}
}

// readOf is the reference under which reads of a report are counted and held.
func readOf(reference string) string { return reference + ", read" }

// find answers with the refund of that name. It never says that there is none: this
// provider remembers nothing from before its start, and a table may be older.
func (p *provider) find(w http.ResponseWriter, name string) {
	p.mu.Lock()
	found, ok := p.made[name]
	ok = ok && !p.silent[found.Reference]
	p.mu.Unlock()
	if !ok {
		http.Error(w, "cannot tell now", http.StatusServiceUnavailable)
		return
	}
	_ = json.NewEncoder(w).Encode(found)
}

// answers counts a request, and waits until answers are not held any more. It is false if the caller
// has left.
func (p *provider) answers(r *http.Request, reference string) bool {
	p.mu.Lock()
	p.asked[reference]++
	held := p.held[reference]
	p.mu.Unlock()
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

// silence lets the provider say nothing about the refund for a reference.
func (p *provider) silence(reference string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent[reference] = true
}

// times is how often the provider was asked for a reference.
func (p *provider) times(reference string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[reference]
}

// idOf is the provider's id of what it has made for a reference.
func (p *provider) idOf(reference string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.made {
		if m.Reference == reference {
			return m.ID
		}
	}
	return ""
}
