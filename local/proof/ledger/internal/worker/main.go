// Command worker is the function that the tests of package ledger run. It moves an
// amount from one account to another: both balances and journals, the entry in the
// ledger, the message and the outcome commit together.
//
// No condition hides an effect that comes twice: an entry is put under a number
// that every attempt makes again, and each journal is appended to.
//
// Environment: IDEM_TABLE, IDEM_DYNAMODB_ENDPOINT; LEDGER_ACCOUNTS and
// LEDGER_ENTRIES name the business's tables, LEDGER_MODE is reserved or atomic.
// LEDGER_PATIENCE is how long a call to DynamoDB may take, instead of the defaults.
package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/idem-go/idempotency/idem/notice"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambda/messages"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
)

func main() {
	var patience time.Duration
	if v := os.Getenv("LEDGER_PATIENCE"); v != "" {
		var err error
		if patience, err = time.ParseDuration(v); err != nil {
			log.Fatal(err)
		}
	}
	logged := idem.LogTo(nil)
	observer := func(ctx context.Context, n notice.Notice) {
		logged(ctx, n)
		if own, ok := ctx.Value(trackKey{}).(*track); ok && n.Kind == notice.OutcomeQueued {
			own.queued = true
		}
	}
	engine, _, err := caller.Engine(&dynamostore.Options{AttemptTimeout: patience}, &idem.Options{
		Margin: 250 * time.Millisecond, ClaimBudget: patience, FinishBudget: patience, Observer: observer,
	})
	if err != nil {
		log.Fatal(err)
	}
	b := &books{os.Getenv("LEDGER_ACCOUNTS"), os.Getenv("LEDGER_ENTRIES")}
	op := idem.Operation{Name: "transfer", Repeat: idem.Repeatable}
	if os.Getenv("LEDGER_MODE") == "atomic" {
		op.Mode = idem.Atomic
	}
	handler := idemlambda.Wrap(engine, op, idemlambda.Pointer(idem.SingleTenant, "/id"), dynamostore.Transact(b.move))
	lambda.Start(idemlambda.Handler(func(ctx context.Context, event []byte) ([]byte, error) {
		var own track
		body, err := handler(context.WithValue(ctx, trackKey{}, &own), event)
		return body, own.explain(err)
	}))
}

// track is what this invocation's own attempt did.
type track struct {
	entry  string // empty if it did not run
	queued bool
}

type trackKey struct{}

// explain names the entry of an attempt that ran and whose caller is told that it
// did not commit, so that the tests can hold it to that.
func (t *track) explain(err error) error {
	var commit *idem.CommitError
	switch {
	case err == nil || t.entry == "":
		return err
	case isOverdraft(err) && t.queued:
		// The caller of a failure that is not recorded yet must not build on it.
		return messages.InvokeResponse_Error{Type: "Unrecorded", Message: err.Error()}
	case isOverdraft(err), errors.As(err, &commit) && commit.Ambiguous:
		return err
	}
	return messages.InvokeResponse_Error{Type: "Denied", Message: t.entry + " " + err.Error()}
}

func isOverdraft(err error) bool {
	if recorded, ok := errors.AsType[messages.InvokeResponse_Error](err); ok {
		return recorded.Type == "Overdraft"
	}
	_, own := errors.AsType[*Overdraft](err)
	return own
}

type transfer struct {
	ID     string `json:"id"`
	From   string `json:"from"`
	To     string `json:"to"`
	Amount int    `json:"amount"`
}

// receipt is the answer and the message. Its entry is of the attempt that committed.
type receipt struct {
	Transfer string `json:"transfer"`
	Entry    string `json:"entry"`
	Amount   int    `json:"amount"`
}

// Overdraft is the business's refusal. Its text differs from attempt to attempt.
type Overdraft struct{ entry, balance string }

func (o *Overdraft) Error() string { return "entry " + o.entry + ": the balance is " + o.balance }

type books struct{ accounts, entries string }

func (b *books) move(ctx context.Context, tx *dynamostore.Tx, t transfer) (receipt, error) {
	r := receipt{t.ID, rand.Text(), t.Amount}
	if own, ok := ctx.Value(trackKey{}).(*track); ok {
		own.entry = r.Entry
	}
	body, err := json.Marshal(r)
	if err != nil {
		return r, err
	}
	n := strconv.Itoa(t.Amount)
	tx.Check(types.ConditionCheck{
		TableName: &b.accounts, Key: account("open"), ConditionExpression: aws.String("attribute_exists(id)"),
	}, dynamostore.OnConditionFailed(idem.NotExecuted(errors.New("the books are closed"))))
	tx.Update(b.booking(t, t.From, "-"+n, aws.String("balance >= :least")),
		func(old map[string]types.AttributeValue) error {
			balance, ok := old["balance"].(*types.AttributeValueMemberN)
			if !ok {
				return fmt.Errorf("account %s has no balance", t.From)
			}
			return idem.Permanent(&Overdraft{r.Entry, balance.Value})
		})
	tx.Update(b.booking(t, t.To, n, nil), nil)
	tx.Put(types.Put{TableName: &b.entries, Item: map[string]types.AttributeValue{
		"transfer": text(t.ID), "entry": text(r.Entry), "amount": &types.AttributeValueMemberN{Value: n},
	}}, nil)
	tx.Publish("made", outbox.Message{Destination: "made", Type: "transfer.made",
		ContentType: "application/json", Body: body})
	return r, nil
}

// booking changes one account's balance and journal.
func (b *books) booking(t transfer, id, amount string, condition *string) types.Update {
	u := types.Update{
		TableName: &b.accounts, Key: account(id), ConditionExpression: condition,
		UpdateExpression: aws.String("SET balance = balance + :amount, journal = list_append(journal, :transfer)"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":amount":   &types.AttributeValueMemberN{Value: amount},
			":transfer": &types.AttributeValueMemberL{Value: []types.AttributeValue{text(t.ID)}},
		},
	}
	if condition != nil {
		u.ExpressionAttributeValues[":least"] = &types.AttributeValueMemberN{Value: strconv.Itoa(t.Amount)}
	}
	return u
}

func account(id string) map[string]types.AttributeValue {
	return map[string]types.AttributeValue{"id": text(id)}
}

func text(s string) types.AttributeValue { return &types.AttributeValueMemberS{Value: s} }
