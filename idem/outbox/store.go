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

// State is the state of a stored message.
type State string

const (
	// New: committed, and no try to send it has failed.
	New State = "new"
	// Retrying: tries have failed or were begun, and more will be made.
	Retrying State = "retrying"
	// Dispatched: sent. It is deleted some time later.
	Dispatched State = "dispatched"
	// Dead: a dead letter. It is not sent any more until an operator requeues it.
	Dead State = "dead"
)

// Entry is a stored message with its state and its tries.
type Entry struct {
	// Record is the id of the record that the message was committed with.
	Record string
	Message
	State State
	// Number is the message's position among those of its record, from 0.
	Number int
	// After are the ids of the messages that its record has published before it with its
	// destination and ordering key, in their order; empty without an ordering key.
	After []string
	// Created is when it was committed, by the writer's clock.
	Created time.Time
	// Tries counts the failed tries, and one that may be under way.
	Tries int
	// NextTry is when the next try is due; zero before the first try.
	NextTry time.Time
	// Reason is why the last try failed.
	Reason string
	// SentID is the [Sent.ID] of the latest send that was noted, and SentAt is when it was noted. A
	// message may have been sent more often than that, each time under another id of the service's:
	// if a relay ends between a send and its note, the next send has the note. A message that an
	// operator has sent again keeps the SentID of before until the new send is noted.
	SentID string
	SentAt time.Time
	// Resent counts how often an operator has had the message sent again.
	Resent int
	// Unreadable says why the message cannot be read: it is damaged or of a newer
	// version. Only Record and ID are set then, and Destination and OrderingKey if they can
	// be read: messages behind it in its order wait. The message is left as it is.
	Unreadable error
}

// Lane names the messages of one order: those with the same destination and ordering key.
type Lane struct {
	Destination, OrderingKey string
}

// Size is how many bytes of memory the message takes: its body, its attributes, and 1 KB for all else.
func (e *Entry) Size() int {
	n := len(e.Body) + 1<<10
	for name, value := range e.Attributes {
		n += len(name) + len(value)
	}
	return n
}

func (e *Entry) lane() Lane { return Lane{e.Destination, e.OrderingKey} }

// Ref names the entry's message.
func (e *Entry) Ref() Ref { return Ref{e.Record, e.ID} }

// pending reports whether the message must still be sent.
func (e *Entry) pending() bool {
	return e.Unreadable == nil && (e.State == New || e.State == Retrying)
}

// Shards is the number of shards that a [Store] lists its messages in.
const Shards = 16

// MaxHeld is how many messages that were left to the sweep are listed of a lane: those behind them are
// sent when these are.
const MaxHeld = 10

// Store is where the relay finds messages and notes the results of its tries. All methods
// are safe for concurrent use. A note changes only the message that was read. If another
// relay has sent it or given it up since then, if an operator has had it sent again ([Entry]'s Resent), or
// if it no longer exists, nothing is changed and the bool is false. A note that may or may not have been written is
// an error.
type Store interface {
	// Load reads messages consistently, in the order of refs. It returns those that exist, and
	// how many refs it has read: at least one, and no more than fit into size bytes ([Entry.Size]).
	// Of the refs that were read, those that are not in the result no longer exist.
	Load(ctx context.Context, refs []Ref, size int) (found map[Ref]*Entry, read int, err error)

	// Waiting lists a destination's waiting messages in one shard (0 to 15) a page at a time:
	// first those of [Store.Held], lane by lane and about MaxHeld of each, then those that were
	// committed by the given time. The messages of a lane, and those after the lanes, are
	// sorted with the oldest first, and those of one record by Number. All messages of a lane
	// are in the same shard. The list begins after the cursor, which is empty for the beginning, and Waiting
	// returns the next cursor, which is empty at the end. The list may not have the latest
	// writes, nor messages without an ordering key that are not due now or by the given time, and a page may be empty.
	Waiting(ctx context.Context, shard int, destination string, before time.Time, cursor string) ([]Ref, string, error)

	// Strays lists, in the same way, the waiting messages that Waiting lists for none of the
	// destinations.
	Strays(ctx context.Context, shard int, destinations []string, before time.Time, cursor string) ([]Ref, string, error)

	// Held lists the messages of these lanes in state Retrying, oldest first, at most
	// [MaxHeld] of each lane. A relay sends them before it sends another message of the
	// lane. Lanes without any are left out. The list may not have the latest writes.
	Held(ctx context.Context, lanes []Lane) (map[Lane][]Ref, error)

	// HeldAfter lists the messages of an entry's lane in state Retrying that come after it, oldest first, at
	// most [MaxHeld].
	HeldAfter(ctx context.Context, e *Entry) ([]Ref, error)

	// Begin notes a try before it is made: Tries, the time from which the next one may be
	// made, and the state Retrying. It reports false if another relay has begun that try.
	Begin(ctx context.Context, e *Entry, tries int, next time.Time) (bool, error)

	// Retry notes a failed try, or that no try is made now: the number of tries, the time
	// from which the next one may be made, the reason, and the state Retrying. It reports
	// false if a try has begun that is later than the entry's and than tries.
	Retry(ctx context.Context, e *Entry, tries int, next time.Time, reason string) (bool, error)

	// DeadLetter makes the message a dead letter, with the reason and the number of
	// tries. It stays stored, without expiry.
	DeadLetter(ctx context.Context, now time.Time, e *Entry, tries int, reason string) (bool, error)

	// Dispatch notes that the message was sent, whatever its state, and the service's id of that
	// send, or none, and lets it expire: one write, so that no message counts as sent without its
	// id. If another send was noted before, it reports false and keeps the id of that one.
	Dispatch(ctx context.Context, now time.Time, e *Entry, sentID string, expires time.Time) (bool, error)
}
