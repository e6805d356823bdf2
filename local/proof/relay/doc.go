// Package relay holds the tests of the outbox from end to end: operations that
// publish in their transactions, the table's stream on DynamoDB Local, the compiled
// relay as Lambda runs it, and a queue server. What stands between the relay and
// the queue loses, refuses and kills.
package relay
