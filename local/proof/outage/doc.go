// Package outage holds the tests of the whole way down, engine, DynamoDB store,
// SDK and wire, against a DynamoDB that refuses, hangs, throttles, or applies
// what it is sent and loses its replies.
package outage
