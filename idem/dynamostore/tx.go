package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/internal/publish"
	"github.com/idem-go/idempotency/idem/outbox"
)

// MaxActions is how many actions and messages a [Tx] takes: DynamoDB's hundred of a
// transaction, less one for the record.
const MaxActions = 99

// Tx is the unit of work of an attempt: business writes and messages that commit
// in one TransactWriteItems together with the operation's outcome, or not at all.
// [Transact] passes it to a handler as an argument, [TxOf] finds it in a handler's
// context. It collects and sends nothing: the store owns the transaction, sends it when
// the handler has returned a result, and drops it when the handler returns an error,
// answers with a refusal such as HTTP 402, or calls [idem.Abort]. The items may lie in any
// tables of the same account and region.
//
//	tx := dynamostore.TxOf(ctx)
//	tx.Update(types.Update{
//		TableName: &accounts, Key: key(in.From),
//		UpdateExpression:    aws.String("SET balance = balance - :n"),
//		ConditionExpression: aws.String("balance >= :n"),
//		ExpressionAttributeValues: amount(in.N),
//	}, dynamostore.OnConditionFailed(idem.Permanent(ErrInsufficientFunds)))
//
// A mistake fails the commit: the attempt ends with the [*ActionError] as if the handler had
// returned it. [Tx.Err] returns it at once. Two actions may not be on the same item, and none
// may be on the operation's own record. The limits of DynamoDB, [MaxActions] among them, are
// checked before it is called. Messages and the maps of actions are copied; the attribute
// values in them must not change until the operation has ended. A Tx is safe for concurrent
// use.
//
// # Conditions
//
// An action with a ConditionExpression needs a [ConditionError], and an action without one
// must have nil; anything else is a mistake. If the condition does not hold, nothing is
// written, and the attempt ends with the error that the ConditionError makes of the existing
// item, as if the handler had returned it. Like every handler's error it is recorded if
// it is marked [idem.Permanent], and releases the key if it is marked
// [idem.NotExecuted]. Without a mark the operation's declaration decides: an operation
// that is not repeatable is parked. Nothing of the transaction took effect, but only the
// handler knows what else it has done.
type Tx struct {
	mu       sync.Mutex
	sealed   bool
	err      error // the first mistake
	tooLate  error // the first use after the handler has returned
	actions  []action
	messages publish.List
}

var _ idem.Unit = (*Tx)(nil)

// ConditionError makes the handler's error of a condition that did not hold. It gets the
// item as it was, empty if there was none. If it returns nil the error is an
// [*ActionError].
type ConditionError = func(old map[string]types.AttributeValue) error

// OnConditionFailed is the [ConditionError] that returns err, whatever the item was like. Mark err as
// [idem.Permanent] if it is the operation's outcome, or as [idem.NotExecuted] if the
// handler has done nothing else.
func OnConditionFailed(err error) ConditionError {
	if err == nil {
		return nil
	}
	return func(map[string]types.AttributeValue) error { return err }
}

// TxOf returns the unit of work of the handler's attempt: the same one for every call.
// If the context is not a handler's, or is that of an [idem.Step], TxOf panics: what is
// collected there would be lost. On a store without transactions TxOf panics too, see
// [Options.WithoutTransactions], and so it does in shadow.
//
// It commits with a [Store] of this package. With a store of memstore, for tests, it
// commits too, and what was collected is kept but applied to nothing: see
// [Tx.CommitInMemory]. With any other store the commit is refused with
// errors.ErrUnsupported.
func TxOf(ctx context.Context) *Tx {
	tx, err := txOf(ctx)
	if err != nil {
		panic("dynamostore.TxOf: " + err.Error())
	}
	return tx
}

func txOf(ctx context.Context) (*Tx, error) {
	u, err := idem.UnitOf(ctx, func() idem.Unit { return new(Tx) })
	if err != nil {
		return nil, err
	}
	tx, ok := u.(*Tx)
	if !ok {
		return nil, fmt.Errorf("the attempt already collects for another store, in a %T", u)
	}
	return tx, nil
}

// Transact turns a function that takes its unit of work as an argument into a handler
// for [idem.Do] and for every wrapper of such a handler. On a store without transactions, and
// in shadow, the function does not run, and the error says so: nothing was executed.
func Transact[In, Out any](fn func(context.Context, *Tx, In) (Out, error)) func(context.Context, In) (Out, error) {
	if fn == nil {
		return nil
	}
	return func(ctx context.Context, in In) (out Out, err error) {
		tx, err := txOf(ctx)
		switch {
		case errors.Is(err, errors.ErrUnsupported):
			return out, idem.NotExecuted(err)
		case err != nil:
			panic("dynamostore.Transact: " + err.Error())
		}
		return fn(ctx, tx, in)
	}
}

// Err returns the first mistake so far, or nil. It is an [*ActionError], which fails the
// commit too, or the error of an action that came after the handler had returned.
func (t *Tx) Err() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.err != nil {
		return t.err
	}
	return t.tooLate
}

// Put adds an item, or replaces it. TableName and Item are required.
// ReturnValuesOnConditionCheckFailure is set by the store, here and below.
func (t *Tx) Put(a types.Put, failed ConditionError) {
	t.add("Put", types.TransactWriteItem{Put: &a}, fields{a.TableName, &a.Item, a.ConditionExpression,
		&a.ExpressionAttributeNames, &a.ExpressionAttributeValues, &a.ReturnValuesOnConditionCheckFailure}, failed)
}

