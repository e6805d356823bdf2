package dynamostore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Why an action cancelled its transaction, as DynamoDB says it.
const (
	codeNone      = "None"
	codeCondition = "ConditionalCheckFailed"
)

// contended are the reasons that pass by: another transaction holds the item, or
// the table is throttled.
var contended = []string{
	"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError", "RequestLimitExceeded",
}

// txWrite is a unit of work on its way: its actions, messages among them, under the
// limits.
type txWrite struct {
	s       *Store
	id      string
	actions []action
	size    int
}

// companion implements [unit].
func (t *Tx) companion(s *Store, f protocol.Finish, now time.Time) (companion, error) {
	if t == nil {
		return nil, nil
	}
	t.Seal()
	t.mu.Lock()
	defer t.mu.Unlock()
	id, created := f.ID, f.Created
	if t.err != nil {
		return nil, &protocol.RefusedError{Err: t.err}
	}
	u := &txWrite{s: s, id: id, actions: slices.Clone(t.actions), size: t.size()}
	for _, e := range t.messages.Entries(id, created, now) {
		it := outboxItem(e)
		u.actions = append(u.actions, action{kind: "Publish", table: s.table, item: it, write: types.TransactWriteItem{
			Put: &types.Put{TableName: s.table, Item: it, ReturnValuesOnConditionCheckFailure: allOld},
		}})
	}
	if err := s.checkActions(id, u.actions, min(len(f.Ending.Result), inlineUpTo)+s.Traits().StepExtra); err != nil {
		return nil, &protocol.RefusedError{Err: err}
	}
	if len(u.actions) == 0 {
		return nil, nil
	}
	return u, nil
}

// update sends the record's UpdateItem together with the unit.
func (u *txWrite) update(k *call, key item, write string, up *update, cond string) (item, error) {
	expr := up.expression()
	return u.send(k, write, types.TransactWriteItem{Update: &types.Update{
		TableName: u.s.table, Key: key, UpdateExpression: &expr, ConditionExpression: &cond,
		ExpressionAttributeNames: up.names, ExpressionAttributeValues: up.item,
		ReturnValuesOnConditionCheckFailure: allOld,
	}})
}

// send makes the transaction of the record's write and the unit's. Like
// [Store.send] it returns nil, or errRefused and the conflicting record,
// or a *protocol.StoreError; besides a *protocol.RefusedError if it was the unit's fault.
func (u *txWrite) send(k *call, write string, record types.TransactWriteItem) (item, error) {
	items := []types.TransactWriteItem{record}
	for _, a := range u.actions {
		items = append(items, a.write)
	}
	in := &dynamodb.TransactWriteItemsInput{TransactItems: items}
	same := &sameBody{token: tokenFor(*u.s.table, u.id, write, record)}
	in.ClientRequestToken = &same.token
	optFns := append(slices.Clone(u.s.optFns), same.keep)
	var why []types.CancellationReason
	err := k.doSized(true, k.attempt, u.size, func(ctx context.Context) error {
		_, err := u.s.client.TransactWriteItems(ctx, in, optFns...)
		why = nil
		var failed *types.TransactionCanceledException
		if errors.As(err, &failed) {
			why = failed.CancellationReasons
			_, again := decisive(why)
			return &cancelled{again, err}
		}
		return err
	})
	if err == nil {
		return nil, nil
	}
	n, again := decisive(why)
	switch {
	case why == nil:
		return nil, u.whole(k, err)
	case again:
		return nil, err
	case n == 0 && aws.ToString(why[0].Code) == codeCondition:
		if len(why[0].Item) > 0 {
			return why[0].Item, errRefused
		}
		old, err := u.s.get(k, key(u.id))
		if err != nil {
			return nil, err
		}
		return old, errRefused
	case n == 0:
		return nil, &recordError{aws.ToString(why[0].Message), err}
	case n > len(u.actions):
		return nil, err
	}
	return nil, &protocol.RefusedError{Err: u.actions[n-1].refusal(n-1, why[n]), Ambiguous: k.maybe}
}

