package dynamostore

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
)

// What the network does to the transaction and to the writes that follow it. At the end the money has moved if and
// only if the caller's answer says so, or may have moved if the answer is unknown. When the network is back, the same
// call says what is true.
func TestTransactionLosesReplies(t *testing.T) {
	t.Parallel()
	type fault = func(w *wire, req *http.Request) (*http.Response, error)
	loseReply := func(w *wire, req *http.Request) (*http.Response, error) { return w.loseReply(req) }
	loseRequest := func(w *wire, req *http.Request) (*http.Response, error) { return w.loseRequest(req) }
	const tra = "TransactWriteItems"
	for _, tc := range []struct {
		name string
		// tx is injected into the transaction's tries, rest into every call after it; nil lets the call pass.
		tx, rest     fault
		tries        int // of the transaction that get a fault
		ok, maybe    bool
		moved        bool
		lateDelivery bool
	}{
		{name: "reply lost", tx: loseReply, tries: 2, ok: true, moved: true},
		{name: "request lost", tx: loseRequest, tries: 2, ok: true, moved: true},
		{name: "all replies lost", tx: loseReply, tries: 1000, ok: true, moved: true},
		{name: "all requests lost", tx: loseRequest, tries: 1000, lateDelivery: true},
		{name: "all replies lost, also of what follows", tx: loseReply, rest: loseReply, tries: 1000,
			maybe: true, moved: true},
		{name: "everything lost", tx: loseRequest, rest: loseRequest, tries: 1000, maybe: true},
		{name: "all requests lost, replies of what follows too", tx: loseRequest, rest: loseReply, tries: 1000, maybe: true,
			lateDelivery: true},
	} {
		for name, op := range modes {
			t.Run(tc.name+"/"+name, func(t *testing.T) {
				t.Parallel()
				// Where no try gets an answer the budget is used up, and a busy machine may
				// need a longer one for what follows.
				var b *bank
				var patient *idem.Engine
				var held *http.Request
				var res idem.Result[string]
				var err error
				var failed *idem.CommitError
				for budget := 1500 * time.Millisecond; budget < 2*time.Minute; budget *= 4 {
					b = openBank(t, 100, 0)
					patient, held = b.engine, nil
					if tc.tries > 2 {
						b.engine = b.hasty(t, budget)
					}
					begun, n := false, 0
					b.wire.set(func(_ int, call string, req *http.Request) (*http.Response, error) {
						if call == tra {
							begun = true
							if held == nil {
								held = kept(t, req)
							}
							if n++; n <= tc.tries {
								return tc.tx(b.wire, req)
							}
							return nil, nil
						}
						if begun && tc.rest != nil {
							return tc.rest(b.wire, req)
						}
						return nil, nil
					})
					res, err = b.transfer(t.Context(), op, 30)
					b.wire.set(nil)
					if tc.ok && err == nil || !tc.ok && errors.As(err, &failed) && failed.Ambiguous == tc.maybe {
						break
					}
				}
				if tc.ok {
					require.NoError(t, err)
					require.Equal(t, "moved 30", res.Value)
				} else {
					require.ErrorAs(t, err, &failed)
					require.Equal(t, tc.maybe, failed.Ambiguous)
				}
				want := 0
				if tc.moved {
					want = 30
				}
				b.moved(t, want)
				if tc.lateDelivery {
					// The transaction arrives when it was fenced, and changes nothing.
					resp, err := b.wire.next.RoundTrip(held)
					require.NoError(t, err)
					require.Equal(t, http.StatusBadRequest, resp.StatusCode)
					require.NoError(t, resp.Body.Close())
					b.moved(t, 0)
				}
				// In the reserved mode a lease may have to end first.
				b.now = b.now.Add(time.Hour)
				b.engine = patient
				res, err = b.transfer(t.Context(), op, 30)
				require.NoError(t, err)
				require.Equal(t, "moved 30", res.Value)
				require.Equal(t, tc.moved, res.Outcome.Replayed)
				b.moved(t, 30)
			})
		}
	}
}

// hasty is an engine that gives up soon. Its clock stands still: it may be at work
// in the background when the bank's goes on.
func (b *bank) hasty(t *testing.T, budget time.Duration) *idem.Engine {
	now := b.now
	e := must(idem.New(b.Store, &idem.Options{Now: func() time.Time { return now },
		ClaimBudget: patient.Budget, FinishBudget: budget}))
	t.Cleanup(func() { require.NoError(t, e.Flush(context.Background())) })
	return e
}

// reasons is a cancelled transaction as DynamoDB answers it.
func reasons(codes ...string) *http.Response {
	var rs, plain []string
	for _, c := range codes {
		code, more, _ := strings.Cut(c, " ")
		plain = append(plain, code)
		rs = append(rs, `{"Code":"`+code+`"`+more+`}`)
	}
	return answer(400, `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","Message":"Transaction `+
		`cancelled, please refer cancellation reasons for specific reasons [`+
		strings.Join(plain, ", ")+`]","CancellationReasons":[`+strings.Join(rs, ",")+`]}`)
}

