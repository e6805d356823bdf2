// Package schema names what the library, the infrastructure and the operators'
// tools must agree on: the table's keys, attributes and index, and the
// environment variables of a function. It imports nothing, so that each of them
// can import it.
package schema

// Keys of every item.
const (
	// PK is the partition key (S): a record's id, or a part's.
	PK = "pk"
	// SK is the sort key (S).
	SK = "sk"
	// RecordSK is the sort key of a record and of a part of a result.
	RecordSK = "#"
	// AuditSK starts the sort key of a change from outside an attempt, in the partition of its record:
	// audit#<milliseconds, 13 digits>#<entry>.
	AuditSK = "audit#"
	// OutboxSK starts the sort key of an outbox message, in the partition of the
	// record that it was committed with: outbox#<message id>.
	OutboxSK = "outbox#"
	// LimitSK is the sort key of the item that counts the new keys of one tenant's operation in one
	// window of its limit. Its partition key is
	// <tenant>#<operation>#limit#<length of the window>#<its start>, encoded as in a record's id, in
	// seconds and in seconds since 1970.
	LimitSK = "limit"
	// PausesPK and PausesSK are the keys of the item that says what is paused, of all operations.
	PausesPK = "pauses"
	PausesSK = "pauses"
	// PartPK separates a record's id from owner, digest and number of a part in the
	// part's partition key: <id>#part#<owner>#<start of the digest>#<n>. Parts of a
	// step's result have the id of the step's write in place of the owner.
	PartPK = "#part#"
)

// Attributes of a record. None is a reserved word of DynamoDB's
// (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html),
// so that expressions can name them. Times ending in Until and At are milliseconds
// since 1970, except ExpiresAt, which is in seconds. If an attribute is missing, it has the
// value after "without it".
const (
	Version         = "v" // never written for version 1; a 1 is from before the first release
	State           = "in_state"
	Repeatable      = "repeatable" // true; without it: not repeatable
	Value           = "key_value"
	Codec           = "codec"
	Fingerprint     = "fp"
	Owner           = "owner_id"
	Attempt         = "attempt"  // without it: 1
	Write           = "write_id" // without it: Owner, of a fresh claim
	Seen            = "seen"     // the write that the latest claim was made over
	LeaseUntil      = "lease_until"
	Retention       = "retention" // seconds; without it: a day
	CreatedAt       = "created_at"
	UpdatedAt       = "updated_at" // without it: CreatedAt
	Uncertain       = "uncertain"
	Encoding        = "enc"
	Sealed          = "sealed"    // true: results are to be encrypted
	Size            = "body_size" // of the result, where it is compressed or in parts
	ResponseVersion = "rv"
	Ticket          = "ticket"
	Parts           = "parts"
	Omitted         = "omitted" // true: the result could not be kept
	Steps           = "steps"
	Failure         = "failure"
	Ref             = "provider_ref" // what the provider calls the effect
	RefWrite        = "ref_write"    // the write that has set it, unless an earlier attempt's
	Resolved        = "resolved"     // true: the outcome was recorded from outside
	Unsettled       = "unsettled"    // attempts without an outcome; without it: 0

	// For an open question: when it became one, the id of the latest postponement, how often
	// the provider was asked, when it was escalated.
	OpenSince   = "open_since"
	Sweep       = "sweep_id"
	Probes      = "probes"
	EscalatedAt = "escalated_at"

	// Body (B) is a result's stored form, or an outbox message's body.
	Body = "body"

	// Members of Parts: how many, the length of the stored form, its SHA-256.
	PartCount  = "n"
	PartLength = "len"
	PartDigest = "sha256"

	// Members of an entry of Steps, in addition to Write, Failure, Omitted and where its
	// result is as in a record: the begin mark and its time in milliseconds, that the
	// step had no effect, that it has a compensation, that its result is from a resolution
	// and no attempt has read it yet.
	StepBegun          = "begun"
	StepBegunAt        = "begun_at"
	StepNotExecuted    = "not_executed"
	StepCompensates    = "compensates"
	StepFromResolution = "from_resolution"

	// Members of Failure.
	FailureMessage = "message"
	FailureType    = "type"
	FailureCode    = "code"

	// ExpiresAt is the table's TTL attribute: seconds since 1970.
	ExpiresAt = "expires_at"
	// Data is the only attribute of a part, in addition to its keys and its expiry.
	Data = "data"
)

