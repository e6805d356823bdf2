// Package ledger holds the tests of transfers between accounts on DynamoDB Local,
// each asked for several times at once, by processes that are killed anywhere,
// over a network that loses, delays and refuses. In both modes money is conserved,
// each transfer takes effect once or is refused once, its message goes out under
// one id, and all who asked for it end with the same answer. The function is the
// command in internal/worker; its messages are sent by lambda/functions/relay.
package ledger
