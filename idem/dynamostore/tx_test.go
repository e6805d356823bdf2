package dynamostore

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

var errPoor = errors.New("insufficient funds")

// unexplained makes no error of a condition that did not hold.
func unexplained(map[string]types.AttributeValue) error { return nil }

var (
	transfer = idem.Operation{Name: "transfer", Repeat: protocol.Repeatable}
	modes    = map[string]idem.Operation{
		"reserved": transfer,
		"atomic":   {Name: "transfer", Repeat: protocol.Repeatable, Mode: idem.Atomic},
	}
)

// bank is a table of accounts with its engine and store.
type bank struct {
	*fixture
	engine *idem.Engine
	now    time.Time
}

func openBank(t *testing.T, balances ...int) *bank {
	t.Helper()
	b := &bank{fixture: open(t, nil), now: base}
	b.engine = must(idem.New(b.Store, &idem.Options{
		Now: func() time.Time { return b.now }, ClaimBudget: patient.Budget, FinishBudget: patient.Budget,
	}))
	for n, v := range balances {
		b.set(t, n, v)
	}
	return b
}

// inBothModes runs a test with 100 on account 0 and nothing on account 1.
func inBothModes(t *testing.T, test func(t *testing.T, b *bank, op idem.Operation)) {
	t.Helper()
	for name, op := range modes {
		t.Run(name, func(t *testing.T) { test(t, openBank(t, 100, 0), op) })
	}
}

func (b *bank) set(t *testing.T, n, v int) {
	it := account(n)
	it["balance"] = num(strconv.Itoa(v))
	b.put(t, it)
}

func account(n int) item { return key("account-" + strconv.Itoa(n)) }

func (b *bank) balance(t *testing.T, n int) string {
	t.Helper()
	return b.raw(t, "account-"+strconv.Itoa(n))["balance"].(*types.AttributeValueMemberN).Value
}

func (b *bank) move(tx *Tx, from, to, n int) {
	tx.Update(types.Update{
		TableName: &b.table, Key: account(from),
		UpdateExpression:          aws.String("SET balance = balance - :n"),
		ConditionExpression:       aws.String("balance >= :n"),
		ExpressionAttributeValues: item{":n": num(strconv.Itoa(n))},
	}, func(old map[string]types.AttributeValue) error {
		if len(old) == 0 {
			return idem.NotExecuted(errors.New("no account"))
		}
		return idem.Permanent(errPoor)
	})
	tx.Update(types.Update{
		TableName: &b.table, Key: account(to),
		UpdateExpression:          aws.String("SET balance = balance + :n"),
		ConditionExpression:       aws.String("attribute_exists(pk)"),
		ExpressionAttributeValues: item{":n": num(strconv.Itoa(n))},
	}, OnConditionFailed(errors.New("no account")))
}

// transfer moves money from account 0 to account 1.
func (b *bank) transfer(ctx context.Context, op idem.Operation, n int) (idem.Result[string], error) {
	return idem.Run(ctx, b.engine, op.Key("t", "k"), n, Transact(func(_ context.Context, tx *Tx, n int) (string, error) {
		b.move(tx, 0, 1, n)
		tx.Publish("moved", outbox.Message{Destination: "transfers", Body: []byte("moved")})
		return "moved " + strconv.Itoa(n), nil
	}))
}

func (b *bank) moved(t *testing.T, want int) {
	t.Helper()
	b.movedIn(t, min(want, 1), want)
}

// movedIn says in how many lives of the key.
func (b *bank) movedIn(t *testing.T, lives, want int) {
	t.Helper()
	require.Equal(t, strconv.Itoa(100-want), b.balance(t, 0))
	require.Equal(t, strconv.Itoa(want), b.balance(t, 1))
	require.Len(t, b.messages(t, transfer.Key("t", "k").ID()), lives, "the message commits with the writes")
}

// messages are all that were published under the record's key, in whichever life.
func (b *bank) messages(t *testing.T, id string) (all []*outbox.Entry) {
	t.Helper()
	out, err := b.admin.Query(context.Background(), &dynamodb.QueryInput{
		TableName: &b.table, ConsistentRead: aws.Bool(true),
		KeyConditionExpression:    aws.String("pk = :pk AND begins_with(sk, :sk)"),
		ExpressionAttributeValues: item{":pk": str(id), ":sk": str(schema.OutboxSK)},
	})
	require.NoError(t, err)
	for _, it := range out.Items {
		all = append(all, decodeMessage(it))
	}
	return all
}

