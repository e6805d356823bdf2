// Package streampoller delivers a table's stream to a function as a DynamoDB
// Streams event source mapping of Lambda does.
//
//	poller, err := streampoller.Start(ctx, streamsClient, streamARN, pool.Call, &streampoller.Options{
//		Filter: schema.OutboxFilter,
//	})
//	...
//	defer poller.Close()
//
// # What is as in Lambda
//
//   - Shards in parallel, one batch at a time in each, in the order of the shard;
//     a shard begins when its parent has been delivered.
//   - TRIM_HORIZON; a filter before batching; batch size, and 6 MB for an event.
//   - A batch that fails is delivered again without end, with growing pauses, and the
//     shard's later records wait for it.
//   - ReportBatchItemFailures, unless [Options.WholeBatch] is set: the next delivery begins
//     at the lowest sequence number in the answer; after an invalid answer the whole batch
//     has failed.
//   - The event's form, as in events/dynamodb-stream.json; a removal by TTL has the
//     service's userIdentity.
//
// # What is not imitated
//
// LATEST, batch windows, limits of retries and
// age with their destination, bisecting, ParallelizationFactor, tumbling windows, several
// filters and rules other than a text, prefix and exists, the back-off of empty polls,
// throttling and permissions are missing. A new poller replays the stream, unless
// [Options] keep its positions.
//
// Source: AWS Lambda developer guide, "Using AWS Lambda with Amazon DynamoDB" and
// the pages below it.
package streampoller
