// Package queue runs an SQS-compatible server on this machine, for the local commands and
// for tests: the npm package [Package] under Node.js. It fetches the server once, runs it
// so that only this machine can reach it, and stops it again.
//
// package-lock.json pins the package and its dependencies. They are kept in the cache
// folder (IDEM_CACHE_DIR), as package npm describes. Later starts need only node.
//
// The server's own start-up listens on every interface. serve.mjs, part of this package,
// starts the application without it and lets it listen on 127.0.0.1, on a port that the
// operating system chooses. The process ends when its standard input does, and so cannot
// outlive the process that called [Start].
//
// # What the server does
//
// SQS: standard and FIFO queues, visibility, long polls, delays, batches,
// deduplication, redrive to a dead-letter queue. The same endpoint has SNS, with
// subscriptions of SQS queues, raw delivery and filters, and the basics of S3. Everything
// is in memory, but for the messages of a server that keeps them in a file. Any credentials
// are accepted; the account is 000000000000, and the region is that of the credentials' scope.
//
// # Where it differs from SQS
//
//   - A receive from a FIFO queue returns one message of a group, SQS up to ten.
//   - The attribute DeadLetterQueueSourceArn and StartMessageMoveTask are
//     missing; so are system attributes of messages such as AWSTraceHeader.
//   - Sequence numbers count from 1 with leading zeros, and the retention period
//     is not applied.
//   - A message of a standard queue keeps its message group (serve.mjs adds this), and the
//     queue is no fairer for it.
//   - A receipt handle that is too old is deleted without effect and without
//     error, on FIFO queues too.
//   - If a receiver closes its connection before the answer, the message becomes visible
//     at once and the receive does not count (serve.mjs adds this). SQS may let it wait
//     until its visibility time-out ends.
package queue
