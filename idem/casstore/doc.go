// Package casstore is an [idem.Store] over any database that can replace a row on the condition that it
// is as it was read: a small [Driver] for each. A write reads the record's row, has package protocol say what the
// write makes of it (the Apply methods), and replaces the row if it still has the version that was read; otherwise
// it asks again with the row that is there. So no row is locked, no connection is held from one call to the next,
// and a write whose reply was lost knows itself again when it is sent once more. It then writes the row again as it
// is: what the database confirms after that, it has confirmed too.
//
// A record is one row, in JSON, with the results of up to 8 KiB that it has. Larger ones, and those of steps from 1
// KiB on, are parts: values next to the row that are written and removed in the same change. If that takes too long,
// the outcome of an attempt is recorded without its result, which is added later; what commits with a unit of work, or
// in atomic mode, lands whole or not at all. The database removes a row and its parts once it has expired. An open
// question never has an expiry.
//
// # Round trips
//
//	first claim of a key, or the answer from its record   1
//	end of an attempt, its steps and its extensions       1
//	anything else                                         1 read and 1 write
//
// A write of an attempt needs no read, since the store remembers the rows of the attempts that run in this process.
//
// Packages pgstore and redisstore have the drivers for Postgres, and for Redis and Valkey.
package casstore
