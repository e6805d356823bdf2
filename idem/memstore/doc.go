// Package memstore keeps idempotency records in the memory of one process. It is
// for tests, for development, and as the shortest store to read: every write is
// the reference semantics of package protocol (the Apply methods) under one mutex.
//
// A [Unit] of work, such as a *dynamostore.Tx, commits with the outcome: the store
// keeps what it has collected, and applies it to nothing. A transaction of pgstore needs
// Postgres. [NewPlain] is the switch for tests that are about something else.
//
// It protects nothing that runs in more than one process, and forgets everything
// when the process ends: on Lambda use package dynamostore.
package memstore
