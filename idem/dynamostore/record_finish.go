package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Finish implements [idem.Store]: one UpdateItem, after the parts of a large result, and
// a second one if another call has parked the record; a PutItem for an attempt in atomic
// mode. With a [*Tx] each is one TransactWriteItems instead.
func (s *Store) Finish(ctx context.Context, now time.Time, f protocol.Finish) error {
	tx, ok := f.Unit.(unit)
	if f.Unit != nil && !ok {
		return fmt.Errorf("dynamostore: Finish.Unit: a %T cannot commit here, a *dynamostore.Tx can: %w", f.Unit,
			errors.ErrUnsupported)
	}
	k := s.retry.begin(ctx, "Finish")
	defer k.end()
	var w companion
	if tx != nil {
		err := s.refusesUnits()
		if err != nil {
			return err
		}
		if w, err = tx.companion(s, f, now); err != nil {
			return err
		}
	}
	owner := cmp.Or(f.NewOwner, f.Owner) // who names the parts
	body, err := s.prepare(k, f.ID, owner, f.Ending, f.Progress, partShare)
	if err != nil {
		return err
	}
	switch how := f.Attempt.(type) {
	case protocol.WithoutResult:
		return s.upgrade(k, f, how.Write, body)
	case protocol.Atomic:
		if err = s.mayWrite(k.op, f.ID, how.Claim.Record.Sealed, f.Ending.Result); err != nil {
			return k.fail(err)
		}
		input, err := s.acceptInput(k, &f, how)
		if err != nil {
			return err
		}
		old, err := s.insert(k, f, how, w, body, now)
		if err != nil && !k.maybe && !bears(old, f.Write) && input.Body.Parts > 0 && !names(old, f.ID, input) {
			s.expireResults(k, f.ID, []protocol.RecordedStep{input}, now) // nothing will ever name them
		}
		return s.ended(old, err, k, f.Write, f.Ending)
	}
	var spent item
	if w != nil && f.LargeSteps {
		// A transaction does not say what it has changed.
		if spent, err = s.get(k, key(f.ID)); err != nil {
			return err
		}
	}
	likely := form{state: protocol.InProgress, steps: likely(f.Ending), watched: f.Watched}
	old, err := inForm(likely, f.Write, func(of form) (item, error) {
		u, cond := s.ending(f.ID, f.Write, f.Ending, body, now, of)
		u.wantsOld = f.LargeSteps
		u.str(":own", f.Owner)
		u.str(":is", string(of.state))
		if f.NewOwner != "" {
			u.add(",owner_id=:new_owner")
			u.str(":new_owner", f.NewOwner)
		}
		cond = ifHeld + cond
		if of.state == protocol.Unknown && f.Ending.State == protocol.Unknown {
			cond += ifNotMine
		}
		return s.updateWith(k, w, key(f.ID), f.Write, u, cond)
	}, func(old item) (form, bool) { return formFor(f, old) })
	if err == nil && f.LargeSteps {
		if w == nil {
			spent = old
		}
		s.expireSteps(k, f.ID, f.Ending, spent)
	}
	return s.ended(old, err, k, f.Write, f.Ending)
}

// form is what the end of an attempt takes its record for. Its expression is made for
// such a record.
type form struct {
	state protocol.State // InProgress or Unknown
	steps ifReleased
	// watched: in progress, it is in the index.
	watched bool
	// asked: it is the open question that the end leaves.
	asked bool
	// resolved: it may have an outcome, from outside.
	resolved bool
	// leaves: the completed record keeps :steps.
	leaves bool
}

// formFor is the form of an attempt's end for the record as it turned out to be, if it can
// leave that.
func formFor(f protocol.Finish, old item) (form, bool) {
	if old == nil {
		return form{}, false
	}
	of := form{state: protocol.State(text(old, schema.State)), steps: stepsOf(f.Ending, old), watched: f.Watched}
	switch {
	case text(old, schema.Owner) != f.Owner:
		return of, false
	case of.state == protocol.Unknown:
		of.asked = f.Ending.State == protocol.Unknown
		// Parked, it must not make itself repeatable again.
		return of, f.Ending.State != protocol.Released || !f.Ending.Uncertain
	}
	return of, of.state == protocol.InProgress
}