const none = "None"

// Every reason for which DynamoDB cancels a transaction or refuses it, the record's
// own first. The answers are made up: DynamoDB Local gives only some of them.
func TestCancellationReasons(t *testing.T) {
	const cond, conflict = codeCondition, "TransactionConflict"
	large := `ValidationError ,"Message":"Item size has exceeded the maximum allowed size"`
	exception := func(code string) *http.Response {
		return answer(400, `{"__type":"com.amazonaws.dynamodb.v20120810#`+code+`","message":"`+code+`"}`)
	}
	for _, tc := range []struct {
		name    string
		answers []*http.Response // then the network is as it should be
		check   func(t *testing.T, err error)
		tries   int
	}{
		{"conflict on the record", []*http.Response{reasons(conflict, none, none), reasons(conflict, none, none)}, nil, 3},
		{"conflict on the record and a condition", []*http.Response{reasons(conflict, cond, none)}, nil, 2},
		{"conflict on a business item", []*http.Response{reasons(none, none, conflict)}, nil, 2},
		{"throttled", []*http.Response{reasons(none, "ThrottlingError", none),
			reasons("ProvisionedThroughputExceeded", none, none)}, nil, 3},
		{"transaction in progress", []*http.Response{exception("TransactionInProgressException")}, nil, 2},
		{"throttled as a whole", []*http.Response{exception("ThrottlingException"),
			exception("ProvisionedThroughputExceededException")}, nil, 3},
		{"internal error", []*http.Response{answer(500, internal)}, nil, 2},
		{"no reasons at all", []*http.Response{reasons()}, nil, 2},
		{"a condition and a conflict elsewhere", []*http.Response{reasons(none, conflict, cond)},
			refusedFor("Put", codeCondition, false, ""), 1},
		{"a condition", []*http.Response{reasons(none, cond+` ,"Item":{"balance":{"N":"7"}}`, none)},
			func(t *testing.T, err error) {
				refused := requireRefused(t, err, "Update", codeCondition, false)
				require.Equal(t, num("7"), refused.Old["balance"])
			}, 1},
		{"an item too large", []*http.Response{reasons(none, large, none)},
			refusedFor("Update", "ValidationError", false, "exceeded the maximum allowed size"), 1},
		{"the record too large", []*http.Response{reasons(large, none, none)}, func(t *testing.T, err error) {
			var large *protocol.TooLargeError
			require.ErrorAs(t, err, &large)
		}, 1},
		{"two actions on one item",
			[]*http.Response{answer(400, `{"__type":"com.amazon.coral.validate#ValidationException","message":"Transaction `+
				`request cannot include multiple operations on one item"}`)},
			refusedFor("", "ValidationException", false, "multiple operations on one item"), 1},
		{"a reason of the future", []*http.Response{reasons(none, "Whatever", none)},
			refusedFor("Update", "Whatever", false, ""), 1},
		{"a condition after a lost request", []*http.Response{nil, reasons(none, cond, none)},
			refusedFor("Update", codeCondition, true, ""), 2},
		{"the token is known for another transaction", []*http.Response{exception("IdempotentParameterMismatchException")},
			func(t *testing.T, err error) { isStoreError(t, err, true) }, 1},
		{"no such table", []*http.Response{answer(400, noTable)}, func(t *testing.T, err error) {
			require.ErrorContains(t, isStoreError(t, err, false), "accounts")
		}, 1},
		{"not allowed", []*http.Response{answer(400, noAccess)}, func(t *testing.T, err error) {
			require.ErrorContains(t, isStoreError(t, err, false), "ConditionCheckItem")
		}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := open(t, nil)
			ctx := t.Context()
			f.claimed(t, "k", "o1")
			w := completion("k", "o1", []byte("{}"))
			tx := &Tx{}
			accounts := "accounts"
			update := types.Update{TableName: &f.table, Key: account(0), UpdateExpression: ptr("SET n = :n"),
				ExpressionAttributeValues: item{":n": num("1")}}
			if tc.name == "no such table" {
				update.TableName = &accounts
			}
			tx.Update(update, nil)
			tx.Put(types.Put{TableName: &f.table, Item: account(1)}, nil)
			w.Unit = tx
			tries := 0
			f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
				if op != "TransactWriteItems" {
					return nil, nil
				}
				if tries++; tries > len(tc.answers) {
					return nil, nil
				}
				if resp := tc.answers[tries-1]; resp != nil {
					return resp, nil
				}
				return f.wire.loseRequest(req)
			})
			err := f.Finish(ctx, base, w)
			require.Equal(t, tc.tries, tries)
			if tc.check == nil {
				require.NoError(t, err)
				require.Equal(t, protocol.Completed, f.get(t, "k").State)
				require.NotEmpty(t, f.raw(t, "account-0"))
				return
			}
			tc.check(t, err)
			require.Equal(t, protocol.InProgress, f.get(t, "k").State)
		})
	}
}

