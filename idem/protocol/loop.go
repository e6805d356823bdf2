package protocol

import (
	"context"
	"errors"
)

// maxRounds bounds how often a caller follows a record that changes under it; each round is a
// lost race, so another caller makes progress.
const maxRounds = 8

// Loop is what each caller does that changes a record by what it says: see the record, ask [Next],
// write, and see the record that stood in the way of the write.
//
//	for l := protocol.Follow(store, id, seen); l.Next(); {
//		err := write(l.Seen)
//		if err == nil || l.Again(ctx, err) != nil {
//			return err
//		}
//	}
type Loop struct {
	// Seen is the record as it was last seen; nil if there is none.
	Seen *Record

	store      Store
	id         string
	rounds     int
	unreadable bool
}

// Follow begins a loop at the record as it was seen.
func Follow(s Store, id string, seen *Record) Loop { return Loop{Seen: seen, store: s, id: id} }

// Next reports whether there is another round.
func (l *Loop) Next() bool {
	l.rounds++
	return l.rounds <= maxRounds
}

// Again takes the record that stood in the way out of a write's error, or reads it if the error
// does not have it. The next round sees it. Any other error is returned, and so is one about a
// record that can be read, but again not by the write.
func (l *Loop) Again(ctx context.Context, err error) error {
	conflict, refused := errors.AsType[*ConflictError](err)
	if refused && conflict.Existing != nil {
		l.Seen, l.unreadable = conflict.Existing, false
		return nil
	}
	again := errors.Is(err, ErrRecordUnreadable)
	if !refused && !again || again && l.unreadable {
		return err
	}
	l.unreadable = again
	l.Seen, err = l.store.Get(ctx, l.id)
	return err
}
