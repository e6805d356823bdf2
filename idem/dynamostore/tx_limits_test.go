package dynamostore

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// Limits are found before anything is sent, and the error names the item.
func TestLimitsAreCheckedBeforeTheCall(t *testing.T) {
	own, other, arn := "table", "accounts", "arn:aws:dynamodb:eu-central-1:111122223333:table/table"
	put := func(table string, it item) func(*Tx) {
		return func(tx *Tx) { tx.Put(types.Put{TableName: &table, Item: it}, nil) }
	}
	del := func(table string, it item) func(*Tx) {
		return func(tx *Tx) { tx.Delete(types.Delete{TableName: &table, Key: it}, nil) }
	}
	with := func(it item, name string, v types.AttributeValue) item {
		it[name] = v
		return it
	}
	var many, heavy []func(*Tx)
	for n := range MaxActions {
		many = append(many, put(own, account(n)))
		if n < 11 {
			heavy = append(heavy, put(own, with(account(n), "data", str(strings.Repeat("x", 399<<10)))))
		}
	}
	publish := func(tx *Tx) { tx.Publish("moved", outbox.Message{Destination: "d", Body: []byte("b")}) }
	called := func(name string) func(*Tx) {
		return func(tx *Tx) { tx.Publish(name, outbox.Message{Destination: "d", Body: []byte("b")}) }
	}
	sized := func(size, limit int) func(*Tx) {
		return func(tx *Tx) {
			tx.Publish("moved", outbox.Message{Destination: "d",
				Body: []byte(`"` + strings.Repeat("x", size-2) + `"`), Limit: limit})
		}
	}
	most := maxItem - itemSize(outboxItem(published("", 0, outbox.Message{Destination: "d", Body: []byte("1")}, base))) + 1
	for _, tc := range []struct {
		name string
		add  []func(*Tx)
		says string // empty: it is sent
	}{
		{"99 actions", many, ""},
		{"100 actions", append(many[:MaxActions:MaxActions], put(own, account(100))),
			"Put (action 99): it would be number 100, and a transaction takes 99"},
		{"99 actions and a message", append(many[:MaxActions:MaxActions], publish),
			"Publish (action 99): it would be number 100"},
		{"4 MB", heavy[:10], ""},
		{"more than 4 MB", heavy, "the transaction has 44"},
		{"an item too large", []func(*Tx){put(own, with(account(1), "data", str(strings.Repeat("x", 400<<10))))},
			`Put (action 0) on the item of (data, pk, sk) in table "table": the item has`},
		{"the record", []func(*Tx){put(own, account(1)), del(own, key("k"))},
			"Delete (action 1) on the item of (pk, sk) in table \"table\": it is the record"},
		{"the record, by its table's ARN", []func(*Tx){put(arn, with(key("k"), "n", num("1")))}, "it is the record"},
		{"the record's key in another table", []func(*Tx){del(other, key("k"))}, ""},
		{"two actions on one item", []func(*Tx){put(own, with(account(1), "n", num("1"))), del(own, account(1))},
			"action 0, a Put, is on the same item"},
		{"two puts on one item of the store's table",
			[]func(*Tx){put(own, with(account(1), "n", num("1"))), put(own, account(1))}, "the same item"},
		{"a put and a key in another table", []func(*Tx){put(other, item{"id": num("1.0"), "n": num("2")}),
			del(other, item{"id": num("10e-1")})}, "the same item"},
		{"two puts in a table whose keys are known",
			[]func(*Tx){put("known", item{"id": str("a"), "n": num("1")}), put("known", item{"id": str("a")})}, "the same item"},
		{"the same put twice", []func(*Tx){put(other, item{"id": str("a")}), put(other, item{"id": str("a")})},
			"the same item"},
		{"two items", []func(*Tx){put(other, item{"id": str("1")}), put(other, item{"id": num("1")}),
			put("others", item{"id": num("1")})}, ""},
		{"no table", []func(*Tx){put("", account(1))}, "its TableName is missing"},
		{"no item", []func(*Tx){put(own, nil)}, "its Item is empty"},
		{"no key", []func(*Tx){del(own, nil)}, "its Key is empty"},
		{"no update", []func(*Tx){func(tx *Tx) { tx.Update(types.Update{TableName: &own, Key: account(1)}, nil) }},
			"UpdateExpression is missing"},
		{"a condition without an error", []func(*Tx){func(tx *Tx) {
			tx.Delete(types.Delete{TableName: &own, Key: account(1), ConditionExpression: ptr("n > :n")}, OnConditionFailed(nil))
		}}, "Delete (action 0): it has a ConditionExpression and no error for when that does not hold"},
		{"an error without a condition", []func(*Tx){func(tx *Tx) {
			tx.Delete(types.Delete{TableName: &own, Key: account(1)}, OnConditionFailed(errPoor))
		}}, "Delete (action 0): it has an error for a condition that does not hold, and no ConditionExpression"},
		{"no condition", []func(*Tx){func(tx *Tx) { tx.Check(types.ConditionCheck{TableName: &own, Key: account(1)}, nil) }},
			"ConditionExpression is missing"},
		{"a message over every destination's limit", []func(*Tx){sized(300<<10, 0)},
			"Publish (action 0): outbox: message for \"d\": it has 307200 bytes as it is sent and may have 261120"},
		{"a message that its destination takes", []func(*Tx){sized(300<<10, outbox.MaxLimit)}, ""},
		{"a message that is no item", []func(*Tx){sized(400<<10, outbox.MaxLimit)},
			"Publish (action 0): the message has 409"},
		{"a message that is no item with its record's key", []func(*Tx){sized(most, outbox.MaxLimit)}, "the item has 4096"},
		{"a name twice", []func(*Tx){publish, publish}, `Publish (action 1): the name "moved" is used twice`},
		{"no name", []func(*Tx){called("")}, "Publish (action 0): the name is empty"},
		{"a name too long", []func(*Tx){called(strings.Repeat("x", 101))}, "the name has 101 bytes"},
		{"a name with a line break", []func(*Tx){called("a\nb")}, "the name has control characters"},
		{"two names", []func(*Tx){publish, called("placed")}, ""},
		{"a bad message", []func(*Tx){func(tx *Tx) { tx.Publish("moved", outbox.Message{Body: []byte("b")}) }},
			"Publish (action 0): outbox: message"},
	} {
		for _, atomic := range []bool{false, true} {
			t.Run(tc.name+"/"+strconv.FormatBool(atomic), func(t *testing.T) {
				s, n := scripted(nil)
				s.keys = map[string][]string{"known": {"id"}}
				tx := &Tx{}
				for _, add := range tc.add {
					add(tx)
				}
				w := completion("k", "o1", []byte("{}"))
				w.Unit = tx
				if atomic {
					w.Attempt = protocol.Atomic{Claim: claim("k", "o1")}
				}
				err := s.Finish(t.Context(), base, w)
				if tc.says == "" {
					require.NoError(t, err)
					require.Equal(t, 1, *n)
					return
				}
				require.Zero(t, *n, "nothing was sent")
				var refused *protocol.RefusedError
				require.ErrorAs(t, err, &refused)
				require.False(t, refused.Ambiguous)
				var action *ActionError
				require.ErrorAs(t, err, &action)
				require.ErrorContains(t, err, tc.says)
				require.NotErrorIs(t, err, ErrCondition)
			})
		}
	}
}

