package dynamostore

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Largest stored forms of a step's result that are kept in the record: every write
// is billed by the record's size, and a record may have many steps. A full record
// keeps what is hardly larger than the description of its parts.
const (
	stepInlineUpTo     = 1 << 10
	stepInlineFullUpTo = 128
)

// RecordStep implements [idem.Store]: one UpdateItem, after the parts of a large
// result, and a second one where w.First has guessed wrongly.
func (s *Store) RecordStep(ctx context.Context, now time.Time, w protocol.StepWrite) error {
	if len(w.Result) > s.maxResult {
		return &protocol.TooLargeError{Size: len(w.Result), Limit: s.maxResult}
	}
	k := s.retry.begin(ctx, "RecordStep")
	defer k.end()
	if w.Name == "" {
		return k.fail(errors.New("a step without a name"))
	}
	step := protocol.RecordedStep{
		Begun: w.Begin, NotExecuted: w.NotExecuted, Failure: w.Failure, Omitted: w.Omitted,
		Compensates: w.Compensates, Write: w.Write,
	}
	if w.Begin {
		step.BegunAt = now
	}
	if !w.Begin && !w.NotExecuted && !w.Read && !w.Unread && w.Failure == nil {
		inline := stepInlineUpTo
		if w.InParts {
			inline = stepInlineFullUpTo
		}
		var err error
		if step.Body, err = s.pack(k, target{w.ID, w.Name}, w.Result, inline, nil); err != nil {
			return k.fail(err)
		}
	}
	if step.Body.Parts > 0 {
		// Without an expiry: the table never forgets an open question.
		if err := s.putParts(k, w.ID, w.Write, step.Body, time.Time{}, nil); err != nil {
			return err
		}
	}
	likely := form{state: protocol.InProgress, steps: withSteps}
	if w.First {
		likely.steps = withoutSteps
	}
	old, err := inForm(likely, "", func(of form) (item, error) {
		u, cond := s.stepForm(w, step, now, of)
		return s.update(k, w.ID, u, cond)
	}, func(old item) (form, bool) { return formForStep(w, old) })
	switch {
	case isItemTooLarge(err):
		return &protocol.TooLargeError{Size: len(w.Result), Limit: maxItem}
	case err == nil, err == errRefused && landedStep(old, w):
		if w.Unread {
			s.expireResults(k, w.ID, []protocol.RecordedStep{{Write: w.Seen, Body: w.Spent}}, now)
		}
		return nil
	case err != errRefused:
		return err
	}
	err = conclude(old, err, "")
	if _, refused := errors.AsType[*protocol.ConflictError](err); refused && step.Body.Parts > 0 {
		// Nothing will ever name them: a refused step stays refused.
		s.expireResults(k, w.ID, []protocol.RecordedStep{step}, now)
	}
	return err
}

// formForStep is the form of a step's write for the record as it turned out to be, if it
// can be written there.
func formForStep(w protocol.StepWrite, old item) (form, bool) {
	of := form{state: protocol.State(text(old, schema.State)), steps: withoutSteps}
	if hasSteps(old) {
		of.steps = withSteps
	}
	if text(old, schema.Owner) != w.Owner || landedStep(old, w) || of.steps == withoutSteps && (w.Read || w.Unread) {
		return of, false
	}
	return of, of.state == protocol.InProgress || of.state == protocol.Unknown && !w.Begin
}