// whole explains an error that names no action.
func (u *txWrite) whole(k *call, err error) error {
	var api smithy.APIError
	if !errors.As(err, &api) {
		return err
	}
	switch api.ErrorCode() {
	case "ValidationException":
		return &protocol.RefusedError{Err: &ActionError{Code: api.ErrorCode(), Err: errors.New(api.ErrorMessage())},
			Ambiguous: k.maybe}
	case "ResourceNotFoundException", "AccessDeniedException":
		tables := []string{*u.s.table}
		for _, a := range u.actions {
			if t := aws.ToString(a.table); !slices.Contains(tables, t) {
				tables = append(tables, t)
			}
		}
		return k.fail(fmt.Errorf("a transaction on the tables %s: one is missing or may not be used. They must "+
			"exist in one region "+
			"and account, and the function needs PutItem, UpdateItem, DeleteItem and ConditionCheckItem as it uses them: %w",
			strings.Join(tables, ", "), api))
	}
	return err
}

// decisive finds the reason that counts: the record's own first, since a claim that
// is lost explains all others; then what is definite; then what passes by.
func decisive(why []types.CancellationReason) (n int, again bool) {
	passing := -1
	definite := -1
	for i, r := range why {
		code := aws.ToString(r.Code)
		switch {
		case code == codeNone || code == "":
			continue
		case i == 0:
			return 0, slices.Contains(contended, code)
		case code == codeCondition:
			return i, false
		case slices.Contains(contended, code):
			if passing < 0 {
				passing = i
			}
		case definite < 0:
			definite = i
		}
	}
	if definite >= 0 {
		return definite, false
	}
	// Without any reason too: the same once more finds out.
	return max(passing, 0), true
}

// cancelled is a transaction that was not applied.
type cancelled struct {
	again bool
	error
}

func (e *cancelled) Unwrap() error { return e.error }

// recordError is a refusal of the record's own write for another reason than its
// condition.
type recordError struct {
	message string
	error
}

func (e *recordError) Unwrap() error { return e.error }

// tooLarge recognises a record that outgrows an item. If an earlier try may have landed,
// the answer decides nothing.
func tooLarge(err error, k *call) bool {
	var own *recordError
	large := errors.As(err, &own) && strings.Contains(strings.ToLower(own.message), "item size")
	return (large || isItemTooLarge(err)) && !k.maybe
}

// tokenFor is the token under which DynamoDB knows the transaction for ten minutes:
// the same for the same write of the same form, and no other: tokens are the
// account's.
func tokenFor(table, id, write string, record types.TransactWriteItem) string {
	h := sha256.New()
	_, _ = fmt.Fprintf(h, "%s\x00%s\x00%s", table, id, write)
	form := func(cond *string, vals item) {
		_, _ = fmt.Fprintf(h, "\x00%s\x00%s", *cond, itemText(vals, nil))
	}
	switch p, d, u := record.Put, record.Delete, record.Update; {
	case p != nil:
		form(p.ConditionExpression, p.ExpressionAttributeValues)
		_, _ = io.WriteString(h, "\x00"+itemText(p.Item, nil))
	case d != nil:
		form(d.ConditionExpression, d.ExpressionAttributeValues)
	default:
		form(u.ConditionExpression, u.ExpressionAttributeValues)
		_, _ = io.WriteString(h, "\x00"+*u.UpdateExpression)
	}
	return base64.RawURLEncoding.EncodeToString(h.Sum(nil)[:24])
}

// sameBody makes every try of one request send the same bytes. The SDK writes the
// members of a map in any order, and a token is only good for an identical request.
type sameBody struct {
	token string
	body  []byte
}

func (b *sameBody) keep(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		return stack.Serialize.Add(middleware.SerializeMiddlewareFunc("IdemSameBody", b.serialize), middleware.After)
	})
}

func (b *sameBody) serialize(ctx context.Context, in middleware.SerializeInput,
	next middleware.SerializeHandler) (middleware.SerializeOutput, middleware.Metadata, error) {
	req, ok := in.Request.(*smithyhttp.Request)
	if !ok || req.GetStream() == nil {
		return next.HandleSerialize(ctx, in)
	}
	var err error
	if b.body == nil {
		b.body, err = io.ReadAll(req.GetStream())
	}
	if err == nil {
		in.Request, err = req.SetStream(bytes.NewReader(b.body))
	}
	if err != nil {
		return middleware.SerializeOutput{}, middleware.Metadata{}, err
	}
	return next.HandleSerialize(ctx, in)
}
