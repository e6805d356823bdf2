package main

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
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
		held: map[string]chan struct{}{}, silent: map[string]bool{},
	}
}

// ServeHTTP makes a charge or a refund. A charge under a key that it has seen is
// the same charge; refunds take no key, and it says what became of one with a name.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
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
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	write(w, in)
}

func write(w http.ResponseWriter, r receipt) {
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