// acceptInput packs the input of what is accepted for later, and stores its parts.
func (s *Store) acceptInput(k *call, f *protocol.Finish, how protocol.Atomic) (protocol.RecordedStep, error) {
	input, ok := how.Claim.Record.Steps[protocol.AcceptedStep]
	if f.Ending.State != protocol.Pending {
		return protocol.RecordedStep{}, nil
	}
	if !ok {
		return input, k.fail(fmt.Errorf("a pending record without its input: add step %q", protocol.AcceptedStep))
	}
	if len(input.Body.Data) > s.maxResult {
		return input, &protocol.TooLargeError{Size: len(input.Body.Data), Limit: s.maxResult}
	}
	err := s.mayWrite(k.op, f.ID, how.Claim.Record.Sealed, input.Body.Data)
	if err != nil {
		return input, k.fail(err)
	}
	if input.Body, err = s.pack(k, target{f.ID, protocol.AcceptedStep}, input.Body.Data, stepInlineUpTo,
		f.Progress); err != nil {
		return input, &protocol.StoreError{Op: k.op, Err: err}
	}
	how.Claim.Record.Steps = maps.Clone(how.Claim.Record.Steps)
	how.Claim.Record.Steps[protocol.AcceptedStep] = input
	f.Attempt = how
	if input.Body.Parts == 0 {
		return input, nil
	}
	// Without an expiry: the table never forgets an open question.
	return input, s.putParts(k, f.ID, input.Write, input.Body, time.Time{}, f.Progress)
}

// names reports whether the record has the input, or may have it: the acceptance has landed then,
// however often the record was claimed since.
func names(old item, id string, input protocol.RecordedStep) bool {
	d := &decoder{item: old, id: id}
	steps := d.steps()
	return d.err != nil || steps[protocol.AcceptedStep].Write == input.Write
}

// insert writes the whole record of an attempt in atomic mode, over the one that its claim has seen.
func (s *Store) insert(
	k *call, f protocol.Finish, how protocol.Atomic, w companion, body protocol.Body, now time.Time,
) (item, error) {
	cond := ifAbsent
	var seen item // nil, not empty, where there is none
	var over *protocol.Record
	if how.Claim.Seen != "" {
		cond, seen, over = ifSeen, seenValue(how.Claim.Seen), &protocol.Record{Write: how.Claim.Seen}
	}
	rec, err := f.Apply(over, now)
	if err != nil {
		return nil,
			k.fail(fmt.Errorf("an outcome in state %q without a claim: use Completed, Failed or Pending", f.Ending.State))
	}
	rec.Body = body
	switch {
	case w == nil && over != nil:
		return s.replace(k, s.encode(rec), over.Write)
	case w == nil:
		return s.put(k, s.encode(rec), cond, nil)
	}
	return w.send(k, f.Write, types.TransactWriteItem{Put: &types.Put{
		TableName: s.table, Item: s.encode(rec), ConditionExpression: &cond, ExpressionAttributeValues: seen,
		ReturnValuesOnConditionCheckFailure: allOld,
	}})
}

// ended turns the reply to a write that ends or resolves a record into its error.
func (s *Store) ended(old item, err error, k *call, write string, e protocol.Ending) error {
	if (len(e.Result) > 0 || e.Failure != nil) && tooLarge(err, k) {
		return &protocol.TooLargeError{Size: len(e.Result), Limit: maxItem}
	}
	return conclude(old, err, write)
}

// maxItem is DynamoDB's limit. A record comes near it by its steps alone.
const maxItem = 400 << 10

// likely is the form of an end to try first: the engine gives an expiry exactly
// to the released records that have no steps.
func likely(e protocol.Ending) ifReleased {
	switch {
	case e.State != protocol.Released:
		return unsure
	case e.ExpiresAt.IsZero():
		return withSteps
	}
	return withoutSteps
}

// stepsOf is the form of an end for a record as it turned out to be.
func stepsOf(e protocol.Ending, old item) ifReleased {
	switch {
	case e.State != protocol.Released:
		return unsure
	case hasSteps(old):
		return withSteps
	}
	return withoutSteps
}

// ifReleased says for which records a form of a released end is.
type ifReleased uint8

const (
	unsure ifReleased = iota // it does not matter, or is not known
	withSteps
	withoutSteps
)

func (r ifReleased) condition() string {
	switch r {
	case withSteps:
		return ifSteps
	case withoutSteps:
		return ifNoSteps
	}
	return ""
}

