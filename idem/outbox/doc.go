// Package outbox has the messages that an operation publishes in the transaction
// of its completion, and the relay that sends them afterwards: a message goes out
// if and only if the operation took effect, at least once, always under the same
// id ([MessageID]), by which a consumer recognises repeats.
//
//	relay, err := outbox.NewRelay(store, map[string]outbox.Sender{
//		"orders": sqssender.New(sqsClient, queueURL),
//	}, nil)
//	report, first, err := relay.Deliver(ctx, refs) // what the table's stream brought
//	report, err := relay.Sweep(ctx)                // every minute or so
//
// The function in lambda/functions/relay is that, ready to deploy. Senders are in
// the packages below this one; the store is dynamostore.Outbox.
//
// # A message's life
//
//	new         committed; Deliver sends it, usually within a second
//	retrying    a try has failed; the next one is due after a pause that doubles
//	dispatched  sent, and noted as such; it expires a day later
//	dead        a dead letter: 10 tries have failed, most of them by sweeps, or the
//	            destination has rejected it; it stays, with the reason, until
//	            somebody requeues or deletes it
//
// What is not dispatched has no expiry and is in the table's index, where Sweep
// finds it: nothing is lost if the stream is late, switched off or skips a record.
//
// A message has a name, of which its id is made. An id belongs to one life of a key:
// once the operation's record has expired, what is published under the same key and name
// is another message, which replaces none.
//
// # Destinations do not wait for each other
//
// What fails is left to the sweep, with everything in order behind it, so that the
// stream goes on. A destination whose calls fail or hang, or take longer than half a
// second, may keep the others waiting for two seconds a minute
// ([Options.Patience]); then, and for a while after two calls in a row that fail,
// the stream leaves all that is for it to the sweep, without a try. The sweep looks
// after each destination on its own. Only what was sent counts as a try: of the
// backlog of a destination that is down, one or two requests with each sweep.
//
// # When the relay ends in between
//
//	before the send            sent later
//	after the send             sent again, under the same id: consumers must expect
//	                           repeats, as with every queue
//	after a part of a batch    what was noted is not sent again
//	the same message each time from 2 minutes of age on a try is counted before it
//	                           is made, so such a message too becomes a dead letter
//	the stream starts anew     what is dispatched, or gone, is not sent again
//
// # Order
//
// Messages with the same destination and [Message.OrderingKey] are sent one after the
// other: those of one record in the order in which they were published, those of several
// records as the table's stream has them. While one waits for another try, those behind
// it wait: the sweep sends them, or the stream does before it sends the next one of the
// key. Once the first is a dead letter the others are sent. A message that cannot be read
// (written by a newer version, during a deployment) holds up those behind it in its record
// and, in a sweep, those behind it in its order.
//
// Two records may lie in different shards of the stream, which have no order between
// them. Across records the order is therefore likely and not promised: where it matters,
// put a number from a conditional write of the same transaction into the message. The
// sweep goes by the time of the commit on the writer's clock, and takes messages first
// that were left to it.
//
// Messages without an ordering key have no order and hold up nothing.
package outbox
