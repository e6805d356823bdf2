// Command sweeper looks for claims whose process died and for open questions that are due.
// It asks no provider: claims of non-repeatable operations become unknown, and operators get what
// is not resolved. A service whose provider can tell what became of a request has a
// sweeper of its own: package lambda/sweeping. README.md has how to deploy
// and operate it.
//
// Environment: IDEM_TABLE names the table, IDEM_SWEEP_ESCALATIONS is the URL of the queue for
// questions that are escalated. IDEM_SWEEP_CONCURRENCY is how many records of a provider are handled
// at once. IDEM_WITHOUT_TRANSACTIONS is true for a table that has
// none: it has no TTL either, and each sweep removes what has expired from a part of it.
// IDEM_DYNAMODB_ENDPOINT is a local DynamoDB (unset on AWS).
package main

import "github.com/idem-go/idempotency/lambda/sweeping"

func main() { sweeping.Main(nil) }
