package dynamostore

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

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
		return a.about(index, fmt.Errorf("memory evaluates no condition such as %q: say by memstore's Store.Conditions whether it holds, "+
			"or test with DynamoDB Local: %w", a.condition, errors.ErrUnsupported))
	}
	holds, old := conditions(a.write)
	it, ok := old.(item)
	switch {
	case holds:
		return nil
	case old != nil && !ok:
		return a.about(index, fmt.Errorf("what Store.Conditions gave as the old item is a %T: give a map[string]types.AttributeValue, or nil for none", old))
	}
	return a.refusal(index, types.CancellationReason{Code: aws.String(codeCondition), Item: it})
}
