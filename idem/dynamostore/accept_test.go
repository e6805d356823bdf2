package dynamostore

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
)

// acceptance for later of an input that lies beside the record.
func acceptance(id, owner string) protocol.Finish {
	c := claim(id, owner)
	c.Record.Attempt, c.Record.LeaseUntil, c.Record.ExpiresAt, c.Record.Ticket = 0, time.Time{}, time.Time{}, "ticket of "+owner
	input := noise(20 << 10)
	c.Record.Steps = map[string]protocol.RecordedStep{protocol.AcceptedStep: {
		Write: "input of " + owner, Body: protocol.Body{Data: input, Size: len(input), Stored: len(input)},
	}}
	return protocol.Finish{
		ID: id, Owner: owner, Write: owner + ".accept", Created: base, Attempt: protocol.Atomic{Claim: c},
		Ending: protocol.Ending{State: protocol.Pending, Due: base.Add(time.Hour)},
	}
}

// A try of an acceptance that has landed comes when workers have claimed the record and let go of
// it: the input stays. That of an acceptance that came too late does not.
func TestAnInputStaysAsLongAsItsRecordWaits(t *testing.T) {
	f := open(t, &patient)
	const id = "t#op#k"
	landed := acceptance(id, "first")
	require.NoError(t, f.Finish(t.Context(), base, landed))
	for _, owner := range []string{"o1", "o2"} {
		c := claim(id, owner)
		c.Seen, c.Record.ExpiresAt, c.Record.Due = f.get(t, id).Write, time.Time{}, base.Add(time.Minute)
		require.NoError(t, f.Acquire(t.Context(), base, c))
		require.NoError(t, f.Finish(t.Context(), base, protocol.Finish{
			ID: id, Owner: owner, Write: owner + ".end", Ending: protocol.Ending{State: protocol.Released}, Watched: true,
		}))
	}
	isConflict(t, f.Finish(t.Context(), base, landed))
	_, kept := f.parts(t)
	require.Equal(t, 1, kept)
	isConflict(t, f.Finish(t.Context(), base, acceptance(id, "second")))
	all, kept := f.parts(t)
	require.Equal(t, []int{2, 1}, []int{all, kept})
	b, err := f.StepResult(t.Context(), f.get(t, id), protocol.AcceptedStep)
	require.NoError(t, err)
	require.Len(t, b, 20<<10)
}

var statements = idem.Operation{Name: "statement"}

// A refused unit of work leaves no parts of the input in the table for good.
func TestARefusedAcceptanceLeavesNoInput(t *testing.T) {
	f := open(t, nil)
	e := f.engine(t)
	no := errors.New("no such account")
	for n := range 3 {
		_, err := later.Accept[string](t.Context(), e, statements.Key("acme", "june"), string(jsonResult(100<<10)), func(ctx context.Context, id string) error {
			TxOf(ctx).Check(types.ConditionCheck{
				TableName: &f.table, Key: account(0), ConditionExpression: ptr("attribute_exists(pk)"),
			}, OnConditionFailed(no))
			return nil
		})
		require.ErrorIs(t, err, no, n)
	}
	require.Nil(t, f.get(t, statements.Key("acme", "june").ID()), "nothing was accepted")
	all, forever := f.parts(t)
	require.Positive(t, all)
	require.Zero(t, forever, "of %d parts that no record names, so many never expire", all)
}

// Nor does the end of a worker, in either mode.
func TestAWorkersEndExpiresTheInput(t *testing.T) {
	for name, mode := range map[string]idem.Mode{"reserved": idem.Reserved, "atomic": idem.Atomic} {
		t.Run(name, func(t *testing.T) {
			f := open(t, nil)
			e := f.engine(t)
			op := idem.Operation{Name: "statement", Repeat: idem.Repeatable, Mode: mode}
			key := op.Key("acme", "june")
			_, err := later.Accept[string](t.Context(), e, key, string(jsonResult(100<<10)), nil)
			require.NoError(t, err)
			_, err = later.Work(t.Context(), e, op, key.ID(), func(context.Context, string) (string, error) { return "done", nil })
			require.NoError(t, err)
			require.Equal(t, idem.Completed, f.get(t, key.ID()).State)
			require.Empty(t, f.get(t, key.ID()).Steps)
			all, forever := f.parts(t)
			require.Positive(t, all)
			require.Zero(t, forever)
		})
	}
}

// What takes back a claim over an expired record keeps no ticket of the life that is over.
func TestAWithdrawalOverAnExpiredRecordKeepsNoTicket(t *testing.T) {
	f := open(t, nil)
	const id = "t#op#k"
	require.NoError(t, f.Finish(t.Context(), base, acceptance(id, "first")))
	c := claim(id, "o2")
	c.Seen, c.Replace, c.Record.Attempt = f.get(t, id).Write, true, 2
	w := protocol.Withdrawal{Claim: c, Owner: "n", Write: "n", ExpiresAt: base.Add(24 * time.Hour)}
	require.NotEmpty(t, f.get(t, id).Ticket)
	require.NoError(t, f.Withdraw(t.Context(), base, w))
	require.Empty(t, f.get(t, id).Ticket)
}
