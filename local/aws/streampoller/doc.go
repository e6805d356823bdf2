// Package streampoller delivers a table's stream to a function as a DynamoDB
// Streams event source mapping of Lambda does.
//
//	stream, err := streampoller.StreamOf(ctx, dynamodbClient, table)
//	poller, err := streampoller.Start(ctx, streamsClient, stream, pool.Call, &streampoller.Options{
//		Filters:                 []string{schema.OutboxFilter},
//		ReportBatchItemFailures: true,
//	})
//	...
//	defer poller.Close()
//
// # What is as in Lambda
//
//   - Shards side by side, one batch at a time in each, in the order of the shard;
//     a shard begins when its parent has been delivered.
//   - TRIM_HORIZON and LATEST; filters before batching; batch size, batch window,
//     and 6 MB for an event.
//   - A batch that fails is delivered again, with growing pauses, and holds up its
//     shard meanwhile: without end, or up to a number of retries or an age; what is
//     given up goes to the destination and the shard goes on.
//   - Bisecting after a function error, which counts as no retry.
//   - ReportBatchItemFailures: the lowest sequence number in the answer is where the
//     next delivery begins; an answer that cannot be understood fails the batch.
//   - The event's form, that of events/dynamodb-stream.json; a removal by TTL has
//     the service's userIdentity.
//
// # What is not imitated
//
// Checkpoints are in memory: a new poller begins at its starting position again, so
// starting one with [TrimHorizon] replays the stream. ParallelizationFactor,
// tumbling windows, filters other than [Filter] names, a metadata document for the
// destination (the hook gets a [Discarded]), the back-off of empty polls, throttling
// and permissions are missing. Retries restart their count when a partial answer
// moves the checkpoint, which is not documented of Lambda. LATEST misses nothing
// that is written after [Start] has returned; on AWS a new mapping takes minutes.
//
// Source: AWS Lambda developer guide, "Using AWS Lambda with Amazon DynamoDB" and
// the pages below it.
package streampoller