func refusedFor(action, code string, maybe bool, says string) func(t *testing.T, err error) {
	return func(t *testing.T, err error) {
		require.ErrorContains(t, requireRefused(t, err, action, code, maybe), says)
	}
}

func requireRefused(t *testing.T, err error, action, code string, maybe bool) *ActionError {
	t.Helper()
	var refused *protocol.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Equal(t, maybe, refused.Ambiguous)
	var a *ActionError
	require.ErrorAs(t, err, &a)
	require.Equal(t, action, a.Action)
	require.Equal(t, code, a.Code)
	return a
}

func ptr[T any](v T) *T { return &v }

// The record's own condition comes first, whatever else has failed: a claim that is
// lost, a write that has landed, with and without the old item.
func TestTheRecordsConditionComesFirst(t *testing.T) {
	for _, strip := range []bool{false, true} {
		t.Run(fmt.Sprint("old item missing ", strip), func(t *testing.T) {
			b := openBank(t, 0, 0)
			ctx := t.Context()
			if strip {
				b.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
					if op != "TransactWriteItems" {
						return nil, nil
					}
					resp, err := b.wire.next.RoundTrip(req)
					if err != nil || resp.StatusCode == http.StatusOK {
						return resp, err
					}
					_ = resp.Body.Close()
					return reasons(codeCondition, codeCondition, none), nil
				})
			}
			poor := func() *Tx {
				tx := &Tx{}
				b.move(tx, 0, 1, 1)
				return tx
			}
			// Lost to another call.
			require.NoError(t, b.Acquire(ctx, base, claim("k", "o1")))
			c := claim("k", "o2")
			c.Seen = "o1.0"
			require.NoError(t, b.Acquire(ctx, base, c))
			w := completion("k", "o1", nil)
			w.Unit = poor()
			require.Equal(t, "o2", isConflict(t, b.Finish(ctx, base, w)).Owner)
			// Landed earlier: the business condition fails now because it was applied.
			w = completion("k", "o2", nil)
			require.NoError(t, b.Finish(ctx, base, w))
			w.Unit = poor()
			require.NoError(t, b.Finish(ctx, base, w))
			// There is no record.
			w = completion("none", "o1", nil)
			w.Unit = poor()
			require.Nil(t, isConflict(t, b.Finish(ctx, base, w)))
			// In atomic mode: another one's outcome.
			w = completion("k", "o3", nil)
			w.Attempt = protocol.Atomic{Claim: claim("k", "o3")}
			w.Unit = poor()
			require.Equal(t, "o2", isConflict(t, b.Finish(ctx, base, w)).Owner)
		})
	}
}

// Conflicts that do not end use up the budget, and leave no doubt: nothing was
// committed, the claim is given up, and the next call runs.
func TestConflictsUseUpTheBudget(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, b *bank, op idem.Operation) {
		t.Parallel()
		b.engine = b.hasty(t, time.Second)
		b.wire.set(func(_ int, call string, _ *http.Request) (*http.Response, error) {
			if call == "TransactWriteItems" {
				return reasons("TransactionConflict", none, none, none), nil
			}
			return nil, nil
		})
		_, err := b.transfer(t.Context(), op, 30)
		b.wire.set(nil)
		var failed *idem.CommitError
		require.ErrorAs(t, err, &failed)
		require.False(t, failed.Ambiguous)
		require.False(t, errors.Is(err, idem.ErrLeaseLost))
		b.moved(t, 0)
		res, err := b.transfer(t.Context(), op, 30)
		require.NoError(t, err)
		require.False(t, res.Outcome.Replayed)
		b.moved(t, 30)
	})
}

// Every try is the same request, byte for byte and under one token, whatever the
// order in which maps are walked: DynamoDB then knows it again.
func TestEveryTryOfATransactionIsTheSame(t *testing.T) {
	t.Parallel()
	inBothModes(t, func(t *testing.T, b *bank, op idem.Operation) {
		t.Parallel()
		var bodies []string
		b.wire.set(func(_ int, call string, req *http.Request) (*http.Response, error) {
			if call != "TransactWriteItems" {
				return nil, nil
			}
			bodies = append(bodies, bodyOf(t, req))
			switch len(bodies) {
			case 1:
				return b.wire.loseRequest(req)
			case 2:
				return reasons("TransactionConflict", none, none, none), nil
			case 3, 4:
				return b.wire.loseReply(req)
			}
			return nil, nil
		})
		_, err := b.transfer(t.Context(), op, 30)
		require.NoError(t, err)
		require.Len(t, bodies, 5)
		for _, body := range bodies[1:] {
			require.Equal(t, bodies[0], body)
		}
		require.Contains(t, bodies[0], `"ClientRequestToken"`)
	})
}
