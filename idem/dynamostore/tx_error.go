package dynamostore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// ErrCondition is matched by the [ActionError] of an action whose condition did not
// hold.
var ErrCondition = errors.New("dynamostore: the condition did not hold")

// ActionError says which action of a unit of work was refused, and why. Nothing was
// written, by it or by any other action.
type ActionError struct {
	// Action is "Put", "Update", "Delete", "Check" or "Publish"; empty if DynamoDB
	// does not say which it was.
	Action string
	// Index is its place among all that was added, from 0.
	Index int
	// Table and Key of its item, as far as they are known; of a Put the Key may be
	// the whole item.
	Table string
	Key   map[string]types.AttributeValue
	// Code is DynamoDB's, such as "ConditionalCheckFailed" or "ValidationError";
	// empty if the store refused it without asking DynamoDB.
	Code string
	// Old is the item as it was when its condition failed, empty if there was none.
	Old map[string]types.AttributeValue
	// Err says more.
	Err error
}

func (e *ActionError) Error() string {
	var b strings.Builder
	b.WriteString("dynamostore: unit of work")
	if e.Action != "" {
		fmt.Fprintf(&b, ": %s (action %d)", e.Action, e.Index)
	}
	if e.Table != "" {
		fmt.Fprintf(&b, " on %s in table %q", keyNames(e.Key), e.Table)
	}
	if e.Code != "" {
		b.WriteString(": " + e.Code)
	}
	if e.Err != nil {
		b.WriteString(": " + e.Err.Error())
	}
	return b.String()
}

// ErrorCode is what a recorded failure keeps as its code.
func (e *ActionError) ErrorCode() string { return e.Code }

func (e *ActionError) Unwrap() error { return e.Err }

// Is makes the error match [ErrCondition] if the action's condition failed.
func (e *ActionError) Is(target error) bool {
	return target == ErrCondition && e.Code == codeCondition
}

// keyNames names an item without its values, which may be personal data and end up
// in records and logs.
func keyNames(key item) string {
	names := sortedNames(key)
	if len(names) > 4 {
		names = append(names[:4], "…")
	}
	return "the item of (" + strings.Join(names, ", ") + ")"
}

// about makes the error of one action.
func (a action) about(index int, err error) *ActionError {
	return &ActionError{Action: a.kind, Index: index, Table: aws.ToString(a.table), Key: a.item, Err: err}
}

// refusal makes the handler's error of an action that DynamoDB refused.
func (a action) refusal(index int, r types.CancellationReason) (err error) {
	given := a.about(index, nil)
	given.Code, given.Old = aws.ToString(r.Code), r.Item
	if m := aws.ToString(r.Message); m != "" && given.Code != codeCondition {
		given.Err = errors.New(m)
	}
	if given.Code != codeCondition || a.failed == nil {
		return given
	}
	old := r.Item
	if old == nil {
		old = item{}
	}
	defer func() {
		if p := recover(); p != nil {
			given.Err = protocol.RedactPanic("and the function that makes an error of it", p)
			err = given
		}
	}()
	if err = a.failed(old); err == nil {
		return given
	}
	return err
}

// Actions returns what was collected so far, without the messages, in the order of the
// calls. It is for tests of handlers, over package idemtest: change nothing in it.
func (t *Tx) Actions() []types.TransactWriteItem {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]types.TransactWriteItem, len(t.actions))
	for i, a := range t.actions {
		all[i] = a.write
	}
	return all
}

// Messages returns copies of the messages that were published so far, in the order of
// the calls.
func (t *Tx) Messages() []outbox.Message {
	t.mu.Lock()
	defer t.mu.Unlock()
	all := make([]outbox.Message, len(t.messages))
	for i, m := range t.messages {
		all[i] = m.Message
		all[i].Attributes, all[i].Body = maps.Clone(m.Attributes), bytes.Clone(m.Body)
	}
	return all
}

// CommitInMemory is what package memstore asks of a unit of work. The first mistake,
// two actions on one item and what is too large are refused as over a table; nothing is
// applied to an item. conditions decides about an action that has a condition, gets
// its types.TransactWriteItem, and gives the item as it was as a
// map[string]types.AttributeValue, or nil for none; without it such an action is
// refused.
func (t *Tx) CommitInMemory(conditions func(action any) (holds bool, old any)) error {
	t.mu.Lock()
	err, actions := t.err, slices.Clone(t.actions)
	t.mu.Unlock()
	if err == nil {
		// The record's own place matters to no action: no table has an empty name.
		err = (&Store{table: aws.String("")}).checkActions("", actions, 0)
	}
	for i := 0; err == nil && i < len(actions); i++ {
		err = actions[i].decide(i, conditions)
	}
	if err != nil {
		return &protocol.RefusedError{Err: err}
	}
	return nil
}

// decide returns why the action is refused, if its condition does not hold.
func (a action) decide(index int, conditions func(any) (bool, any)) error {
	if a.condition == "" {
		return nil
	}
	if conditions == nil {
		return a.about(index,
			fmt.Errorf("memory evaluates no condition such as %q: say by memstore's Store.Conditions whether it holds, "+
				"or test with DynamoDB Local: %w", a.condition, errors.ErrUnsupported))
	}
	holds, old := conditions(a.write)
	it, ok := old.(item)
	switch {
	case holds:
		return nil
	case old != nil && !ok:
		return a.about(index, fmt.Errorf("what Store.Conditions gave as the old item is a %T: give a "+
			"map[string]types.AttributeValue, or nil for none", old))
	}
	return a.refusal(index, types.CancellationReason{Code: aws.String(codeCondition), Item: it})
}
