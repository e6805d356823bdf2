// Package contract holds the HTTP contract to its word from end to end: a real HTTP
// client, a gateway in each of its flavours, the local Lambda runtime, a compiled
// function, DynamoDB Local. Its tests send every row of idem/testenv/contract in both
// profiles, and add what only real processes show: they are killed, records damaged in
// the table, connections to the store cut.
//
// internal/function is the function; what its handler does with a request is decided by
// the test, see internal/script.
package contract
