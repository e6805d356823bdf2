// Package pause lets operators pause an operation in an incident, or one tenant's calls of it, without a
// deployment.
//
//	pauses, err := pause.New(dynamostore.PausesOf(table))
//	engine, err := idem.New(table, &idem.Options{Pauses: pauses})
//
// Then every operation of the engine can be paused: with idemctl pause, in the console, or by
// reconcile.Reconciler.Pause. Who paused it, when and why stays in the history of changes. A pause ends when
// it is resumed, or by itself at a time that it names.
//
// # What a pause does
//
// A call that would execute gets idem.ErrPaused. Over HTTP that is 503 operation_paused with Retry-After, and a
// message is returned to its queue. Nothing runs, in atomic mode neither, and nothing is accepted for later.
// What needs no execution is answered as without a pause: a replay, a key in flight, a reused key, an unknown
// outcome. A lapsed claim is parked or stays, and is not taken over. A worker of accepted work, and any
// other call that continues work, is paused like a first call.
//
// What runs goes on to its end: its steps, its commit and its outcome are recorded. So does the relay of
// the outbox. A nested operation is a call of its own: a handler that gets ErrPaused from it, and has done
// nothing else, returns idem.NotExecuted. In shadow nothing is paused: what the live mode would have
// answered is reported.
//
// # When it takes effect
//
// A process reads what is paused before it claims, and relies on that for 5 seconds ([Within]). No call
// executes that comes 5 seconds after the pause was written. A handler begins a second later than that at
// most (idem.Options.ClaimBudget). A process that starts reads before its first claim. Calls at
// once make one read. A call that has waited for another one (idem.Options.Wait) asks again before it takes
// over. In another region of a global table a pause takes effect once it is replicated.
//
// While it cannot be read what is paused, nothing executes, as without a claim, and replays go on. What was paused
// when it was read last stays paused. The read is tried again once a second, or as often as it fails if it hangs for
// longer, and one call waits for it. An operation that fails open executes while the store is down for that read,
// unless it was paused when the process read it last, however long ago. A process that has never read it executes
// nothing: in an outage of the table a process that starts does not fail open, nor does a call whose time is over
// while it waits.
//
// # What it costs
//
// A process in use makes one consistent read of one item every 5 seconds, for all of its operations: a read
// unit, more only if what is paused takes more than 4 KB, and some milliseconds of one call. At 0.125
// dollars a million read units a process that never rests costs 7 cents a month, and a hundred of them 7
// dollars. A function that is called less often makes one read for each call. In a pause, a call that would
// execute and a replay read the record, which is one unit, in place of a write. An engine without
// idem.Options.Pauses pays nothing.
//
// The item takes 3,000 read units a second: those of 15,000 busy processes while it has 4 KB, which are some twenty
// pauses, and of 500 with a hundred pauses whose reasons are as long as they may be. A hundred pauses are the most.
// One that has ended stays for a day longer than what it turned away may take to come again, unless another one needs
// its room.
//
// # Messages and events in a long pause
//
// A pause leaves messages where they come from. How long they can stay there depends on the service:
//
//   - SQS counts each receive, and makes a message a dead letter after maxReceiveCount. With package
//     sqsvisibility a message is hidden for as long as the pause has lasted by then, for 5 minutes at least and 15 at
//     most, and not beyond its end if that is known: with a maxReceiveCount of 5 a message may wait for 45 minutes,
//     and each further hour takes five receives more. Without sqsvisibility it is received after each visibility
//     time-out. A hidden message is in flight, and a queue has room for about 120,000 of these: with 10 paused
//     messages a second it is full after 3 hours. Then nothing of the queue is received, of other tenants neither,
//     until some come again. For a long pause of a busy queue, stop its event source mapping
//     (aws lambda update-event-source-mapping --no-enabled): messages are then not received at all, and wait for
//     the queue's retention. A dead letter of a pause has not run: move it back.
//   - Kinesis, DynamoDB Streams and Kafka send the batch again and again, and the shard or partition waits. A record
//     goes to the on-failure destination after MaximumRetryAttempts or MaximumRecordAgeInSeconds, and is lost when
//     its stream deletes it. Stop the mapping here too.
//   - SNS, EventBridge, S3 and asynchronous invocations are tried again twice within minutes. Then the event
//     goes to the function's on-failure destination or dead-letter queue, or is lost without one. Before such an
//     operation is paused, keep the events: disable the rule, or set the function's reserved concurrency to 0, which
//     keeps them for up to 6 hours.
//   - Step Functions retries PausedError if its Retry names it.
//   - Accepted work stays pending, and does not expire: a sweep leaves it alone in a pause, and afterwards for as
//     long as the pause has lasted and 15 minutes, within which its message comes again.
//   - Abandoned work is sent again by a sweep's OnAbandoned once the pause is over, within as long as it has
//     lasted, and is not escalated before accepted work would expire.
//   - Timers, webhooks and clients that stop trying before the pause ends are lost to the service: see what each of
//     them does after a 503.
//
// # Where it is kept
//
// What is paused is one item of the table of records, whose keys no record has. Functions read it with
// dynamodb:GetItem, which every handler is allowed; one that is confined to tenants by dynamodb:LeadingKeys
// needs infra.Table.GrantPauses too. Each change is written in one transaction with its audit entry, or, in
// a table without transactions, between an unconfirmed entry and its confirmation. The table does not know
// which operations there are: a name that no function has is paused without effect.
package pause
