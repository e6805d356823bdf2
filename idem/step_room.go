package idem

import (
	"strings"

	"github.com/idem-go/idempotency/idem/protocol"
)

const (
	// stepOverhead is more than a store takes for a step besides its name, result and
	// error. The conformance suite holds stores to it.
	stepOverhead = 192
	// smallStep is the size up to which the record keeps any step's result.
	smallStep = 128
	// largeStep is the size from which a store may keep a step's result outside
	// the record.
	largeStep = 1 << 10
	// inlineRoom is for the results between the two: a record is written as a whole,
	// and billed so, with every step.
	inlineRoom = 64 << 10
)

// room counts what an attempt's steps take in the record.
type room struct {
	extra  int // what the store takes more for each entry
	fixed  int // what no store can keep elsewhere
	inline int // of results, above smallStep each, those on their way too
	held   int // for steps on their way
}

func (r *room) taken() int { return r.fixed + min(r.inline, inlineRoom) + r.held }

// add counts an entry, or with sign -1 takes it out.
func (r *room) add(sign int, name string, s protocol.RecordedStep) {
	if s.Write == "" || name == compensating || strings.HasPrefix(name, undoing) {
		return // not there, or counted elsewhere
	}
	r.fixed += sign * (r.needs(name, s.Compensates) + failureSize(s.Failure) + min(len(s.Body.Data), smallStep))
	r.inline += sign * inlineSize(len(s.Body.Data))
}

// needs is what a step takes without its result. Room for the entry of its
// compensation is kept from the start.
func (r *room) needs(name string, compensates bool) int {
	n := stepOverhead + r.extra + len(name)
	if compensates {
		n += n + len(undoing)
	}
	return n
}

// fits reports whether a result is still to be kept in the record.
func (r *room) fits(result []byte) bool {
	return len(result) <= smallStep || r.inline+len(result) <= inlineRoom
}

// keep keeps the place of a result in the record while it is on its way, and returns
// what it takes: steps that end side by side do not know of each other yet.
func (r *room) keep(result []byte) int {
	n := inlineSize(len(result))
	r.inline += n
	return n
}

// inlineSize is what a result of the size takes of inlineRoom.
func inlineSize(size int) int { return max(0, min(size, largeStep)-smallStep) }

// failureSize is what an error takes of a record.
func failureSize(f *Failure) int {
	if f == nil {
		return 0
	}
	return len(f.Message) + len(f.Type) + len(f.Code)
}
