package protocol

import (
	"context"
	"slices"
	"sync"
	"time"
)

// Moved is the state of a mark. It stands where a key's record was, or would be, under a former
// secret of its operation, and says where the record is: [Record.MovedTo]. Nothing but what
// [Move] says leads to it, and nothing leads away: it goes with its expiry.
const Moved State = "moved"

// Digester digests the values of an operation's keys, and their inputs, with secrets; package
// secrets has it. It is safe for concurrent use.
type Digester interface {
	// Check reports what is wrong with the secrets.
	Check() error
	// Name names the key with the value. Start is what its id starts with: tenant and operation,
	// percent-encoded and each followed by '#'.
	Name(start, value string) Name
}

// Name is a key that has an id under each of the secrets that it may be recorded under.
type Name interface {
	// Current is where the key would be if no other secret had ever been used. It asks nobody.
	Current() Home
	// Claim says where the key is to be claimed. Nobody claims it anywhere else from then on.
	Claim(ctx context.Context, p *Place) (Home, error)
	// Find reads the key's record, and writes nothing.
	Find(ctx context.Context, p *Place) (Home, error)
	// Follow says where the mark leads to.
	Follow(mark *Record) (Home, error)
}

// Home is where a key's record is.
type Home struct {
	ID string
	// Seen is the record as it was read; nil if it was not read, or if there is none.
	Seen *Record
	// MayMove is set if a mark may be found where the record would be: other processes may
	// know the key by another id.
	MayMove bool
	// Former is set under a secret that is not the current one: a record that lives there stays,
	// and none is made there.
	Former bool
	// Fingerprint is what a record there keeps of the input's.
	Fingerprint func(Fingerprint) Fingerprint
}

// Place is a store as a process with secrets sees it: one for each process and store. It is safe
// for concurrent use.
type Place struct {
	Store Store
	// Now is the clock that records go by, Margin its skew.
	Now    func() time.Time
	Margin time.Duration
	// Known is what a [Digester] remembers of registers.
	Known sync.Map
}

// Rotation is what a store can do for operations whose values are digested with secrets. A
// [Store] may be without it: such operations fail closed then. The rules of [Store] hold for
// its writes.
type Rotation interface {
	// Move puts a mark where there is no record, or in place of the one whose write is Seen. A mark
	// that leads to the same place counts as applied.
	Move(ctx context.Context, now time.Time, m Move) error

	// Register reads an operation's register consistently; nil if there is none.
	Register(ctx context.Context, operation string) (*Register, error)

	// SetRegister writes a register, on the condition that the one that is there has a version
	// lower by one; version 1 is for none. Otherwise it returns a [*ConflictError] without a
	// record, also for a try whose reply was lost.
	SetRegister(ctx context.Context, now time.Time, r Register) error
}

// Move puts a mark.
type Move struct {
	// ID is where the mark is put, To where it leads.
	ID, To string
	// Write is the id of this write.
	Write string
	// Seen is the write of the record that the mark replaces, which has expired or is
	// [Record.Unexecuted]; empty if there is none.
	Seen string
	// ExpiresAt is when the mark goes, in whole seconds.
	ExpiresAt time.Time
}

// Apply returns the mark.
func (m Move) Apply(rec *Record, now time.Time) (*Record, error) {
	if rec != nil && rec.State == Moved && rec.MovedTo == m.To {
		return rec, nil
	}
	if !free(rec, m.Seen) {
		return nil, &ConflictError{Existing: rec}
	}
	return &Record{ID: m.ID, State: Moved, MovedTo: m.To, Write: m.Write, CreatedAt: now, UpdatedAt: now, ExpiresAt: m.ExpiresAt}, nil
}

// Register says which secrets an operation's records may be under. Secrets are added to its end
// and retired from its beginning; a retired one stays in it, and is never used again.
type Register struct {
	// Operation as in ids: percent-encoded.
	Operation string
	// Version counts the writes.
	Version int
	// Secrets in the order in which they came into use.
	Secrets []RegisteredSecret
}

// RegisteredSecret is a secret of which records may be there, or, Retired, are no more.
type RegisteredSecret struct {
	// Check tells secrets apart. Nobody can find the secret from it.
	Check string
	// Since is when it came into use, in milliseconds.
	Since   time.Time
	Retired bool
}

// Clone returns a deep copy.
func (r *Register) Clone() *Register {
	if r == nil {
		return nil
	}
	c := *r
	c.Secrets = slices.Clone(r.Secrets)
	return &c
}

// Follows reports whether the register may be written over the one that is there.
func (r Register) Follows(old *Register) bool {
	if old == nil {
		return r.Version == 1
	}
	return r.Version == old.Version+1
}
