package casstore

import "sync"

// maxClaims is how many rows are remembered at most, those of the attempts that run in the process.
const maxClaims = 256

// claims are the latest rows that this process has written, by id: those of attempts that run. They are guesses, see
// [Store.swap].
type claims struct {
	mu   sync.Mutex
	rows map[string]Row
}

// of returns the row that was written last; nil if it is not known.
func (c *claims) of(id string) *Row {
	c.mu.Lock()
	defer c.mu.Unlock()
	if row, ok := c.rows[id]; ok {
		return &row
	}
	return nil
}

// note remembers a row that was written.
func (c *claims) note(w *Change) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if w.rec == nil {
		delete(c.rows, w.Row.ID)
		return
	}
	for id := range c.rows { // any one
		if len(c.rows) < maxClaims {
			break
		}
		delete(c.rows, id)
	}
	if c.rows == nil {
		c.rows = map[string]Row{}
	}
	row := w.Row
	row.rec = w.rec.Clone()
	c.rows[w.Row.ID] = row
}
