package protocol

// Unit is a handler's unit of work: what it wants to be written together with its
// outcome, or not at all. It is of a kind that the store understands, which commits it
// with [Finish].
type Unit interface {
	// Seal ends the collecting and reports whether there is anything to commit. The
	// engine calls it once the handler has returned.
	Seal() bool
	// Size is about how many bytes there are to commit, once it is sealed: the commit
	// gets time by it.
	Size() int
}
