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
	held    map[string]chan struct{}
}

func newProvider() *provider {
	return &provider{asked: map[string]int{}, charges: map[string]string{}, held: map[string]chan struct{}{}}
}

// ServeHTTP makes a charge or a refund. A charge under a key that it has seen is
// the same charge; refunds take no key.
func (p *provider) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var in struct {
		Reference string `json:"reference"`
	}
	if err := json.NewDecoder(r.Body).Decode(&in); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	p.mu.Lock()
	p.asked[in.Reference]++
	held := p.held[in.Reference]
	id := rand.Text()
	if key := r.Header.Get("Idempotency-Key"); key != "" {
		if known, ok := p.charges[key]; ok {
			id = known
		}
		p.charges[key] = id
	}
	p.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-r.Context().Done():
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]string{"id": id})
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

// times is how often the provider was asked about a reference.
func (p *provider) times(reference string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.asked[reference]
}
