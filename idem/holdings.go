package idem

import "sync"

// holdings are the claims under which handlers of this process run now. A duplicate of one
// is in flight: that need not be asked.
type holdings struct {
	mu     sync.Mutex
	leases map[string]*lease // by the record's id
}

func (h *holdings) add(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases == nil {
		h.leases = map[string]*lease{}
	}
	h.leases[l.a.rec.ID] = l
}

// remove forgets the lease, and no other attempt's.
func (h *holdings) remove(l *lease) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.leases[l.a.rec.ID] == l {
		delete(h.leases, l.a.rec.ID)
	}
}

func (h *holdings) of(id string) *lease {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.leases[id]
}
