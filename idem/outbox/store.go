package outbox

import (
	"context"
	"time"
)

// Ref names a stored message.
type Ref struct {
	// Record is the id of the record that the message was committed with.
	Record string
	// ID is the message's.
	ID string
}

// State is where a stored message stands.
type State string

const (
	// New: committed, and no try to send it has failed.
	New State = "new"
	// Retrying: tries have failed or were begun, and more will be made.
	Retrying State = "retrying"
	// Dispatched: sent. It is deleted some time later.
	Dispatched State = "dispatched"
	// Dead: a dead letter. It is not sent any more until somebody requeues it.
	Dead State = "dead"
)

// Entry is a stored message and what has become of it so far.
type Entry struct {
	// Record is the id of the record that the message was committed with.
	Record string
	Message
	State State
	// Number is the message's place among those of its record, from 0.
	Number int
	// After are the ids of the messages that its record has published before it with its
	// destination and ordering key, in their order; empty without an ordering key.
	After []string
	// Created is when it was committed, by the writer's clock.
	Created time.Time
	// Tries counts those that failed, and one that may be under way.
	Tries int
	// NextTry is when the next try is due; zero if there was none yet.
	NextTry time.Time
	// Reason is why the last try failed.
	Reason string
	// Unreadable says why the message cannot be read: it is damaged or of a newer
	// version. Only Record and ID are set then, and Destination and OrderingKey where
	// they can be read: messages behind it in its order wait. It is left as it is.
	Unreadable error
}

// Lane names messages that are in order: those with one destination and ordering
// key.
type Lane struct {
	Destination, OrderingKey string
}

func (e *Entry) lane() Lane { return Lane{e.Destination, e.OrderingKey} }

// Ref names the entry's message.
func (e *Entry) Ref() Ref { return Ref{e.Record, e.ID} }

// pending reports whether the message is still to be sent.
func (e *Entry) pending() bool {
	return e.Unreadable == nil && (e.State == New || e.State == Retrying)
}

// Shards is the number of shards that a [Store] lists its messages in.
const Shards = 16

// MaxHeld is how many messages of a lane [Store.Held] lists.
const MaxHeld = 20

// Store is where the relay finds messages and notes what became of them. All
// methods are safe for concurrent use. The notes change nothing but the message
// that was read: one that is gone, or was sent or given up meanwhile, is left as it is,
// and the bool is false. A note that may or may not have been written is an error.
type Store interface {
	// Load reads messages consistently. What is not in the result is not stored any
	// more.
	Load(ctx context.Context, refs []Ref) (map[Ref]*Entry, error)

	// Waiting lists messages of one shard (0 to 15) that wait: first those
	// of [Store.Held], then those that were committed before the given time; both
	// oldest first, those of one record by Number. All messages of a lane are in the
	// same shard. It begins after the cursor, empty for the beginning, and returns the
	// next one, empty at the end. The list may be behind the latest writes.
	Waiting(ctx context.Context, shard int, before time.Time, cursor string) ([]*Entry, string, error)

	// Held lists the messages of these lanes in state Retrying, oldest first, at most
	// [MaxHeld] of each: a relay that sends another of the lane sends these before. Lanes
	// without any are left out. The list may be behind the latest writes.
	Held(ctx context.Context, lanes []Lane) (map[Lane][]Ref, error)

	// Begin notes before a try that it is made: Tries, the time from which the next
	// one may be made, and the state Retrying. It reports false if somebody else has begun that try.
	Begin(ctx context.Context, e *Entry, tries int, next time.Time) (bool, error)

	// Retry notes a failed try, or that none is made now: Tries so far, from when on
	// the next one may be made, why, and the state Retrying. It reports false if a
	// later try than the entry's, and than tries, has been begun.
	Retry(ctx context.Context, e *Entry, tries int, next time.Time, reason string) (bool, error)

	// DeadLetter makes the message a dead letter, with the reason and the number of
	// tries. It stays stored, without expiry.
	DeadLetter(ctx context.Context, now time.Time, e *Entry, tries int, reason string) (bool, error)

	// Dispatch notes that the message was sent, whatever its state, and lets it
	// expire.
	Dispatch(ctx context.Context, now time.Time, e *Entry, expires time.Time) (bool, error)
}
