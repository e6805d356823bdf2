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
// the old item, by its write id. Expressions are built from constants alone
// (expressions.go has those that every request uses); names and values are passed as
// parameters. The requests in full are in testdata.
//
// # The table
//
// The table has the keys pk (S) and sk (S), on-demand capacity, TTL on expires_at, a
// stream with both images, and one sparse index, open, of what is due: open questions,
// watched claims, messages that wait, and changes from outside by their time. Package
// schema has the names. Package infra creates the table; [CreateTable] is for DynamoDB
// Local. [Check] reports what is wrong with a table: call it at deployment, or when a
// long-lived process starts.
//
// The store relies on conditions that see the latest write, and on consistent
// reads. A table in one region gives both, and so does a global table with strong
// consistency across regions. A global table with eventual consistency does not:
// two regions may both get a claim on one key, and the last writer wins. Only one
// region may write such a table. A global table with strong consistency has neither TTL
// nor transactions: see below.
//
// Expiry is decided from expires_at and the clock with its margin, never from whether
// TTL has deleted the item. TTL deletes by AWS's clock, days after expires_at at the
// latest and commonly hours
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/TTL.html); expires_at
// has no margin in it. Open questions and watched claims carry no expires_at.
//
// # Large results
//
// A failed condition is billed by the size of the existing item, so the
// record stays small. A result above 2 KB is compressed (zlib);
// what is then above 4 KB goes into parts of 256 KB under keys of their own, which
// are named by the attempt's owner and the digest, written before the record is completed, and
// kept a day longer than the record. The record holds their number, length and
// SHA-256; a part that is missing, cut short or altered makes the result
// unreadable ([idem.ErrRecordUnreadable]). Who extends a record extends its parts first. If the parts are not
// stored within two thirds of a call's time, the engine records the outcome without
// them, and adds the result once they are stored, by one more write.
//
// Steps lie in the record until it is completed or failed, their results above 1 KB
// in parts, and above 128 bytes once those in the record take 64 KB. Parts never
// expire while the record is open. With the outcome, also that of a resolution, they
// get its expiry; those of a step whose write is refused get a day. Parts that
// cannot be reached then stay, and cost their storage.
//
// An item holds 400 KB. Its steps may take [protocol.StepRoom] of them. A step that
// needs more is not run, so that there is always room to undo the steps and to end. Each write of a
// record, a heartbeat too, is billed by all of it. A hundred steps of 1 KB cost some
// 4,000 write units in all, a thousand small ones some 100,000: an operation with so
// many is better split.
//
// # Encryption
//
// DynamoDB encrypts every table, but not for those who may read it. With [Options].Sealer results, steps'
// results and the inputs of accepted work are encrypted here, after compression, and enc on the
// record names it: sealed or zlib+sealed. Who may read the table alone, its stream, an export or a
// backup then sees their sizes. Its size before it is encrypted decides whether a result is kept in
// the record or lies in parts. Each result is bound to its record, to what it is (the result, or which
// step's), to its size and to whether it is compressed: it cannot be put in another one's place.
// Anyone who may write to the table can still put back a former result of the same place, make an
// outcome an empty one or a failure, and remove a record.
//
// A claim is made only when a key is at hand ([Sealer].Ready), so that nothing is executed whose result
// cannot be recorded. If encrypting fails nevertheless, the outcome is recorded without the result,
// which is added by a later write, as one whose parts could not be stored in time. A step's result
// that cannot be encrypted stops the operation, as any step that cannot be recorded.
//
// What cannot be decrypted is unreadable, never absent and never taken as it is. The record says that
// its results are to be encrypted (sealed). A store without [Options].Sealer does not take such a
// record over, nor does one that cannot read its steps: nothing runs. Nor does it add a result: a
// resolution with one is refused. It does all that needs no result, as a sweep does. Code from before
// [Sealer] finds a record with an encrypted result unreadable too.
//
// Not encrypted are: the tenant and the operation, the SHA-256 of the caller's value and of the
// input, the value itself with [idem.KeepValues], the names of steps, the provider's
// reference, the texts, types and codes of errors, of a record and of its steps, who made a change
// from outside and why, which operators must be able to read, the messages of the outbox, and the
// business writes of a [Tx]. Keep personal data out of them.
//
// # Calls and permissions
//
// The table has the calls of each path (idem's engine decides which one), and the IAM
// actions that they need. Where the handler runs, the write of its outcome is counted. An
// UpdateItem that may create an item needs no other action.
//
//	path                              calls                    dynamodb:
//	first execution                   1 Put, 1 Update          PutItem, UpdateItem
//	 … large result                   + 1 Put per 256 KB       PutItem
//	replay, in flight, reused key     1 Put                    PutItem
//	 … replay of a large result       + 1 BatchGet             BatchGetItem
//	 … the next ones of a process     1 Get                    GetItem
//	expired, claimed again            2 Put, 1 Update          PutItem, UpdateItem
//	under a limit, first execution    1 Get, 1 Put, 2 Update   GetItem, PutItem, UpdateItem
//	 … replay                         1 Get                    GetItem
//	 … refused                        1 Get, 1 Update          GetItem, UpdateItem
//	with pauses, each 5 s             + 1 Get                  GetItem
//	 … paused                         1 Get                    GetItem
//	lapsed or released, taken over    1 Put, 2 Update          PutItem, UpdateItem
//	lapsed, parked                    1 Put, 1 Update          PutItem, UpdateItem
//	heartbeat                         1 Update                 UpdateItem
//	reference                         1 Update, 0 with a       UpdateItem
//	                                  begin mark
//	step                              1 Update                 UpdateItem
//	 … at-most-once step              2 Update                 UpdateItem
//	 … result over 1 KB               + 1 Put per 256 KB       PutItem
//	step skipped                      0, or 1 for parts        BatchGetItem
//	outcome after large steps         + 1 Update per part      UpdateItem
//	outcome of a parked attempt       + 1 Update               UpdateItem
//	claim without reply, withdrawn    + 1 Update               UpdateItem
//	first execution with a Tx         1 Put, 1 Transaction     PutItem, UpdateItem, and
//	                                                           those of its actions
//	atomic mode, first execution      1 Get, 1 Transaction     GetItem, PutItem, and
//	                                                           those of its actions
//	 … without a Tx, or failed        1 Put instead of it      PutItem
//	atomic mode, replay               1 Get                    GetItem
//	commit in doubt, fenced           + 1 Update, + 1 Get if   UpdateItem, GetItem
//	                                  that got no answer
//	resolve                           1 Get, 1 Transaction;    GetItem, UpdateItem, PutItem
//	                                  + 1 Get if it clears
//	                                  steps
//	due, one shard's page             1 Query                  Query on the index
//	postponed                         1 Update                 UpdateItem
//	 … and escalated                 1 Transaction instead    UpdateItem, PutItem
//	extended                          2 Get, 1 Transaction;    GetItem, UpdateItem, PutItem
//	                                  + 1 Update per part
//	forgotten                         2 Get, 1 Transaction;    GetItem, DeleteItem, PutItem
//	                                  + 1 Delete per part
//	paused, resumed                   1 Get, 1 Transaction     GetItem, PutItem
//	changes of a record               1 Query                  Query
//	 … between two times, one shard   1 Query, 1 BatchGet      Query on the index, BatchGetItem
//	without transactions, resolved    1 Get, 2 Put, 1 Update   GetItem, UpdateItem, PutItem
//	 … escalated                     2 Put, 1 Update          UpdateItem, PutItem
//	 … extended                       2 Get, 2 Put, 1 Update   GetItem, UpdateItem, PutItem
//	 … forgotten                      2 Get, 2 Put, 1 Delete   GetItem, PutItem, DeleteItem
//	 … paused, resumed                1 Get, 3 Put             GetItem, PutItem
//	 … refused                        the above; + 1 Delete    DeleteItem
//	                                  instead of the second Put
//	all records, one page             1 Scan                   Scan
//	 … each large result              + 1 BatchGet             BatchGetItem
//	with a secret: check              1 Get; once 1 Put        GetItem, PutItem
//	failed condition without item     + 1 Get                  GetItem
//	message relayed                   1 BatchGet per 100,      BatchGetItem, UpdateItem
//	                                  1 Update each
//	sweep of messages                 16 Query, and the above, Query on the index
//	                                  more if they are large
//	Check                             2                        DescribeTable, DescribeTimeToLive
//
// A function therefore needs PutItem, UpdateItem, GetItem and BatchGetItem on the
// table, steps included, and nothing on the index; being watched needs no permission. None of
// these deletes. What sweeps with an [AdminStore] needs Query on the index too. An
// operator, who also reads the history and forgets, needs Query and DeleteItem on the table too.
// Scan is for a [Scanner] and a [Remover] alone.
// Transactions have no permission of their own: a [Tx] needs those of its actions on its
// own tables, PutItem, UpdateItem, DeleteItem and ConditionCheckItem. A condition on
// dynamodb:LeadingKeys of "<tenant>#*" confines it to one tenant, parts included.
// A table encrypted with a customer's key needs the key's permissions too.
//
// # Transactions
//
// What a handler collects in its [Tx] commits with the outcome in one
// TransactWriteItems, or not at all. The record's write is the first action, under
// the same condition as without a Tx. The reasons of a cancelled transaction are read in
// this order. First the record's: another attempt has the claim, or this very write has
// landed before. Then a business condition, which is the handler's error. Then what
// is temporary, another transaction on the same item (TransactionConflict) or
// throttling: the transaction is sent again after a random pause while time is left.
//
// A try without an answer is sent again, byte for byte the same and with the same
// token, by which DynamoDB knows for ten minutes that it has applied it. When the time
// for that is over, the engine makes a write that fences the transaction. From the
// reply, or from a consistent read, it learns whether the transaction has landed.
// See [idem.CommitError]. A transaction costs twice the write units of its
// items, also if it is cancelled.
//
// # Without transactions
//
// A global table with strong consistency answers TransactWriteItems with an error
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html).
// [Options].WithoutTransactions is for such a table, in every store on it. A [Tx] and atomic
// mode are refused. Everything else works as with transactions, but for the audit entry of a
// change from outside. The entry is written first, as unconfirmed, then the change, then the
// entry again, confirmed. So no change is without its entry, and a confirmed entry is true. An
// entry stays unconfirmed, which [protocol.Audit] shows, if the process dies in between or a
// reply is lost: the record shows what became of the change. The entry of a change that was
// refused is deleted.
//
// # Time and ambiguous writes
//
// The store does its own retries and turns the SDK's off: it must know of every try to
// say whether a write may have been applied. A try gets a second
// ([Options].AttemptTimeout), a transaction's a second more for each MiB, and no more
// than half of the time left. Between tries the store waits for a random time, from
// 25 ms up to a second. Throttling, server
// errors, time-outs and connection errors are tried again until the context ends;
// a call whose context has no deadline gets [Options].Budget. Ambiguous of a
// [*idem.StoreError] is set if any try was sent and got no definite answer: a
// refused connection, a throttled or a denied request are not ambiguous. This needs a
// client with short time-outs for dialing and for replies: make it with [NewClient].
//
// Claims and reads share a quota of retries, as in the SDK's standard mode
// (https://docs.aws.amazon.com/sdkref/latest/guide/feature-retry-behavior.html), for tries
// that find DynamoDB down. Of 64 callers at once on such a table the first ten failures are
// tried again: 1.16 requests a call. The quota counts calls and not
// time. What takes back a claim without an answer needs no quota, and is sent until it is
// answered: once for all the callers of one key, which makes 1.17 requests a call, and once for
// each key. Where that is not answered either, the engine's circuit keeps the number
// down: a thousand calls in ten seconds, each with a key of its own, send 210 to 320
// requests to a table that answers nothing, and 12,000 without it.
//
// Down of the error is set if every try found DynamoDB down: not reached, silent,
// throttled, or answering with a status of 500 or more. Any other answer in between,
// such as another transaction on the item, shows that it works. A request that could
// not be sent, for example because there are no credentials, was surely not applied, and
// does not show that DynamoDB is down. It is tried again only if it was not ready in time.
//
// A delayed try of a write that has given up may still arrive. Its condition then
// decides, as for every other write.
package dynamostore
