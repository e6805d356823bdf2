// Package large shows the promise at large: requests of all kinds, asked for by several callers
// at once, in processes that are killed and frozen, over a network that loses and delays calls,
// on a DynamoDB Local that is killed and started again, under a clock that jumps, with sweeps and
// operators that settle what attempts leave open.
//
// At the end nothing has happened twice, nothing is lost, and nothing is open that a sweep does
// not find. The history of each request must be one that a register could have (package register).
package large