func TestEqualNumbersAreOneKey(t *testing.T) {
	for _, same := range [][]string{
		{"0", "-0", "0.00", "0e5", "+0"},
		{"1", "1.0", "01", "10e-1", "0.1E1", "+1"},
		{"-12.5", "-1.25e1", "-125E-1"},
		{"100", "1e2", "1E+2"},
	} {
		for _, n := range same {
			require.Equal(t, plainNumber(same[0]), plainNumber(n), n)
		}
	}
	require.NotEqual(t, plainNumber("1"), plainNumber("-1"))
	require.NotEqual(t, plainNumber("1"), plainNumber("10"))
	require.NotEqual(t, plainNumber("9007199254740993"), plainNumber("9007199254740992"))
}

// An error function that panics does not take the process down, nor does one that
// makes no error let the refusal pass.
func TestOtherwiseThatMisbehaves(t *testing.T) {
	reason := types.CancellationReason{Code: ptr(codeCondition)}
	a := action{kind: "Put", table: ptr("t"), item: account(1)}
	a.failed = func(item) error { panic("boom") }
	require.ErrorContains(t, a.refusal(0, reason), "panicked at tx_limits_test.go")
	require.ErrorIs(t, a.refusal(0, reason), ErrCondition)
	a.failed = func(item) error { return nil }
	require.ErrorIs(t, a.refusal(0, reason), ErrCondition)
	a.failed = func(old item) error {
		require.NotNil(t, old)
		return errPoor
	}
	require.Same(t, errPoor, a.refusal(0, reason))
}

