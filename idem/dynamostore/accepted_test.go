package dynamostore_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/later"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
)

func acceptingTable(t *testing.T) (*dynamodb.Client, string) {
	t.Helper()
	client, table := dynamotest.Client(t), "accepted-"+rand.Text()
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: client}, table))
	t.Cleanup(func() {
		_, _ = client.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table})
	})
	return client, table
}

func accepting(t *testing.T) (*idem.Engine, *dynamodb.Client, string) {
	t.Helper()
	client, table := acceptingTable(t)
	store, err := dynamostore.New(client, table, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	e, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute})
	require.NoError(t, err)
	return e, client, table
}

// parts are the items beside records, and how many of them never expire.
func partsOf(t *testing.T, client *dynamodb.Client, table string) (all, forever int) {
	t.Helper()
	out, err := client.Scan(t.Context(), &dynamodb.ScanInput{TableName: &table, ConsistentRead: aws.Bool(true)})
	require.NoError(t, err)
	for _, it := range out.Items {
		pk := it["pk"].(*types.AttributeValueMemberS).Value
		if !strings.Contains(pk, "#part#") {
			continue
		}
		all++
		if it["expires_at"] == nil {
			forever++
		}
	}
	return all, forever
}

var statements = idem.Operation{Name: "statement"}

func largeInput() string {
	b := make([]byte, 600<<10)
	_, _ = rand.Read(b)
	return fmt.Sprintf("%x", b)
}

// A refused unit of work leaves the parts of the input in the table for good.
func TestARefusedAcceptanceLeavesNoInput(t *testing.T) {
	e, client, table := accepting(t)
	no := errors.New("no such account")
	for n := range 3 {
		_, err := later.Accept[string](t.Context(), e, statements.Key("acme", "june"), largeInput(), func(ctx context.Context, id string) error {
			dynamostore.TxOf(ctx).Check(types.ConditionCheck{
				TableName: &table, Key: map[string]types.AttributeValue{"pk": &types.AttributeValueMemberS{Value: "account"}, "sk": &types.AttributeValueMemberS{Value: "#"}},
				ConditionExpression: aws.String("attribute_exists(pk)"),
			}, dynamostore.OnConditionFailed(no))
			return nil
		})
		require.ErrorIs(t, err, no, n)
	}
	rec, err := e.Store().Get(t.Context(), statements.Key("acme", "june").ID())
	require.NoError(t, err)
	require.Nil(t, rec, "nothing was accepted")
	all, forever := partsOf(t, client, table)
	t.Logf("%d parts, %d forever", all, forever)
	require.Zero(t, forever, "of %d parts that no record names, so many never expire", all)
}

// A worker in atomic mode leaves the input's parts in the table for good.
func TestAWorkersEndExpiresTheInput(t *testing.T) {
	for name, mode := range map[string]idem.Mode{"reserved": idem.Reserved, "atomic": idem.Atomic} {
		t.Run(name, func(t *testing.T) {
			e, client, table := accepting(t)
			op := idem.Operation{Name: "statement", Repeat: idem.Repeatable, Mode: mode}
			key := op.Key("acme", "june")
			_, err := later.Accept[string](t.Context(), e, key, largeInput(), nil)
			require.NoError(t, err)
			_, err = later.Work(t.Context(), e, op, key.ID(), func(context.Context, string) (string, error) { return "done", nil })
			require.NoError(t, err)
			rec, err := e.Store().Get(t.Context(), key.ID())
			require.NoError(t, err)
			require.Equal(t, idem.Completed, rec.State)
			require.Empty(t, rec.Steps)
			all, forever := partsOf(t, client, table)
			require.Zero(t, forever, "of %d", all)
		})
	}
}

// What takes back a claim over an expired record keeps the ticket of the life that is over.
func TestAWithdrawalOverAnExpiredRecordKeepsNoTicket(t *testing.T) {
	client, table := acceptingTable(t)
	store, err := dynamostore.New(client, table, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	now := time.Now()
	clock := func() time.Time { return now }
	e, err := idem.New(store, &idem.Options{ClaimBudget: time.Minute, FinishBudget: time.Minute, Now: clock})
	require.NoError(t, err)
	key := statements.Key("acme", "june")
	res, err := later.Accept[string](t.Context(), e, key, 3, nil)
	require.NoError(t, err)
	status := res.Outcome.StatusID
	_, err = later.Work(t.Context(), e, statements, key.ID(), func(context.Context, int) (string, error) { return "done", nil })
	require.NoError(t, err)
	now = now.Add(48 * time.Hour)
	_, err = later.StatusOf(t.Context(), e, statements, "acme", status)
	require.ErrorIs(t, err, later.ErrExpired)
	// Another request under the key: its claim gets no reply and is taken back.
	rec, err := store.Get(t.Context(), key.ID())
	require.NoError(t, err)
	owner := rand.Text()
	w := protocol.Withdrawal{Owner: rand.Text(), ExpiresAt: now.Add(24 * time.Hour), Claim: protocol.Claim{Seen: rec.Write, Replace: true, Record: protocol.Record{
		ID: key.ID(), State: idem.InProgress, Fingerprint: rec.Fingerprint, Owner: owner, Write: owner, Attempt: 2,
		LeaseUntil: now.Add(time.Minute), Retention: 24 * time.Hour, CreatedAt: now, UpdatedAt: now,
	}}}
	w.Write = w.Owner
	want, err := w.Apply(rec, now)
	require.NoError(t, err)
	require.Empty(t, want.Ticket, "the reference")
	require.NoError(t, store.Withdraw(t.Context(), now, w))
	got, err := store.Get(t.Context(), key.ID())
	require.NoError(t, err)
	_, err = later.StatusOf(t.Context(), e, statements, "acme", status)
	t.Log("status of the old life:", err)
	_, err = idem.Do(t.Context(), e, key, 3, func(context.Context, int) (string, error) { return "somebody else's", nil })
	require.NoError(t, err)
	out, err := later.StatusOf(t.Context(), e, statements, "acme", status)
	t.Log("status of the old life:", string(out.Body), err)
	require.Equal(t, want.Ticket, got.Ticket)
}