// Attributes of a change from outside an attempt, in addition to its keys, ExpiresAt and the
// index's, where OpenDue is when it was made.
const (
	AuditWho     = "who"
	AuditWhy     = "why"
	AuditTool    = "tool"
	AuditChange  = "change"
	AuditFrom    = "from_state"
	AuditTo      = "to_state"
	AuditAttempt = "attempt"
	AuditRef     = "provider_ref"
	AuditWhat    = "what" // what was changed, where that is not the record's state
	// AuditSteps (M of S) is what was said of each step, AuditUntil until when the record is
	// kept, in seconds since 1970.
	AuditSteps = "steps"
	AuditUntil = "kept_until"
	// AuditUnconfirmed is true as long as it is not known whether the change was made.
	AuditUnconfirmed = "unconfirmed"
)

// NewKeys (N) of the item that counts new keys has their number. Its other attributes are its keys
// and ExpiresAt.
const NewKeys = "new_keys"

// Pauses (S) is the list of pauses in JSON. The item's other attributes are its keys and [Write].
const Pauses = "paused"

// The sparse index of open questions and watched claims, of messages that wait, and of
// changes from outside: keys only.
const (
	// OpenIndex is the index's name.
	OpenIndex = "open"
	// OpenShard is its partition key (S): a shard, "00" to "63" for records.
	OpenShard = "open_shard"
	// OpenDue is its sort key (N): when the next look at it is due, in milliseconds. That of a message
	// that waits has its destination and its order in front (dynamostore).
	OpenDue = "open_due"
	// ShardCount is the number of shards for records. The first QuestionShards of them, which are those
	// of the versions before, have the open questions. The others have the watched claims that run.
	ShardCount     = 64
	QuestionShards = 16
	// OutboxShardCount is the number of shards for messages that wait, and for dead letters.
	OutboxShardCount = 16
	// AuditShardCount is the number of shards for changes from outside.
	AuditShardCount = 16
)

// DynamoDB takes 1,000 writes of index entries a second in one shard, whatever the table's capacity is.
// An operation whose claim is watched writes an entry and removes it, and so does a message.
const (
	ShardWrites = 1000
	// MaxWatched is how many watched operations a second the index takes if all shards get the same
	// number, and MaxMessages how many messages.
	MaxWatched  = (ShardCount - QuestionShards) * ShardWrites / 2
	MaxMessages = OutboxShardCount * ShardWrites / 2
	// SpreadPercent is the share of that at which the fullest shard takes all its writes: operations
	// of one second do not fall evenly on the shards.
	SpreadPercent = 80
)

// Attributes of an outbox message, in addition to its keys, State, Body, CreatedAt, ExpiresAt
// and the index's. It sits in the index as long as it is not dispatched. It has an expiry once it
// is dispatched.
const (
	Destination = "destination"
	OrderingKey = "ordering_key"
	MessageType = "message_type"
	ContentType = "content_type"
	Tags        = "tags" // M of S
	// Number is the message's place among those of its record, from 0.
	Number = "number"
	// After are the ids of the record's messages that are to be sent before it.
	After = "after" // L of S
	// Tries counts the tries to send it that failed, NextTry is when the next one
	// is due, Reason why the last one failed.
	Tries   = "tries"
	NextTry = "next_try"
	Reason  = "reason"
	// DispatchedAt is when it was noted as sent, SentID the service's id of that send, DeadAt when it
	// became a dead letter. A message that is sent again keeps SentID until the next note.
	DispatchedAt = "dispatched_at"
	SentID       = "sent_id" // without it: none
	DeadAt       = "dead_at"
	// Resent counts how often an operator has had it sent again. A note of a relay that read it before changes
	// nothing.
	Resent = "resent" // without it: never
)

// States of an outbox message. A dispatched one has [DispatchedAt], a dead letter [DeadAt].
const (
	OutboxNew        = "new"
	OutboxRetrying   = "retrying"
	OutboxDispatched = "dispatched"
	OutboxDead       = "dead"
)

