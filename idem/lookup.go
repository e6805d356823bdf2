package idem

import (
	"context"
	"time"
)

// Lookup reads the key's record in the time of a claim; nil if there is none. One that is [Record.Expired] is absent to
// calls. The record may have the caller's value and the result: do not show it whole.
func (e *Engine) Lookup(ctx context.Context, key Key) (*Record, error) {
	if err := key.Err(); err != nil {
		return nil, err
	}
	x := &execution{engine: e, call: Call{Key: key}, begun: e.now(), called: time.Now()}
	if err := x.schedule(ctx); err != nil && x.budget <= 0 {
		return nil, err
	}
	part := x.claiming(ctx)
	defer part.end()
	err := e.checkSecret(part.ctx, &key, false)
	var rec *Record
	if err == nil {
		rec, err = x.look(part.ctx)
	}
	if err != nil {
		return nil, x.unavailable(ctx, err)
	}
	return rec, nil
}
