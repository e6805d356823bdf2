// Package queuepoller does what the SQS event source mapping of Lambda does: it
// polls a queue and invokes a function with what it receives.
//
//	poller, err := queuepoller.Start(ctx, sqsClient, queueURL, pool, &queuepoller.Options{ReportBatchItemFailures: true})
//	...
//	defer poller.Close()
//
// # What is as in Lambda
//
//   - Batches of up to 10 messages: what one receive returns, in several events if
//     one would exceed 6 MB.
//   - Long polls of 20 seconds, up to five at once, and a maximum concurrency.
//   - The event's form, member by member.
//   - What the function's answer means: see [Options.ReportBatchItemFailures].
//     What succeeded is deleted. What failed is left alone: it becomes visible
//     again when the queue's visibility time-out ends, and goes to the
//     dead-letter queue by the queue's own redrive policy.
//   - FIFO queues: no two batches with messages of one group at once.
//   - A function whose time-out is longer than the queue's visibility time-out is
//     refused, if the time-out is told.
//
// # What is not imitated
//
// Event filters, batch windows and batches of more than 10 messages, back-off while
// the function fails, provisioned pollers, scaling up beyond the concurrency it starts
// with, throttling (a pool's callers wait instead; keep MaxConcurrency at or
// below the pool's instances, for the visibility time-out runs while a batch
// waits), cross-account queues, encryption, metrics, fair queues.
//
// Where a message of a FIFO group arrives again while the group is still being
// processed, because its visibility ended too early, it is not delivered; it
// comes again.
//
// Delivery is at least once, as there: a function that has succeeded is invoked
// again if its messages could not be deleted, or not in time.
//
// Source: AWS Lambda developer guide, "Using Lambda with Amazon SQS", with its
// pages "Creating and configuring an Amazon SQS event source mapping",
// "Configuring scaling behavior for SQS event source mappings" and "Handling
// errors for an SQS event source in Lambda".
package queuepoller