// Shards of the index that hold outbox messages: these, then "00" to "15".
const (
	// OutboxShard holds those that wait.
	OutboxShard = "outbox-"
	// DeadShard holds the dead letters, by when they became that.
	DeadShard = "outbox-dead-"
)

// AuditShard and "00" to "15" are the shards of the index that hold the changes from outside.
const AuditShard = "audit-"

// OutboxFilter is the relay's filter for its event source mapping: messages that
// were not tried yet.
const OutboxFilter = `{"dynamodb":{"Keys":{"sk":{"S":[{"prefix":"outbox#"}]}},"NewImage":{"in_state":{"S":["new"]}}}}`

// OutboxItemVersion is the version of a message's form that this code writes.
const OutboxItemVersion = 1

// RecordVersion is the version of the record's form that this code writes. A record of
// version 1 has no [Version]. One of a later version is never interpreted, and keeps its
// state in another attribute than [State]: so no write of an attempt that claimed it by
// this version can change it.
const RecordVersion = 1

// MaxSweepConcurrency bounds EnvSweepConcurrency: a function has 1,024 files and connections, and each record that is
// handled takes one to the table and one to its provider. Use less with several providers: each has as many.
const MaxSweepConcurrency = 256

// Environment variables of a function.
const (
	// EnvTable names the table.
	EnvTable = "IDEM_TABLE"
	// EnvWithoutTransactions is true for a table that has no transactions: a strongly
	// consistent global table.
	EnvWithoutTransactions = "IDEM_WITHOUT_TRANSACTIONS"
	// EnvKMSKey is the KMS key that wraps the data keys of encrypted results, for package kmsseal.
	EnvKMSKey = "IDEM_KMS_KEY"
	// EnvEndpoint is the endpoint of a local DynamoDB; unset on AWS.
	EnvEndpoint = "IDEM_DYNAMODB_ENDPOINT"

	// EnvFunctionTimeout is the function's time-out in whole seconds, which a
	// function cannot read from anywhere before its first invocation.
	EnvFunctionTimeout = "IDEM_FUNCTION_TIMEOUT"
	// EnvQueueBatchSize is the batch size of the event source mapping of its queue.
	EnvQueueBatchSize = "IDEM_QUEUE_BATCH_SIZE"
	// EnvOutboxRoutes says where the relay sends what: a JSON object of destinations
	// and the queue's URL, the topic's ARN or the event bus's ARN of each.
	EnvOutboxRoutes = "IDEM_OUTBOX_ROUTES"
	// EnvOutboxSource is the source of the relay's events on EventBridge.
	EnvOutboxSource = "IDEM_OUTBOX_SOURCE"
	// EnvOutboxMaxTries is how many tries may fail until the relay makes a message a dead letter.
	EnvOutboxMaxTries = "IDEM_OUTBOX_MAX_TRIES"
	// EnvOutboxBackoff is the pause after the first failed try, such as "1s".
	EnvOutboxBackoff = "IDEM_OUTBOX_BACKOFF"
	// EnvOutboxGrace is how old a message is when the sweep takes it up, such as
	// "2m". It must be longer than the relay's time-out.
	EnvOutboxGrace = "IDEM_OUTBOX_GRACE"

	// EnvSweepEscalations is the URL of the queue for questions that the sweep escalates.
	EnvSweepEscalations = "IDEM_SWEEP_ESCALATIONS"
	// EnvSweepConcurrency is how many records of a provider the sweep handles at once, from 1 to
	// MaxSweepConcurrency.
	EnvSweepConcurrency = "IDEM_SWEEP_CONCURRENCY"

	// EnvQueueRepeat is the declaration that the stack was made for: repeatable or
	// not_repeatable. The function's operation must declare the same.
	EnvQueueRepeat = "IDEM_QUEUE_REPEAT"
	// EnvQueueRedelivery is for how long a message may come again, in seconds: the
	// queue's retention, and its dead-letter queue's after a redrive.
	EnvQueueRedelivery = "IDEM_QUEUE_REDELIVERY"
	// EnvEventRedelivery is the same for what is not a queue: for how long the source
	// may deliver an event or a record again, in seconds. Without it the library uses the
	// service's default for Kinesis and Kafka, and otherwise by the longest that the service
	// documents.
	EnvEventRedelivery = "IDEM_EVENT_REDELIVERY"
)
