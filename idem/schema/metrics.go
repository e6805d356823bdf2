package schema

// MetricNamespace is the CloudWatch namespace of all metrics.
const MetricNamespace = "Idempotency"

// Dimensions of all metrics. Each metric is there under the service alone, which adds up
// its operations, and under service and operation. What belongs to no operation, such as a
// relay's messages, is under the service alone. A key or a tenant is never a dimension.
const (
	// DimensionService is the function's name, unless the program sets another one.
	DimensionService = "service"
	// DimensionOperation is the operation's name.
	DimensionOperation = "operation"
)

// Counts of an engine, without unit. A name is the kind of the notice that it counts, see package
// notice; the log lines have the same word as their kind.
//
// MetricClaimed and MetricTookOver are attempts that began. What they exceed MetricExecuted by, over an
// hour, has not returned: it still runs, or its process was killed at a time-out, before which the exporters
// write. A process that dies at once, such as without memory or by [os.Exit], takes its last counts along.
// It shows as Errors of AWS/Lambda, and its watched claims as MetricSweepParked or MetricAbandoned.
const (
	MetricClaimed          = "claimed"           // a first attempt has its claim; atomic mode takes none
	MetricTookOver         = "took_over"         // a later attempt has its claim
	MetricExecuted         = "executed"          // a handler ran to its end, or panicked
	MetricReplayed         = "replayed"          // answered with a recorded outcome
	MetricInFlight         = "in_flight"         // answered with ErrInFlight: concurrent duplicates
	MetricAccepted         = "accepted"          // accepted for later, or answered with ErrAccepted
	MetricOutcomeUnknown   = "outcome_unknown"   // answered with ErrOutcomeUnknown
	MetricKeyReused        = "key_reused"        // answered with ErrKeyReused
	MetricLimitExceeded    = "limit_exceeded"    // answered with ErrLimitExceeded: a limit of package limit
	MetricPaused           = "paused"            // answered with ErrPaused: an operator has paused the operation
	MetricKeyless          = "keyless"           // begun without a key, where it is optional: sent again, it runs again
	MetricCompleted        = "completed"         // an attempt's result is recorded
	MetricFailed           = "failed"            // an attempt's terminal failure is recorded
	MetricReleased         = "released"          // ended without outcome, the key is free
	MetricParked           = "parked"            // ended or lapsed, with an unknown outcome
	MetricStepInterrupted  = "step_interrupted"  // an at-most-once step began and has no outcome
	MetricUncommitted      = "uncommitted"       // nothing of a unit of work was committed for certain
	MetricResultOmitted    = "result_omitted"    // an outcome is recorded without its result
	MetricLeaseLost        = "lease_lost"        // an attempt no longer has its claim
	MetricOutOfTime        = "out_of_time"       // too little time was left to take a claim
	MetricStoreUnavailable = "store_unavailable" // the store could not be reached before the claim
	MetricCircuitOpened    = "circuit_opened"    // calls have found the store down, further ones do not ask it
	MetricFailedOpen       = "failed_open"       // the store is down, the handler runs and nothing is recorded
	MetricUnreadable       = "record_unreadable" // a record cannot be read, of an engine's or a sweep's
	MetricWithdrawn        = "withdrawn"         // a claim without a reply was taken back; if that waits: outcome_queued
	MetricOutcomeQueued    = "outcome_queued"    // a write is kept for later
	MetricOutcomeLanded    = "outcome_landed"    // a queued write was written
	MetricOutcomeDropped   = "outcome_dropped"   // a queued write was given up
)

// MetricDuplicate has a value for each call that ran or met a record of its key, in shadow too. Its average is
// the share of duplicates in percent, its number of samples that of the calls. A call that was refused,
// such as by a limit, has none.
const (
	// 100 if the key was in use already (replayed, in_flight, outcome_unknown, key_reused, accepted again), 0 if
	// the handler ran.
	MetricDuplicate = "duplicate"
)

// Counts of an operation in shadow mode: what would have been answered instead of running
// the handler.
const (
	MetricShadowExecuted  = "shadow_executed"   // nothing else: the handler would have run
	MetricShadowDuplicate = "shadow_duplicate"  // a duplicate
	MetricShadowKeyReused = "shadow_key_reused" // a key with another input
	MetricShadowRefused   = "shadow_refused"    // refused, such as for a missing key: the log lines have the reasons
)

