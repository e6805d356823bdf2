package dynamostore

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/child/childtest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
)

// withoutIndex creates tables from which DynamoDB Local deletes what has expired.
type withoutIndex struct{ dynamotest.WithoutStream }

func (c withoutIndex) CreateTable(ctx context.Context, in *dynamodb.CreateTableInput,
	opts ...func(*dynamodb.Options)) (*dynamodb.CreateTableOutput, error) {
	plain := *in
	plain.GlobalSecondaryIndexes, plain.AttributeDefinitions = nil, plain.AttributeDefinitions[:len(plain.KeySchema)]
	return c.WithoutStream.CreateTable(ctx, &plain, opts...)
}

// DynamoDB deletes a record that has expired, and then its key is free, whatever the clock of the process says. It
// deletes no open question. The package comment of dynamodblocal says why the server is the test's own, and why the
// table has no index.
func TestDynamoDBDeletesWhatHasExpired(t *testing.T) {
	if os.Getenv("IDEM_LONG") != "1" {
		t.Skip("it waits until DynamoDB Local looks for what has expired, every ten seconds: IDEM_LONG=1 runs it")
	}
	t.Setenv(dynamodblocal.EnvEndpoint, "")
	server := childtest.Need(t, "DynamoDB Local", func() (*child.Server, error) {
		return dynamodblocal.Start(t.Context(), nil)
	})
	defer server.Close()
	f := &fixture{table: "records", admin: dynamodb.New(dynamodb.Options{
		BaseEndpoint: aws.String(server.Endpoint()), Region: "us-east-1", Retryer: retry.NewStandard(),
		Credentials: credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", "")})}
	require.NoError(t, CreateTable(t.Context(), withoutIndex{dynamotest.WithoutStream{Client: f.admin}}, f.table))
	f.Store = must(New(must(NewClient(aws.Config{}, &ClientOptions{Endpoint: server.Endpoint()})), f.table, &patient))
	late := unhurried // its clock is so late that what expires in ten seconds is replayed for a day
	late.Now = func() time.Time { return time.Now().Add(10*time.Second - idem.DefaultRetention) }
	engine := must(idem.New(f.Store, &late))

	ran := map[string]int{}
	call := func(name string, retention time.Duration) (attempt int, err error) {
		op := idem.Operation{Name: name, Retention: retention}
		return idem.Do(t.Context(), engine, op.Key("acme", "1"), 1, func(ctx context.Context, _ int) (int, error) {
			if ran[name]++; name == "question" {
				return 0, errors.New("no reply")
			}
			info, _ := idem.InfoOf(ctx)
			return info.Attempt, nil
		})
	}
	first := func(name string, retention time.Duration) {
		attempt, err := call(name, retention)
		require.NoError(t, err)
		require.Equal(t, 1, attempt)
	}
	first("charge", 0)
	first("charge", 0)
	expiring := f.items(t)
	first("kept", 2*idem.DefaultRetention)
	_, err := call("question", time.Second)
	require.ErrorContains(t, err, "no reply")
	kept := slices.DeleteFunc(f.items(t), func(item string) bool { return slices.Contains(expiring, item) })

	deleted := func() bool { return len(f.items(t)) == len(kept) }
	require.Eventually(t, deleted, 2*time.Minute, 100*time.Millisecond)
	require.ElementsMatch(t, kept, f.items(t))
	first("charge", 0)
	first("kept", 0)
	_, err = call("question", 0)
	require.ErrorIs(t, err, idem.ErrOutcomeUnknown)
	require.Equal(t, map[string]int{"charge": 2, "kept": 1, "question": 1}, ran)
}
