package limit

import "sync"

// generation is how many attempts are remembered at least.
const generation = 1024

// attempts remembers the latest attempts, by their owners. One that is forgotten counts again.
type attempts struct {
	mu           sync.Mutex
	newer, older map[string]bool
}

func (a *attempts) has(owner string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.newer[owner] || a.older[owner]
}

func (a *attempts) add(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.newer == nil || len(a.newer) >= generation {
		a.newer, a.older = map[string]bool{}, a.newer
	}
	a.newer[owner] = true
}

func (a *attempts) remove(owner string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.newer, owner)
	delete(a.older, owner)
}