// Latencies of an engine, in milliseconds.
const (
	MetricClaimTime   = "claim_time"   // from the call's beginning to its claim, waiting included
	MetricHandlerTime = "handler_time" // of the handler, its steps included
	MetricFinishTime  = "finish_time"  // from the handler's end until its outcome is recorded
)

// Units of DynamoDB that calls on the table took, by operation, where the program asks for them
// (dynamostore.MeterCapacity). Those of a sweep's queries are under the service alone.
const (
	MetricWriteUnits = "write_units"
	MetricReadUnits  = "read_units"
)

// Counts of a sweep by operation. The names are kinds of notices too.
const (
	MetricSweepParked    = "sweep_parked"    // a lapsed claim became unknown
	MetricSweepPostponed = "sweep_postponed" // it still runs, or could not be asked about yet
	MetricSweepFailed    = "sweep_failed"    // a record could not be handled
	MetricAbandoned      = "abandoned"       // the next call would continue it, and none came
	MetricProbed         = "probed"          // the provider was asked, and the outcome stays unknown
	MetricResolved       = "resolved"        // an unknown outcome was found out
	MetricEscalated      = "escalated"       // a question was escalated
	MetricNotStarted     = "not_started"     // accepted work ended as failed: no worker started it in time
)

// What a sweep says once each time. MetricOldestOpen and MetricOpen are by operation too. If it
// has no time to count all open questions, there are at least so many, and the oldest is at
// least so old.
const (
	MetricSwept      = "swept"       // a sweep ended: 1
	MetricSweepLeft  = "sweep_left"  // records were due, and there was no time for them
	MetricExpired    = "expired"     // expired items were removed, from a table without TTL; none writes no number
	MetricOpen       = "open"        // open questions; 0 if there are none
	MetricOldestOpen = "oldest_open" // the oldest one's age in seconds; 0 if there are none
)

// What a sweep of an outbox relay says once each time, under the service alone. A message is missed
// if the stream did not deliver it in time, or left it to the sweep because its destination was down or
// slow. It counts if its destination accepts it at its first try.
const (
	MetricOutboxMissed = "outbox_missed" // messages sent that the stream has missed; 0 if none
	MetricOutboxOldest = "outbox_oldest" // the oldest waiting message's age in seconds; 0 if none waits
)

// Counts of an outbox relay, under the service alone.
const (
	MetricOutboxRelayed    = "outbox_relayed"    // messages were accepted by their destination
	MetricOutboxFailed     = "outbox_failed"     // tries failed and will be repeated
	MetricOutboxDead       = "outbox_dead"       // messages became dead letters
	MetricOutboxDeferred   = "outbox_deferred"   // messages were left to a later sweep without a try
	MetricOutboxUnreadable = "outbox_unreadable" // messages cannot be read and are left as they are
	MetricOutboxLeft       = "outbox_left"       // messages were not finished in a call
)

// Counts of a comparison with a provider's ledger (package reconcile/ledger), under the service alone. One that
// has failed writes none. MetricLedgerDifferences adds up the five differences, and is 0 if there are none: it
// says that a comparison has come to its end.
const (
	MetricLedgerDifferences  = "ledger_differences"
	MetricLedgerMissingHere  = "ledger_missing_here"  // the provider did it, no record is completed
	MetricLedgerMissingThere = "ledger_missing_there" // a record expects it, the provider has nothing
	MetricLedgerDifferent    = "ledger_different"     // value or state differ
	MetricLedgerDoubled      = "ledger_doubled"       // two effects or two records have one token or reference
	MetricLedgerUnread       = "ledger_unread"        // the provider did it, record or result cannot be read
	MetricLedgerCompared     = "ledger_compared"      // entries whose record expects them
)

// Properties of a metrics line in the log: not metrics, and no dimensions.
const (
	// PropertyRequest is the invocation's request id, as in the lines of aws-lambda-go's logger.
	PropertyRequest = "requestId"
	// PropertyDuplicates has the tenants with the most duplicates, and how many: an object.
	PropertyDuplicates = "top_duplicate_tenants"
)
