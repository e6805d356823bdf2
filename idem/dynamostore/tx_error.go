package dynamostore

import (
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

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
