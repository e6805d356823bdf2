package dynamostore

// The writes as expressions. Reserved words are written #name. Attributes that
// may or may not be there are set or removed one by one; their clauses are with
// the code that decides, and testdata has the whole expressions.

// Conditions.
const (
	// There is no record.
	ifAbsent = "attribute_not_exists(pk)"
	// The record is the one that was read: every write changes write.
	ifSeen = "#write = :seen"
	// The owner's attempt runs. A record of a newer version is left alone.
	ifRunning = "#owner = :owner AND #state = :in_progress AND v <= :v"
	// The owner's attempt runs, or was parked and nobody has run or resolved it since.
	ifHeld = "#owner = :owner AND #state IN (:in_progress, :unknown) AND v <= :v"
	// The owner's outcome, recorded without its result.
	ifFact = "#owner = :owner AND #state = :completed AND #write = :seen AND attribute_exists(unavailable) AND v <= :v"
	// An attempt ended or lapsed without outcome.
	ifLeft = " AND #state IN (:in_progress, :released)"
	// The question is open.
	ifUnknown = " AND #state = :unknown"
	// An extension only ever raises the lease.
	ifEarlier = " AND lease_until < :lease_until"
	// A park sent twice is not applied twice: it may start from unknown.
	ifNotMine = " AND #write <> :write"
	// Steps decide whether a released record is an open question, and whether an
	// expiry may be moved.
	ifNoSteps = " AND attribute_not_exists(steps)"
	ifSteps   = " AND attribute_exists(steps)"
	// A begin mark is set once, anew only over the entry that took the one before back,
	// and taken back once; a result is written once, where there is none yet.
	ifStepAbsent = " AND attribute_not_exists(steps.#step)"
	ifStepAgain  = " AND steps.#step.not_executed = :true AND steps.#step.#write = :seen"
	ifStepBegun  = " AND (attribute_not_exists(steps.#step) OR steps.#step.begun = :true AND steps.#step.#write = :seen)"
	ifStepOpen   = " AND (attribute_not_exists(steps.#step) OR steps.#step.begun = :true OR steps.#step.not_executed = :true)"
)

// Conditions on outbox messages.
const (
	// The message that was read is still to be sent.
	ifWaiting = "created_at = :created AND #state IN (:new, :retrying)"
	// It has not been marked as sent.
	ifUnsent = "created_at = :created AND #state <> :state"
	ifDead   = "created_at = :created AND #state = :dead"
	// Nobody has begun this try, or a later one.
	ifUntried  = " AND (attribute_not_exists(tries) OR tries < :tries)"
	ifNotTried = " AND (attribute_not_exists(tries) OR tries <= :known)"
)

// Updates. What is not named stays.
const (
	takeoverSet = "SET #state = :state, #repeat = :repeat, #owner = :owner, attempt = :attempt, #write = :write, " +
		"seen = :seen, lease_until = :lease_until, retention = :retention, updated_at = :now"
	takeoverNames = nState | nRepeat | nOwner | nWrite

	withdrawSet = "SET v = :v, #state = :state, #repeat = :repeat, fp = :fp, #owner = :new_owner, attempt = :attempt, " +
		"#write = :write, lease_until = :lease_until, retention = :retention, updated_at = :now"
	// Of an expired record nothing stays, of any other its beginning and its steps.
	createdAnew   = ", created_at = :created_at"
	createdKept   = ", created_at = if_not_exists(created_at, :created_at)"
	withdrawNames = nState | nRepeat | nOwner | nWrite | nValue

	extendSet   = "SET lease_until = :lease_until, #write = :write, updated_at = :now"
	extendNames = nOwner | nState | nWrite

	stepSet   = "SET steps.#step = :step, #write = :write, updated_at = :now REMOVE expires_at"
	stepFirst = "SET steps = :steps, #write = :write, updated_at = :now REMOVE expires_at"
	stepNames = nOwner | nState | nWrite

	// A part of a step's result goes with the outcome.
	partExpires = "SET expires_at = :expires_at"
	partIsThere = "attribute_exists(pk)"

	endSet     = "SET #state = :state, #write = :write, updated_at = :now"
	upgradeSet = "SET #write = :write"

	endNames = nState | nWrite | nResult | nSize | nError

	// What an attempt that ran without a claim adds where there is no record.
	absentSet = ", v = if_not_exists(v, :v), fp = if_not_exists(fp, :fp), " +
		"attempt = if_not_exists(attempt, :attempt), lease_until = if_not_exists(lease_until, :lease_until), " +
		"retention = if_not_exists(retention, :retention), created_at = if_not_exists(created_at, :created_at)"

	// Open since the first of several writes that leave the question open.
	openSet = ", open_shard = :open_shard, open_since = if_not_exists(open_since, :now)"
)