// Update changes an item, or adds it. TableName, Key and UpdateExpression are
// required.
func (t *Tx) Update(a types.Update, failed ConditionError) {
	t.add("Update", types.TransactWriteItem{Update: &a}, fields{a.TableName, &a.Key, a.ConditionExpression,
		&a.ExpressionAttributeNames, &a.ExpressionAttributeValues, &a.ReturnValuesOnConditionCheckFailure}, failed)
}

// Delete removes an item. TableName and Key are required.
func (t *Tx) Delete(a types.Delete, failed ConditionError) {
	t.add("Delete", types.TransactWriteItem{Delete: &a}, fields{a.TableName, &a.Key, a.ConditionExpression,
		&a.ExpressionAttributeNames, &a.ExpressionAttributeValues, &a.ReturnValuesOnConditionCheckFailure}, failed)
}

// Check lets the transaction pass only if a condition on an item holds that it does
// not change. TableName, Key and ConditionExpression are required.
func (t *Tx) Check(a types.ConditionCheck, failed ConditionError) {
	t.add("Check", types.TransactWriteItem{ConditionCheck: &a}, fields{a.TableName, &a.Key, a.ConditionExpression,
		&a.ExpressionAttributeNames, &a.ExpressionAttributeValues, &a.ReturnValuesOnConditionCheckFailure}, failed)
}

// Publish adds a message to the outbox: an item in the store's own table, which the
// relay sends once the transaction has committed. The name tells the operation's
// messages apart: it must be the same in every attempt and different for each message;
// at most 100 bytes. The message's id is made from it ([outbox.MessageID]). An id belongs
// to this life of the key: what is published under the same key and name once the record
// has expired is another message, and replaces none. Messages with one destination and
// ordering key are sent in the order of the calls.
//
// A message is one item, which takes 400 KB with its key, and counts for the 4 MB of
// the transaction; what its destination takes is [outbox.Message.Limit].
func (t *Tx) Publish(name string, m outbox.Message) {
	t.mu.Lock()
	defer t.mu.Unlock()
	messages := t.messages
	err := messages.Add(name, m)
	if err == nil {
		err = fits(m)
	}
	if t.takes("Publish", err) {
		t.messages = messages
	}
}

// Seal ends the collecting; see [idem.Unit]. The engine calls it.
func (t *Tx) Seal() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.sealed = true
	return len(t.actions)+len(t.messages) > 0 || t.err != nil
}

// actionOverhead is what an action counts for besides its bytes: four milliseconds.
const actionOverhead = 4 << 10

// Size is about how many bytes there are to send; see [idem.Unit].
func (t *Tx) Size() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.size()
}

func (t *Tx) size() int {
	n := 0
	for _, a := range t.actions {
		n += actionOverhead + a.size()
	}
	for _, m := range t.messages {
		n += actionOverhead + len(m.Body)
	}
	return n
}

const allOld = types.ReturnValuesOnConditionCheckFailureAllOld

// action is one write with what it is for.
type action struct {
	kind  string
	table *string
	// item is a Put's whole item, the others' key.
	item      item
	write     types.TransactWriteItem
	condition string // empty if it has none
	failed    ConditionError
}

// fields are what the SDK's four actions have in common.
type fields struct {
	table     *string
	item      *map[string]types.AttributeValue
	condition *string
	names     *map[string]string
	values    *map[string]types.AttributeValue
	old       *types.ReturnValuesOnConditionCheckFailure
}

// add collects an action, whose fields are those of the write.
func (t *Tx) add(kind string, write types.TransactWriteItem, f fields, failed ConditionError) {
	*f.item, *f.names, *f.values, *f.old = maps.Clone(*f.item), maps.Clone(*f.names), maps.Clone(*f.values), allOld
	a := action{kind, f.table, *f.item, write, aws.ToString(f.condition), failed}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.takes(kind, a.mistake()) {
		t.actions = append(t.actions, a)
	}
}

// mistake is what is wrong with the action, without regard to the others.
func (a *action) mistake() error {
	switch {
	case aws.ToString(a.table) == "":
		return errors.New("its TableName is missing: name the table")
	case len(a.item) == 0 && a.kind == "Put":
		return errors.New("its Item is empty")
	case len(a.item) == 0:
		return errors.New("its Key is empty")
	case a.kind == "Update" && aws.ToString(a.write.Update.UpdateExpression) == "":
		return errors.New("its UpdateExpression is missing: say what to change, or use Check")
	case a.kind == "Check" && a.condition == "":
		return errors.New("its ConditionExpression is missing: say what must hold")
	case a.condition != "" && a.failed == nil:
		return errors.New("it has a ConditionExpression and no error for when that does not hold: pass " +
			"dynamostore.OnConditionFailed(idem.Permanent(err)) if err is the operation's outcome, " +
			"dynamostore.OnConditionFailed(idem.NotExecuted(err)) " +
			"if the handler has done nothing else, or a function of the item as it was")
	case a.condition == "" && a.failed != nil:
		return errors.New("it has an error for a condition that does not hold, and no ConditionExpression: set " +
			"that, or pass nil")
	}
	return nil
}

// takes reports whether another action can be collected. If err is not nil, the action is
// wrong. It keeps the first mistake. That the unit of work is full is one too.
func (t *Tx) takes(kind string, err error) bool {
	n := len(t.actions) + len(t.messages)
	switch {
	case t.sealed:
		if t.tooLate == nil {
			t.tooLate = fmt.Errorf("dynamostore: Tx.%s: the handler has returned: what comes now commits nowhere", kind)
		}
		return false
	case err == nil && n == MaxActions:
		err = fmt.Errorf("it would be number %d, and a transaction takes %d actions and messages next to the record: "+
			"split the work", n+1, MaxActions)
	case err == nil:
		return true
	}
	if t.err == nil {
		t.err = &ActionError{Action: kind, Index: n, Err: err}
	}
	return false
}
