// Package queuepoller works like Lambda's event source mapping for SQS: it polls a queue and
// invokes a function with the received messages.
//
//	poller, err := queuepoller.Start(ctx, sqsClient, queueURL, pool, nil)
//	...
//	defer poller.Close()
//
// # What is as in Lambda
//
//   - Batches of up to 10 messages: those of one receive.
//   - Long polls of 20 seconds, up to five at once, and a maximum concurrency.
//   - The event's form, member by member.
//   - ReportBatchItemFailures, unless [Options.WholeBatch] is set: the function names the
//     messages that failed, and an error fails the whole batch. Messages that succeeded are
//     deleted. A message that failed becomes visible again when the queue's visibility time-out
//     ends, and goes to the dead-letter queue by the queue's own redrive policy.
//   - FIFO queues: the queue itself holds a group back while a message of it is received.
//   - A function whose time-out is longer than the queue's visibility time-out is refused,
//     if [Options.FunctionTimeout] is set.
//
// # What is not imitated
//
// Event filters, batch windows and batches of more than 10 messages, back-off while the
// function fails, provisioned pollers, scaling up beyond the initial concurrency, splitting a
// batch whose event exceeds 6 MB (it fails as a whole: use a smaller batch), throttling,
// cross-account queues, encryption, metrics, fair queues. Instead of being throttled, a pool's callers wait. Keep
// MaxConcurrency at or below the pool's instances, because the visibility time-out runs
// while a batch waits.
//
// Delivery is at least once, as in Lambda: a function that has succeeded is invoked again if
// its messages could not be deleted, or not in time. A message whose visibility ends while the
// function runs is delivered again while the first delivery still runs.
//
// Source: AWS Lambda developer guide, "Using Lambda with Amazon SQS", with its
// pages "Creating and configuring an Amazon SQS event source mapping",
// "Configuring scaling behavior for SQS event source mappings" and "Handling
// errors for an SQS event source in Lambda".
package queuepoller
