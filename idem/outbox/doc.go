// Package outbox has the messages that an operation publishes in the transaction
// of its completion, and the relay that sends them afterwards: a message goes out
// if and only if the operation took effect, at least once, always under the same
// id.
package outbox