// ending starts the update that makes of a record what the ending says, and the part
// of its condition that is about steps. Of a record in progress it removes nothing
// that such a record cannot have: a result or an error, since claims leave none, or a place
// in the index where the claim is not watched.
func (s *Store) ending(id, write string, e protocol.Ending, body protocol.Body, now time.Time,
	of form) (*update, string) {
	u := newUpdate(endSet, 4, 2)
	u.str(":to", string(e.State))
	u.str(":id", write)
	u.num(":now", millis(now))
	left := func(names string) {
		if of.state != protocol.InProgress {
			u.drop(names)
		}
	}
	inIndex := of.watched || of.state != protocol.InProgress
	if e.State == protocol.Unknown || of.steps == withSteps {
		// The table never forgets an open question.
		u.expires(time.Time{})
		if of.asked {
			u.opens(id, openKeptSet)
		} else {
			u.opens(id, openSet)
			if inIndex {
				u.drop(leftSweep)
			}
		}
	} else {
		u.expires(e.ExpiresAt)
		if inIndex {
			u.drop(leftOpen)
		}
	}
	u.yesOr(schema.Uncertain, e.Uncertain)
	switch {
	case e.State == protocol.Completed:
		u.body(body, of.resolved)
	case of.resolved:
		u.drop(leftBody)
	}
	switch {
	case of.leaves:
		u.add(",steps=:steps")
	case e.State == protocol.Completed || e.State == protocol.Failed:
		// No attempt resumes any more: see [idem.Record].
		u.drop(schema.Steps)
	}
	if e.Failure != nil {
		u.add(",failure=:failure")
		u.item[":failure"] = encodeFailure(e.Failure)
	} else {
		left(schema.Failure)
	}
	if e.Omitted {
		u.yesOr(schema.Omitted, true)
	} else {
		left(schema.Omitted)
	}
	if e.ResponseVersion != 0 {
		u.numOr(schema.ResponseVersion, int64(e.ResponseVersion), 0)
	} else {
		left(schema.ResponseVersion)
	}
	if e.Stricter {
		u.drop(schema.Repeatable)
	}
	if e.Ref != "" {
		u.strOr(schema.Ref, e.Ref)
		u.add(",ref_write=:id")
	}
	if e.Unsettled != 0 {
		u.numOr(schema.Unsettled, int64(e.Unsettled), 0)
	}
	return u, of.steps.condition()
}

// body sets where the result is, over another one if there may be one.
func (u *update) body(b protocol.Body, over bool) {
	if b.Parts > 0 {
		u.add(",parts=:parts")
		u.item[":parts"] = encodeParts(b)
		if over {
			u.drop(schema.Body)
		}
	} else {
		u.add(",body=:body")
		u.bytes(":body", b.Data)
		if over {
			u.drop(schema.Parts)
		}
	}
	if b.Encoding != "" {
		u.strOr(schema.Encoding, b.Encoding)
	} else if over {
		u.drop(schema.Encoding)
	}
	if b.Encoding != "" || b.Parts > 0 {
		u.add(",body_size=:body_size")
		u.num(":body_size", int64(b.Size))
	} else if over {
		u.drop(schema.Size)
	}
}

// upgrade adds the result to an outcome that was recorded without it.
func (s *Store) upgrade(k *call, f protocol.Finish, fact string, body protocol.Body) error {
	if f.Ending.State != protocol.Completed || f.Unit != nil {
		return k.fail(errors.New("the end of a protocol.WithoutResult adds a result to a completed outcome, and nothing " +
			"else: use Completed, and leave Unit nil"))
	}
	u := newUpdate(upgradeSet, 6, 2)
	u.str(":own", f.Owner)
	u.str(":is", string(protocol.Completed))
	u.str(":seen", fact)
	u.str(":id", f.Write)
	u.drop(schema.Omitted)
	u.body(body, true)
	old, err := s.update(k, f.ID, u, ifFact)
	return conclude(old, err, f.Write)
}

// prepare checks an ending and stores its result's parts, before anything is
// written to the record, in a share of the call's time.
func (s *Store) prepare(k *call, id, owner string, e protocol.Ending, done *protocol.Progress,
	part float64) (protocol.Body, error) {
	switch e.State {
	case protocol.Completed:
	case protocol.Failed:
		if e.Failure == nil {
			return protocol.Body{}, k.fail(errors.New("an ending as failed needs its Failure"))
		}
		return protocol.Body{}, nil
	case protocol.Released, protocol.Unknown, protocol.Pending:
		return protocol.Body{}, nil
	default:
		return protocol.Body{},
			k.fail(fmt.Errorf("an ending in state %q: use Completed, Failed, Released, Unknown or Pending", e.State))
	}
	if e.ResponseVersion < 0 || e.ResponseVersion > math.MaxInt32 {
		return protocol.Body{}, k.fail(
			fmt.Errorf("an ending with ResponseVersion %d, which no reader takes: count versions from zero", e.ResponseVersion))
	}
	if len(e.Result) > s.maxResult {
		return protocol.Body{}, &protocol.TooLargeError{Size: len(e.Result), Limit: s.maxResult}
	}
	if e.Omitted {
		done = nil // it is of the result that the fact goes without
	}
	b, err := s.pack(k, target{id: id}, e.Result, inlineUpTo, done)
	switch {
	case err == nil && b.Parts == 0:
		return b, nil
	case err == nil:
	case e.Omitted:
		// The fact is worth more than what it keeps of the result.
		return s.codec.pack(nil), nil
	default:
		return protocol.Body{}, &protocol.StoreError{Op: k.op, ResultNotStored: true, Err: err}
	}
	if owner == "" {
		// The parked attempt may be writing its own parts under the owner that stays.
		return protocol.Body{},
			k.fail(errors.New("a settlement with a large result needs a new Owner, which names its parts"))
	}
	k, cancel := k.share(part)
	defer cancel()
	return b, s.putParts(k, id, owner, b, e.ExpiresAt, done)
}
