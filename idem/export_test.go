package idem

// BoundQueue bounds what may wait in the engine's queue, in bytes.
func BoundQueue(e *Engine, bytes int) { e.queue.most = bytes }