// A unit of work over package memstore: what it refuses, and that nothing commits then.
func TestUnitsInMemory(t *testing.T) {
	poor := errors.New("poor")
	conditional := types.Put{TableName: ptr("t"), Item: account(0), ConditionExpression: ptr("attribute_not_exists(pk)")}
	otherwise := func(old map[string]types.AttributeValue) error {
		if old == nil {
			return errors.New("the old item is nil")
		}
		return idem.Permanent(poor)
	}
	answer := func(holds bool, old any) func(any) (bool, any) {
		return func(action any) (bool, any) {
			require.Equal(t, account(0), action.(types.TransactWriteItem).Put.Item)
			return holds, old
		}
	}
	for name, c := range map[string]struct {
		collect    func(*Tx)
		conditions func(any) (bool, any)
		want       string // of the error; empty if it commits
		is         error
	}{
		"no condition": {func(tx *Tx) {
			tx.Put(types.Put{TableName: ptr("t"), Item: account(0)}, nil)
			tx.Update(types.Update{TableName: ptr("t"), Key: account(1), UpdateExpression: ptr("SET n = :n")}, nil)
			tx.Delete(types.Delete{TableName: ptr("t"), Key: account(2)}, nil)
		}, nil, "", nil},
		"a mistake": {func(tx *Tx) { tx.Put(types.Put{}, nil) }, nil, "TableName is missing", nil},
		"an unknown condition": {func(tx *Tx) { tx.Put(conditional, unexplained) },
			nil, "Store.Conditions", errors.ErrUnsupported},
		"an unknown check": {func(tx *Tx) {
			tx.Check(types.ConditionCheck{TableName: ptr("t"), Key: account(0), ConditionExpression: ptr("n > :n")}, unexplained)
		}, nil, "Check (action 0)", errors.ErrUnsupported},
		"a condition on an update": {func(tx *Tx) {
			tx.Update(types.Update{TableName: ptr("t"), Key: account(0), UpdateExpression: ptr("SET n = :n"),
				ConditionExpression: ptr("n > :n")}, unexplained)
		}, nil, "Update (action 0)", errors.ErrUnsupported},
		"a condition on a deletion": {func(tx *Tx) {
			tx.Delete(types.Delete{TableName: ptr("t"), Key: account(0), ConditionExpression: ptr("n > :n")}, unexplained)
		}, nil, "Delete (action 0)", errors.ErrUnsupported},
		"it holds": {func(tx *Tx) { tx.Put(conditional, unexplained) }, answer(true, nil), "", nil},
		"it does not hold": {func(tx *Tx) { tx.Put(conditional, unexplained) }, answer(false, account(0)),
			codeCondition, ErrCondition},
		"and says why":            {func(tx *Tx) { tx.Put(conditional, otherwise) }, answer(false, account(0)), "poor", poor},
		"and says why of nothing": {func(tx *Tx) { tx.Put(conditional, otherwise) }, answer(false, nil), "poor", poor},
		"an item of another kind": {func(tx *Tx) { tx.Put(conditional, unexplained) },
			answer(false, "item"), "is a string", nil},
		"two on one item": {func(tx *Tx) {
			tx.Put(types.Put{TableName: ptr("t"), Item: account(0)}, nil)
			tx.Put(types.Put{TableName: ptr("t"), Item: account(0)}, nil)
		}, nil, "on the same item", nil},
	} {
		t.Run(name, func(t *testing.T) {
			store := memstore.New()
			store.Conditions(c.conditions)
			engine := must(idem.New(store, nil))
			key := idem.Operation{Name: "move", Repeat: protocol.Repeatable}.Key("acme", "1")
			_, err := idem.Do(t.Context(), engine, key, "", Transact(func(_ context.Context, tx *Tx, _ string) (string, error) {
				c.collect(tx)
				tx.Publish("moved", outbox.Message{Destination: "d", Type: "moved", Body: []byte("1")})
				return "done", nil
			}))
			if c.want != "" {
				require.ErrorContains(t, err, c.want)
				if c.is != nil {
					require.ErrorIs(t, err, c.is)
				}
				require.Empty(t, store.Units())
				return
			}
			require.NoError(t, err)
			require.Len(t, store.Units(), 1)
			require.Equal(t, "moved", store.Units()[0].(*Tx).Messages()[0].Type)
		})
	}
}
