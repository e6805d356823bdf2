package dynamostore

// The writes as expressions. No attribute has the name of a reserved word, so that
// they need no aliases. Attributes that may or may not be there are set or removed one
// by one; their clauses are with the code that decides, and testdata has the whole
// expressions. Every byte of them is sent and signed with every write: there are no
// blanks but those that are needed, and nothing is removed that cannot be there.

// Conditions.
const (
	// There is no record.
	ifAbsent = "attribute_not_exists(pk)"
	// The record is the one that was read: every write changes its id.
	ifSeen = "(write_id=:seen OR attribute_not_exists(write_id) AND owner_id=:seen)"
	// The owner's attempt is in the state :is: it runs, or it was parked and
	// neither run again nor resolved since.
	// Records of a later version have no in_state, see [schema.RecordVersion].
	ifHeld = "owner_id=:own AND in_state=:is"
	// The owner's attempt runs or was parked.
	ifHeldOrParked = "owner_id=:own AND in_state IN(:is,:unknown)"
	// The owner's outcome, recorded without its result.
	ifFact = ifHeld + " AND " + ifSeen + " AND attribute_exists(omitted)"
	// An attempt ended or lapsed without outcome, or what was accepted over one waits.
	ifLeft = " AND in_state IN(:in_progress,:released,:pending)"
	// The question is open, or is one as soon as a caller or a sweep looks at it.
	ifUnknown = "in_state IN(:unknown,:in_progress)"
	// It is, or its operation waits for a worker.
	ifWaits = "in_state IN(:unknown,:in_progress,:pending) OR in_state=:released AND attribute_exists(steps.#accepted)"
	// It was answered from outside.
	orResolved = " OR attribute_exists(resolved)"
	// It was not postponed since.
	ifUnswept = " AND attribute_exists(open_due) AND attribute_not_exists(sweep_id)"
	ifSwept   = " AND attribute_exists(open_due) AND sweep_id=:sweep"
	// It is no open question.
	ifEnded = " AND (in_state IN(:completed,:failed) OR in_state=:released AND attribute_not_exists(steps))"
	// It has not expired, and expires earlier than asked for.
	ifExpiring = " AND expires_at>:at AND expires_at<:exp"
	// An audit entry has not been confirmed.
	ifUnconfirmed = "attribute_exists(unconfirmed)"
	// An extension only ever raises the lease.
	ifEarlier = " AND lease_until<:lease_until"
	// A reference is written once, over the one before it.
	ifNoRef = " AND attribute_not_exists(ref_write)"
	ifRef   = " AND ref_write=:seen"
	// A park sent twice is not applied twice: it may start from unknown.
	ifNotMine = " AND write_id<>:id"
	// Steps decide whether a released record is an open question, and whether an
	// expiry may be moved.
	ifNoSteps = " AND attribute_not_exists(steps)"
	ifSteps   = " AND attribute_exists(steps)"
	// A begin mark is set once and taken back once. It is set again only over the entry that
	// took the one before back. A result is written once, where there is none yet. What a
	// resolution has recorded is read by an attempt, or not, once.
	ifStepAbsent = " AND attribute_not_exists(steps.#step)"
	ifStepAgain  = " AND steps.#step.not_executed=:true AND steps.#step.write_id=:seen"
	ifStepBegun  = " AND (attribute_not_exists(steps.#step) OR steps.#step.begun=:true AND " +
		"steps.#step.write_id=:seen)"
	ifStepFromResolution = " AND steps.#step.from_resolution=:true AND attribute_not_exists(steps.#step.begun) AND " +
		"steps.#step.write_id=:seen"
	ifStepOpen = " AND (attribute_not_exists(steps.#step) OR steps.#step.begun=:true OR " +
		"steps.#step.not_executed=:true)"
)

// dueBetween is for entries of the index.
const dueBetween = "open_shard=:open_shard AND open_due BETWEEN :since AND :until"

