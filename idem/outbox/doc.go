// Package outbox has the messages that an operation publishes in the transaction
// of its completion, and the relay that sends them afterwards. A message is sent if and
// only if the operation took effect. It is sent at least once, always under the same id
// ([MessageID]), by which a consumer recognises repeats.
//
//	relay, err := outbox.NewRelay(store, map[string]outbox.Sender{
//		"orders": sqssender.New(sqsClient, queueURL),
//	}, nil)
//	report, first, err := relay.Deliver(ctx, refs) // what the table's stream brought
//	report, err := relay.Sweep(ctx)                // every five minutes
//
// A sweep leaves messages younger than [Options.Grace], 2 minutes, to the stream: it reports
// nothing and sends nothing. A test without a stream sets Options{Grace: time.Millisecond}.
//
// A store in Postgres has no stream. Its relay polls ([Relay.Poll]), for as long as the process runs or until a
// function's time is over:
//
//	relay.Poll(ctx, time.Second, report)
//
// The function in lambda/functions/relay is a relay of DynamoDB, ready to deploy. Senders are in
// the packages below this one; the stores are dynamostore.Outbox and pgstore.Outbox. Package outboxtest tests one.
//
// # A message's life
//
//	new         committed; Deliver sends it, usually within a second
//	retrying    a try has failed; the next one is due after a pause that doubles
//	dispatched  sent, and noted as such with the service's id of it; it expires a day later
//	dead        a dead letter: 10 tries have failed, most of them by sweeps, or the
//	            destination has rejected it; it stays, with the reason, until
//	            an operator requeues or deletes it
//
// An operator can also have a dispatched message sent again, as long as it is stored (idemctl resend).
//
// A message that is not dispatched has no expiry and is in the table's index, where Sweep
// finds it: nothing is lost if the stream is late, switched off or skips a record.
//
// A message's id is made from its name. An id belongs to one life of a key: when the
// operation's record has expired or was forgotten, a message under the same key and name is another message
// and does not replace the first.
//
// [Entry.SentID] is the id that the service gave to the message, such as SQS's MessageId. It is of the
// send that was noted. A message that was sent twice, because the relay ended between the send and
// the note, has two ids at the service, and the first one is stored nowhere. Both have the message's own
// id ([AttributeID]).
//
// # Destinations do not wait for each other
//
// A message that fails is left to the sweep, with the messages behind it in its order, so
// that the stream continues. A destination whose calls fail, hang or take longer than half
// a second may keep the others waiting for two seconds a minute ([Options.Patience]). After
// that, and for ten seconds after two failed calls in a row, the stream leaves all its messages
// to the sweep without a try. The sweep handles each destination on its own. Only a message
// that was sent counts as tried: for a destination that is down, each sweep sends one or two
// requests of its backlog.
//
// # Memory
//
// With a batch of the stream a relay reads at most 16 MiB of messages that go before those of the batch. If more
// waits, the rest is left to the sweep, in its order. In a sweep the destinations share 16 MiB, and as much again for
// what goes before: with more destinations and larger messages each reads fewer at a time, and at least one. 256 MB
// are enough for its function.
//
// # When the relay ends in between
//
//	before the send            the message is sent later
//	after the send             it is sent again, under the same id: consumers must
//	                           expect repeats, as with every queue. The service gives
//	                           each send an id of its own, and the last one is noted
//	after a part of a batch    messages that were noted are not sent again
//	the same message each time from 2 minutes of age on a try is counted before it
//	                           is made, so such a message becomes a dead letter too
//	the stream starts again    messages that are dispatched or deleted are not sent again
//
// # Order
//
// Messages with the same destination and [Message.OrderingKey] are sent one after the
// other: those of one record in the order in which they were published, those of several
// records in the order of the table's stream. While a message waits for another try, those
// behind it wait. The sweep sends them, or the stream before it sends the key's next
// message. If the first becomes a dead letter, the others are sent: where order matters, let
// [Options.MaxTries] outlast an outage. A message that cannot be read (written by a newer
// version, during a deployment) holds up those behind it in its record and, in a sweep, those
// behind it in its order.
//
// Two records may be in different shards of the stream, which have no order between
// them. Across records the order is therefore likely but not promised: if it matters, put
// a number from a conditional write of the same transaction into the message. The sweep
// uses the time of the commit on the writer's clock, and sends messages first that were
// left to it.
//
// Messages without an ordering key have no order and hold up no others.
package outbox
