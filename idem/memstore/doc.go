// Package memstore keeps idempotency records in the memory of one process. It is
// for tests, for development, and as the shortest store to read: every write is
// the reference semantics of package idem (the Apply methods) under one mutex.
//
// It protects nothing that runs in more than one process, and forgets everything
// when the process ends: on Lambda use package dynamostore.
package memstore
