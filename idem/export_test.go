package idem

// BoundQueue bounds what may wait in the engine's queue, in bytes.
func BoundQueue(e *Engine, bytes int) { e.pending.Bound(bytes) }