// Conditions on outbox messages.
const (
	// The message that was read is still to be sent.
	ifWaiting = "created_at = :created AND in_state IN (:new, :retrying)"
	// It has not been marked as sent.
	ifUnsent = "created_at = :created AND in_state <> :state"
	// It died as it was read, and not once more.
	ifDead = "created_at = :created AND in_state = :dead AND tries = :tries AND reason = :reason"
	// It was sent as it was read, and not once more.
	ifSent = "created_at = :created AND in_state = :sent AND dispatched_at = :sent_at"
	// Neither this try nor a later one has begun.
	ifUntried  = " AND (attribute_not_exists(tries) OR tries < :tries)"
	ifNotTried = " AND (attribute_not_exists(tries) OR tries <= :known)"
	// No operator has had it sent again since it was read.
	ifNotResent = " AND attribute_not_exists(resent)"
	ifResent    = " AND resent = :resent"
)

// Updates. What is not named stays.
const (
	takeoverSet = "SET in_state=:to,owner_id=:own,write_id=:id,seen=:seen,lease_until=:lease_until,updated_at=:now"

	withdrawSet = "SET in_state=:to,fp=:fp,owner_id=:new_owner,write_id=:id,lease_until=:lease_until,updated_at=:now"
	// An expired record keeps nothing, any other one its beginning and its steps.
	createdAnew = ",created_at=:created_at"
	createdKept = ",created_at=if_not_exists(created_at,:created_at)"

	extendSet = "SET lease_until=:lease_until,write_id=:id,updated_at=:now"

	stepSet   = "SET steps.#step=:step,write_id=:id,updated_at=:now"
	stepFirst = "SET steps=:steps,write_id=:id,updated_at=:now"
	stepRef   = ",provider_ref=:ref,ref_write=:id"
	// The entry keeps its write_id, which names the result's parts, and its begun_at.
	stepRead           = "SET write_id=:id,updated_at=:now"
	stepUnread         = "SET steps.#step.begun=:true,write_id=:id,updated_at=:now"
	stepFromResolution = "steps.#step.from_resolution"
	stepOutcome        = "steps.#step.body,steps.#step.body_size,steps.#step.enc,steps.#step.parts,steps.#step.failure," +
		"steps.#step.omitted"

	// A part of a step's result goes with the outcome.
	partExpires = "SET expires_at=:exp"
	partIsThere = "attribute_exists(pk)"
	// The part is not there, or not for longer.
	ifNotExtended = "attribute_not_exists(expires_at) OR expires_at<=:exp"
	// Of two who keep a record for longer, the one who asks for less comes too late.
	partExpiring = "expires_at<:exp"

	endSet     = "SET in_state=:to,write_id=:id,updated_at=:now"
	upgradeSet = "SET write_id=:id"

	// A new question is due at once. One that was open before is due as before.
	openSet     = ",open_shard=:open_shard,open_due=:now,open_since=:now"
	openKeptSet = ",open_shard=:open_shard,open_due=if_not_exists(open_due,:now),open_since=if_not_exists(open_since,:now)"
	// Due when its lease is over. A claim over an open question stays in the question's shard, since moving
	// it costs a write unit. Counting questions reads the record there.
	watchSet     = ",open_shard=if_not_exists(open_shard,:open_shard),open_due=:due"
	watchKeptSet = ",open_shard=if_not_exists(open_shard,:open_shard),open_due=if_not_exists(open_due,:due)"

	referenceSet = "SET provider_ref=:ref,ref_write=:id,write_id=:id,updated_at=:now"
	// It leaves write_id: writes that are conditional on it are not disturbed.
	postponeSet   = "SET open_due=:due,sweep_id=:id"
	postponeShard = ",open_shard=:open_shard"

	// Like a claim, it says over what it was made.
	prolongSet = "SET expires_at=:exp,write_id=:id,seen=:seen"
)

// Attributes that an attempt may have left and that a claim removes.
const (
	leftSweep = "sweep_id,probes,escalated_at"
	leftOpen  = "open_shard,open_due,open_since," + leftSweep
	leftBody  = "body,body_size,enc,parts"
	leftAll   = leftBody + ",rv,omitted,failure,ref_write,resolved"
)
