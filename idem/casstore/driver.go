package casstore

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Driver is a table of rows, each with parts, and of changes. Its methods are safe for concurrent use. An error is a
// [*protocol.StoreError], whose Ambiguous says that a change may have been made or may still be: a store makes the
// call again after one that is Ambiguous or Down, or for which the time was over. A call has a share of the time that
// is left. A driver itself sends nothing twice. It keeps no reference to what it is given, nor to what it returns.
type Driver interface {
	// Read returns the row of an id, with no data if there is none, consistently: it sees every change that was
	// confirmed before.
	Read(ctx context.Context, id string) (Row, error)

	// Write makes a change, all of it or nothing, if the row of the id has the version Seen. If it has another one, or
	// if there is no row, nothing is changed, and it returns that row and false.
	Write(ctx context.Context, c Change) (met Row, written bool, err error)

	// Part returns a part of a row; nil if there is none.
	Part(ctx context.Context, id, name string) ([]byte, error)

	// Due lists the ids of rows in a shard that are due by a time, the longest first, those of the same time by id. The
	// list begins after the place, if it is not nil.
	Due(ctx context.Context, shard int, until time.Time, after *Place, limit int) ([]Place, error)

	// Scan lists rows by id, of a segment of several that have about as many rows each. The list begins after the id. It
	// returns the id after which the next page begins; empty for none.
	Scan(ctx context.Context, segment, segments int, after string, limit int) (rows []Row, next string, err error)

	// Entries lists changes, as [Entry.Data], the earliest first. It returns the next page; empty for none.
	Entries(ctx context.Context, q EntryQuery) (all []Entry, next string, err error)

	// RemoveExpired removes up to so many rows, with their parts, and changes that have expired by a time, and returns
	// how many.
	RemoveExpired(ctx context.Context, before time.Time, limit int) (int, error)
}

// Row is a stored row.
type Row struct {
	ID string
	// Version is a random number, another one for each change; 0 stands for no row.
	Version int64
	Data    []byte
	// Body is a result that lies in the row; nil or empty for none.
	Body []byte

	rec *protocol.Record // what is in it, if this process has written it; no driver has it
}

// Change replaces, makes or removes a row.
type Change struct {
	// Row is the one that results. Without Data there is none any more, nor any part of it.
	Row Row
	// Seen is the version of the row that is replaced; 0 for none.
	Seen int64
	// Due is when the row is due, in Shard, in milliseconds; zero for never.
	Due   time.Time
	Shard int
	// Expires is when the row and its parts may be removed, in whole seconds; zero for never.
	Expires time.Time
	// Put are the parts that are written, Drop the names of those that are removed. The others stay.
	Put  map[string][]byte
	Drop []string
	// Entry, if not nil, is kept next to it.
	Entry *Entry
	// Unit, if not nil, commits with it. It is of a kind for which [Driver] says so, see [Store.Traits].
	Unit protocol.Unit
	// Created is the CreatedAt of the record that Unit commits with, and At when that is.
	Created, At time.Time

	rec *protocol.Record // what is in Row, of an attempt that runs in this process; otherwise nil
}

// Place is where a row is among those that are due.
type Place struct {
	Due time.Time
	ID  string
}

// Entry is a change of a record from outside its attempts.
type Entry struct {
	// ID is the record's, Name that of the entry among its.
	ID, Name string
	// At is when it was made, in milliseconds.
	At    time.Time
	Shard int
	// Expires is when it may be removed, in whole seconds; zero for never.
	Expires time.Time
	Data    []byte
}

// EntryQuery asks for the changes of a record, or of a shard from a time up to another.
type EntryQuery struct {
	ID       string // empty for those of Shard
	Shard    int
	From, To time.Time
	Page     string
	Limit    int
}