// Business writes, message and outcome commit in one transaction; a replay writes nothing.
func TestWritesCommitWithTheOutcome(t *testing.T) {
	const put, upd, get, tra = "PutItem", "UpdateItem", "GetItem", "TransactWriteItems"
	inBothModes(t, func(t *testing.T, b *bank, op idem.Operation) {
		calls := map[idem.Mode][][]string{
			idem.Reserved: {{put, tra}, {put}}, idem.Atomic: {{get, tra}, {get}},
		}[op.Mode]
		b.wire.set(nil)
		res, err := b.transfer(t.Context(), op, 30)
		require.NoError(t, err)
		require.Equal(t, "moved 30", res.Value)
		require.Equal(t, calls[0], b.wire.calls())
		b.moved(t, 30)

		again, err := b.transfer(t.Context(), op, 30)
		require.NoError(t, err)
		require.True(t, again.Outcome.Replayed)
		require.Equal(t, res.Outcome.Body, again.Outcome.Body)
		require.Equal(t, calls[1], b.wire.calls())
		b.moved(t, 30)

		_, err = b.transfer(t.Context(), op, 31)
		require.ErrorIs(t, err, idem.ErrKeyReused)

		// Once more after expiry, over the record that is still there.
		b.now = b.now.Add(48 * time.Hour)
		res, err = b.transfer(t.Context(), op, 20)
		require.NoError(t, err)
		require.False(t, res.Outcome.Replayed)
		b.movedIn(t, 2, 50)
	})
}

// A condition that does not hold is the handler's own error, by its class, and nothing is written.
func TestConditionFails(t *testing.T) {
	inBothModes(t, func(t *testing.T, b *bank, op idem.Operation) {
		res, err := b.transfer(t.Context(), op, 101)
		require.Same(t, errPoor, err, "without its mark")
		require.Equal(t, protocol.Failed, res.Outcome.RecordState)
		require.Equal(t, 1, res.Outcome.Attempt)
		b.moved(t, 0)
		b.set(t, 0, 1000)
		_, err = b.transfer(t.Context(), op, 101)
		var recorded *idem.RecordedError
		require.ErrorAs(t, err, &recorded, "the failure is the outcome")
		require.Equal(t, errPoor.Error(), recorded.Message)

		// Marked as not executed, the key is free again.
		other := op.Key("t", "other")
		move := func(from int) error {
			_, err := idem.Do(t.Context(), b.engine, other, 1, Transact(func(_ context.Context, tx *Tx, n int) (int, error) {
				b.move(tx, from, 1, n)
				return n, nil
			}))
			return err
		}
		require.EqualError(t, move(7), "no account")
		require.NoError(t, move(0))
		require.Equal(t, "999", b.balance(t, 0))
	})
}

// Where the function makes no error of it, the refusal says which action it was.
func TestConditionFailsWithoutAnError(t *testing.T) {
	inBothModes(t, func(t *testing.T, b *bank, op idem.Operation) {
		_, err := idem.Do(t.Context(), b.engine, op.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
			tx := TxOf(ctx)
			tx.Check(types.ConditionCheck{TableName: &b.table, Key: account(0),
				ConditionExpression: aws.String("attribute_exists(pk)")}, unexplained)
			tx.Delete(types.Delete{TableName: &b.table, Key: account(1),
				ConditionExpression: aws.String("balance > :n"), ExpressionAttributeValues: item{":n": num("5")}}, unexplained)
			return 1, nil
		})
		var refused *ActionError
		require.ErrorAs(t, err, &refused)
		require.ErrorIs(t, err, ErrCondition)
		require.Equal(t, "Delete", refused.Action)
		require.Equal(t, 1, refused.Index)
		require.Equal(t, num("0"), refused.Old["balance"])
		require.NotContains(t, err.Error(), "account-1", "no values in what is logged")
		rec := b.get(t, op.Key("t", "k").ID())
		if op.Mode == idem.Atomic {
			require.Nil(t, rec)
		} else {
			require.Equal(t, protocol.Released, rec.State)
			require.Equal(t, codeCondition, rec.Failure.Code)
		}
	})
}