// stepForm makes the form that adds to a record's steps, or the one for its
// first: an expression can set a member only of a map that is there.
func (s *Store) stepForm(w protocol.StepWrite, entry protocol.RecordedStep, now time.Time, of form) (*update, string) {
	set, first := stepSet, of.steps == withoutSteps
	switch {
	case w.Read:
		set = stepRead
	case w.Unread:
		set = stepUnread
	case first:
		set = stepFirst
	}
	u := newUpdate(set, 4, 2)
	if w.Begin && w.Ref != "" {
		u.add(stepRef)
		u.str(":ref", w.Ref)
	}
	if (w.Begin || w.Unread) && !w.Due.IsZero() {
		u.watches(w.ID, watchKeptSet, w.Due)
	}
	u.expires(time.Time{})
	u.str(":own", w.Owner)
	u.str(":is", string(of.state))
	u.str(":id", w.Write)
	u.num(":now", millis(now))
	cond := ifHeld + of.steps.condition()
	if w.Read || w.Unread {
		u.names = map[string]string{"#step": w.Name}
		u.str(":seen", w.Seen)
		u.yes(":true")
		if w.Unread {
			u.drop(stepOutcome)
		} else {
			u.drop(stepFromResolution)
		}
		return u, cond + ifStepFromResolution
	}
	step := encodeStep(entry)
	if first {
		u.item[":steps"] = &types.AttributeValueMemberM{Value: item{w.Name: step}}
		return u, cond
	}
	u.names = map[string]string{"#step": w.Name}
	u.item[":step"] = step
	switch {
	case w.Seen == "" && (w.Begin || w.NotExecuted):
		return u, cond + ifStepAbsent
	case w.Begin:
		cond += ifStepAgain
		u.str(":seen", w.Seen)
	case w.NotExecuted:
		cond += ifStepBegun
		u.str(":seen", w.Seen)
	default:
		cond += ifStepOpen
	}
	u.yes(":true")
	return u, cond
}

// landedStep looks at the step's own entry: the record may have moved on since. A begin
// mark that landed lets its function run only while the attempt does. What a resolution has
// recorded is read under the owner's claim alone: an entry that is so already is this attempt's.
func landedStep(old item, w protocol.StepWrite) bool {
	if w.Begin && (text(old, schema.Owner) != w.Owner || text(old, schema.State) != string(protocol.InProgress)) {
		return false
	}
	if w.Read || w.Unread {
		entry, state := entryOf(old, w.Name), protocol.State(text(old, schema.State))
		return text(old, schema.Owner) == w.Owner && (state == protocol.InProgress || state == protocol.Unknown) &&
			w.Seen != "" && text(entry, schema.Write) == w.Seen &&
			(w.Read && !has(entry, schema.StepFromResolution) || w.Unread && has(entry, schema.StepBegun))
	}
	return madeStep(old, w.Name, w.Write)
}

// landedSettlement looks at the entries of the steps that it records too: the record may
// have been claimed since, more than once.
func landedSettlement(old item, w protocol.Settlement) bool {
	return bears(old, w.Write) || slices.ContainsFunc(w.Steps, func(step protocol.StepWrite) bool {
		return madeStep(old, step.Name, w.Write)
	})
}

// madeStep reports whether the write with this id made the step's entry.
func madeStep(rec item, name, write string) bool {
	return write != "" && text(entryOf(rec, name), schema.Write) == write
}

// entryOf is the step's entry, nil if there is none.
func entryOf(rec item, name string) item {
	if steps, ok := rec[schema.Steps].(*types.AttributeValueMemberM); ok {
		if step, ok := steps.Value[name].(*types.AttributeValueMemberM); ok {
			return step.Value
		}
	}
	return nil
}

// expireSteps lets the large results of the steps that went with an outcome expire
// with it.
func (s *Store) expireSteps(k *call, id string, e protocol.Ending, changed item) {
	if e.ExpiresAt.IsZero() || e.State != protocol.Completed && e.State != protocol.Failed {
		return
	}
	d := &decoder{item: changed, id: id}
	if steps := d.steps(); d.err == nil {
		s.expireResults(k, id, slices.Collect(maps.Values(steps)), e.ExpiresAt)
	}
}

// expireResults gives the parts of large results an expiry, a day after the given one. It is a matter
// of cost alone: what it cannot reach stays.
func (s *Store) expireResults(k *call, id string, steps []protocol.RecordedStep, expires time.Time) {
	at := strconv.FormatInt(expiry(expires.Add(partsOutlive)), 10)
	g, ctx := errgroup.WithContext(k.ctx)
	g.SetLimit(partsAtOnce)
	for _, step := range steps {
		for n := range step.Body.Parts {
			g.Go(func() error {
				_, err := s.client.UpdateItem(ctx, &dynamodb.UpdateItemInput{
					TableName: s.table, Key: key(partKeyPrefix(id, step.Write, step.Body.Digest) + strconv.Itoa(n)),
					UpdateExpression: aws.String(partExpires), ConditionExpression: aws.String(partIsThere),
					ExpressionAttributeValues: item{":exp": &types.AttributeValueMemberN{Value: at}},
				}, s.optFns...)
				return err
			})
		}
	}
	_ = g.Wait()
}

