package cloud

import (
	"encoding/json"
	"os"
	"sync"
)

// positions say how far each mapping has got in its stream, by "function table shard". The next start goes on there:
// the queues keep what a function has sent.
type positions struct {
	path string // empty: they are in memory

	mu   sync.Mutex
	last map[string]string
}

func newPositions(path string) *positions {
	p := &positions{path: path, last: map[string]string{}}
	if text, err := os.ReadFile(p.path); err == nil {
		_ = json.Unmarshal(text, &p.last) // half a file: from the oldest record
	}
	return p
}

func (p *positions) get(key string) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.last[key]
}

func (p *positions) set(key, sequence string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last[key] == sequence {
		return nil
	}
	p.last[key] = sequence
	if p.path == "" {
		return nil
	}
	text, err := json.Marshal(p.last)
	if err != nil {
		return err
	}
	if err := os.WriteFile(p.path+".new", text, 0o600); err != nil {
		return err
	}
	return os.Rename(p.path+".new", p.path)
}