// What a handler has collected when it aborts is dropped, mistakes too.
func TestAbortDropsWhatWasCollected(t *testing.T) {
	inBothModes(t, func(t *testing.T, b *bank, op idem.Operation) {
		got, err := idem.Do(t.Context(), b.engine, op.Key("t", "k"), 1,
			Transact(func(ctx context.Context, tx *Tx, _ int) (int, error) {
				b.move(tx, 0, 1, 1)
				require.NoError(t, tx.Err())
				tx.Put(types.Put{}, nil)
				require.ErrorContains(t, tx.Err(), "Put (action 2): its TableName is missing")
				return 402, idem.Abort(ctx, errPoor)
			}))
		require.NoError(t, err)
		require.Equal(t, 402, got)
		b.moved(t, 0)
		require.Equal(t, protocol.Completed, b.get(t, op.Key("t", "k").ID()).State)
	})
}

// A handler may encode all its messages in one buffer, and use its maps again. What is shown of a
// unit is not the unit.
func TestTxKeepsWhatItWasGiven(t *testing.T) {
	tx, buf := new(Tx), []byte("one")
	m := outbox.Message{Destination: "d", Body: buf, Attributes: map[string]string{"n": "1"}}
	tx.Publish("one", m)
	it := account(1)
	tx.Put(types.Put{TableName: ptr("accounts"), Item: it}, nil)
	copy(buf, "two")
	m.Attributes["n"], it["n"] = "2", num("2")
	tx.Publish("two", m)
	shown := tx.Messages()[0]
	shown.Body[0], shown.Attributes["n"] = 'x', "3"
	require.Equal(t, "one", string(tx.messages[0].Body))
	require.Equal(t, "1", tx.messages[0].Attributes["n"])
	require.Equal(t, "two", string(tx.messages[1].Body))
	require.Equal(t, account(1), tx.actions[0].item)
}

// What comes when the handler has returned is refused as too late.
func TestLateActionsAreRefused(t *testing.T) {
	b := openBank(t, 100, 0)
	var tx *Tx
	var after context.Context
	_, err := idem.Do(t.Context(), b.engine, transfer.Key("t", "k"), 1, func(ctx context.Context, n int) (int, error) {
		tx, after = TxOf(ctx), ctx
		require.Same(t, tx, TxOf(ctx))
		return n, nil
	})
	require.NoError(t, err)
	for _, late := range []*Tx{tx, TxOf(after)} {
		require.NoError(t, late.Err())
		late.Put(types.Put{TableName: &b.table, Item: account(9)}, nil)
		late.Publish("moved", outbox.Message{Destination: "d", Body: []byte("b")})
		require.ErrorContains(t, late.Err(), "Tx.Put: the handler has returned")
	}
}

func TestTxOfNeedsAnAttempt(t *testing.T) {
	require.PanicsWithValue(t,
		"dynamostore.TxOf: idem: unit of work: the context is not a handler's: pass the context that the handler was given",
		func() { TxOf(t.Context()) })
	b := openBank(t, 100, 0)
	_, err := idem.Do(t.Context(), b.engine, transfer.Key("t", "k"), 1, func(ctx context.Context, _ int) (int, error) {
		return idem.Step(ctx, "move", func(ctx context.Context) (int, error) {
			require.Panics(t, func() { TxOf(ctx) }, "a later attempt skips the step and would not collect")
			return 1, nil
		}, nil)
	})
	require.NoError(t, err)
	require.Nil(t, Transact[int, int](nil), "wrappers find the mistake")
}

// A large result goes into parts, and the transaction names them.
func TestLargeResultCommits(t *testing.T) {
	inBothModes(t, func(t *testing.T, b *bank, op idem.Operation) {
		large := noise(450 << 10)
		handler := Transact(func(_ context.Context, tx *Tx, n int) ([]byte, error) {
			b.move(tx, 0, 1, n)
			return large, nil
		})
		for range 2 {
			got, err := idem.Do(t.Context(), b.engine, op.Key("t", "k"), 30, handler)
			require.NoError(t, err)
			require.Equal(t, large, got)
		}
		require.Equal(t, "70", b.balance(t, 0))
	})
}
