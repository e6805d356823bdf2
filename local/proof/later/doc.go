// Package later holds the tests of requests that are accepted now and executed later, from end
// to end: clients on a network that loses replies, a gateway, the function that accepts, the
// outbox with its relay, queues that deliver more than once, workers that are killed, and the
// sweep.
//
// The functions are the command in the folder internal/statements. What a worker shall do it
// asks the test, which so knows every run, whatever the table says.
package later