// clearing is the removal of the begin marks that a record has, and what replaces others.
type clearing struct {
	after    ifReleased
	remove   []string // nil to remove all
	record   map[string]protocol.RecordedStep
	replaced []protocol.RecordedStep // what an earlier resolution has recorded
}

// clearing reads the record, since an expression can remove a member only of a
// map that is there. The settlement's condition then holds the record to what
// was read.
func (s *Store) clearing(k *call, w protocol.Settlement) (*clearing, error) {
	it, err := s.get(k, key(w.ID))
	if err != nil {
		return nil, err
	}
	if it == nil || writeOf(it) != w.Seen {
		// The write will be refused, or has landed: its condition finds out.
		return &clearing{after: withoutSteps, remove: []string{}}, nil
	}
	rec, err := decode(it)
	if err != nil {
		return nil, err
	}
	left := maps.Clone(rec.Steps)
	remove := []string{}
	var replaced []protocol.RecordedStep
	for _, name := range w.ClearSteps {
		if step, ok := left[name]; ok {
			delete(left, name)
			remove, replaced = append(remove, name), append(replaced, step)
		}
	}
	record := map[string]protocol.RecordedStep{}
	for _, step := range w.Steps {
		if !w.MayResolveStep(rec, step.Name) {
			continue
		}
		replaced = append(replaced, left[step.Name])
		if len(step.Result) > s.maxResult {
			return nil, &protocol.TooLargeError{Size: len(step.Result), Limit: s.maxResult}
		}
		entry := protocol.RecordedStep{Failure: step.Failure, Omitted: step.Omitted, Compensates: step.Compensates,
			Write: w.Write, BegunAt: left[step.Name].BegunAt}
		entry.FromResolution = step.MustBeRead()
		if step.Failure == nil {
			// Whether the record is full already is for its attempts to know.
			if entry.Body, err = s.pack(k, target{w.ID, step.Name}, step.Result, stepInlineFullUpTo, nil); err != nil {
				return nil, &protocol.StoreError{Op: k.op, Err: err}
			}
		}
		record[step.Name] = entry
	}
	switch {
	case len(left) > 0:
		return &clearing{withSteps, remove, record, replaced}, nil
	case len(rec.Steps) > 0:
		return &clearing{after: withoutSteps, replaced: replaced}, nil
	}
	return &clearing{after: withoutSteps, remove: remove}, nil
}

// putParts stores the large results of the steps, before anything is written to the record.
func (c *clearing) putParts(s *Store, k *call, w protocol.Settlement) error {
	for _, step := range c.record {
		if step.Body.Parts == 0 {
			continue
		}
		// Without an expiry: the table never forgets an open question.
		if err := s.putParts(k, w.ID, w.Write, step.Body, time.Time{}, nil); err != nil {
			return err
		}
	}
	return nil
}

func (c *clearing) apply(u *update) {
	if c.remove == nil {
		u.drop(schema.Steps)
		return
	}
	if len(c.remove)+len(c.record) == 0 {
		return
	}
	u.names = make(map[string]string, len(c.remove)+len(c.record))
	for i, name := range slices.Sorted(maps.Keys(c.record)) {
		n := strconv.Itoa(i)
		u.names["#done"+n] = name
		u.add("," + schema.Steps + ".#done" + n + "=:done" + n)
		u.item[":done"+n] = encodeStep(c.record[name])
	}
	for i, name := range c.remove {
		alias := "#step" + strconv.Itoa(i)
		u.names[alias] = name
		u.drop(schema.Steps + "." + alias)
	}
}
