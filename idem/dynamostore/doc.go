// Package dynamostore keeps idem's records in one DynamoDB table.
//
//	cfg, err := config.LoadDefaultConfig(ctx)
//	client, err := dynamostore.NewClient(cfg, nil)
//	store, err := dynamostore.New(client, os.Getenv(schema.EnvTable), nil)
//	engine, err := idem.New(store, nil)
//
// Every write of a record is one conditional PutItem or UpdateItem that returns the
// old item when its condition fails. So a claim that finds a recorded outcome is answered
// by the same single call, and a write whose reply was lost recognises itself in
// the old item, by its write id. Expressions are put together from constants alone
// (expressions.go has those that are always there), names and values go in beside
// them; testdata has the requests in full.
//
// # The table
//
// Keys pk (S) and sk (S), on-demand, TTL on expires_at, a stream with both images
// and one sparse index, open, of the open questions. Package schema has the
// names. The infrastructure code creates it; [CreateTable] is for DynamoDB Local,
// and [Check] finds out, at deployment or when a long-lived process starts, what is
// wrong with a table.
//
// The store relies on conditions that see the latest write, and on consistent
// reads. A table in one region gives both, and so does a global table with strong
// consistency across regions. A global table with eventual consistency does not:
// two regions may both get a claim on one key, and the last writer wins. Let one
// region alone write such a table.
//
// Expiry is decided from expires_at and the clock with its margin, never from whether
// TTL has deleted the item. TTL deletes by AWS's clock, days after expires_at at the
// latest and commonly hours
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html); expires_at
// has no margin in it. An open question carries no expires_at.
//
// # Large results
//
// A failed condition is billed by the size of the existing item, so the
// record stays small. A result above 2 KB is compressed (zstd, its fastest level);
// what is then above 4 KB goes into parts of 256 KB under keys of their own, which
// are named by the attempt's owner and the digest, written before the record is completed, and
// kept a day longer than the record. The record holds their number, length and
// SHA-256; a part that is missing, cut short or altered makes the result
// unreadable ([idem.ErrRecordUnreadable]). Parts that are not taken within two thirds of
// a call's time do not keep the outcome from being recorded: the engine records it
// without them, and adds the result once they are there, by one more write.
//
// Steps lie in the record until it is completed or failed, their results above 1 KB
// in parts, and above 128 bytes once those in the record take 64 KB. Parts never
// expire while the record is open. With the outcome, also that of a resolution, they
// get its expiry; those of a step whose write is refused get a day. Parts that
// cannot be reached then stay, and cost their storage.
//
// An item takes 400 KB, of which the steps may take [protocol.StepRoom]: a step beyond is
// not run, so that there is always room to undo the steps and to end. Each write of a
// record, a heartbeat too, is billed by all of it. A hundred steps of 1 KB cost some
// 4,000 write units in all, a thousand small ones some 100,000: an operation with so
// many is better split.
//
// # Calls and permissions
//
// What is called on each path (idem's engine decides which one), and the IAM
// actions it needs. What claims anew or takes over has one Update more, for its
// outcome. An UpdateItem that may create an item needs no other action.
//
//	path                              calls                    dynamodb:
//	first execution                   1 Put, 1 Update          PutItem, UpdateItem
//	 … large result                   + 1 Put per 256 KB       PutItem
//	replay, in flight, reused key     1 Put                    PutItem
//	 … replay of a large result       + 1 BatchGet             BatchGetItem
//	expired, claimed anew             1 Put, 1 Put             PutItem
//	lapsed or released, taken over    1 Put, 1 Update          PutItem, UpdateItem
//	lapsed, parked                    1 Put, 1 Update          PutItem, UpdateItem
//	heartbeat                         1 Update                 UpdateItem
//	step                              1 Update, 2 at most      UpdateItem
//	                                  once; + 1 Put per        PutItem
//	                                  256 KB above 1 KB
//	step skipped                      0, or 1 for parts        BatchGetItem
//	outcome after large steps         + 1 Update per part      UpdateItem
//	outcome of a parked attempt       + 1 Update               UpdateItem
//	claim without reply, withdrawn    + 1 Update               UpdateItem
//	without a claim, store down       1 Put                    PutItem
//	first execution with a Tx         1 Put, 1 Transaction     PutItem, UpdateItem, and
//	                                                           those of its actions
//	atomic mode, first execution      1 Get, 1 Transaction     GetItem, PutItem, and
//	                                                           those of its actions
//	 … without a look                 1 Transaction
//	 … without a Tx, or failed        1 Put instead of it      PutItem
//	atomic mode, replay               1 Get                    GetItem
//	commit in doubt, fenced           + 1 Update, + 1 Get if   UpdateItem, GetItem
//	                                  that got no answer
//	resolve                           1 Get, 1 Update; + 1     GetItem, UpdateItem
//	                                  Get if it clears steps
//	failed condition without item     + 1 Get                  GetItem
//	message relayed                   1 BatchGet per 100,      BatchGetItem, UpdateItem
//	                                  1 Update each
//	sweep                             16 Query, and the above  Query on the index
//	Check                             2                        DescribeTable, DescribeTimeToLive
//
// A function therefore needs PutItem, UpdateItem, GetItem and BatchGetItem on the
// table, steps and resolutions included, and nothing on the index; no action deletes. There is no permission for
// transactions: a [Tx] needs those of its actions on its own tables, PutItem,
// UpdateItem, DeleteItem and ConditionCheckItem. A condition on
// dynamodb:LeadingKeys of "<tenant>#*" confines it to one tenant, parts included.
// A table encrypted with a customer's key needs the key's permissions too.
//
// # Transactions
//
// What a handler collects in its [Tx] commits with the outcome in one
// TransactWriteItems, or not at all. The record's write is the first action, under
// the same condition as without a Tx. Why DynamoDB cancels is told apart, the
// record's own reason first: another attempt has the claim, or this very write has
// landed before; then a business condition, which is the handler's error; then what
// passes by, a transaction on the same item (TransactionConflict) or throttling,
// which is sent again after a random pause while the time lasts.
//
// A try without an answer is followed by others, byte for byte the same and under
// one token, by which DynamoDB knows for ten minutes that it has applied it. When
// the time for that is over the engine writes what keeps the transaction from
// landing any more, and learns from it, or from a consistent read, whether it has.
// [idem.CommitError] says the rest. A transaction costs twice the write units of its
// items, also if it is cancelled.
//
// # Time and doubt
//
// The store makes the tries itself, with the SDK's retries off, because only who
// knows of every try can say whether a write may have been applied. A try gets a
// second ([Options].AttemptTimeout) and no more than half of the time left, that of a
// transaction a second more for each MiB;
// between tries it waits at random, from 25 ms up to a second. Throttling, server
// errors, time-outs and connection errors are tried again until the context ends;
// a call whose context has no deadline gets [Options].Budget. Ambiguous of a
// [*idem.StoreError] is set if any try was sent and got no definite answer: a
// refused connection, a throttled or a denied request leave no doubt. All of that
// needs a client that answers fast and dials fast: make it with [NewClient].
//
// Down of the error is set if every try found DynamoDB down: not reached, silent,
// throttled, or answering with a status of 500 or more. Any other answer in between,
// such as another transaction on the item, shows that it works. A request that could
// not be sent, as for want of credentials, is neither in doubt nor shows it down, and
// is tried again only if it was not ready in time.
//
// A delayed try of a write that has given up may still arrive. Its condition then
// decides, as for every other write.
package dynamostore
