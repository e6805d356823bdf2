package rig

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
)

// A confirmation reaches its client when the server has answered a question that it got afterwards, and not where the
// server ends before that.
func TestAConfirmationWaitsForTheCommit(t *testing.T) {
	for name, commits := range map[string]bool{"commits": true, "is killed": false} {
		var asked []string
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			op := r.Header.Get(target)
			if asked = append(asked, op); op == "DynamoDB_20120810.ListTables" && !commits {
				panic(http.ErrAbortHandler)
			}
		}))
		d := &Database{address: func() string { return server.Listener.Addr().String() }}
		front := httptest.NewServer(d.front())
		for _, op := range []string{"TransactWriteItems", "PutItem"} {
			req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, front.URL, nil)
			require.NoError(t, err)
			req.Header.Set(target, "DynamoDB_20120810."+op)
			res, err := http.DefaultClient.Do(req)
			require.Equal(t, commits || op == "PutItem", err == nil, "%s %s", name, op)
			if err == nil {
				require.NoError(t, res.Body.Close())
			}
		}
		front.Close()
		server.Close()
		require.Equal(t, []string{"DynamoDB_20120810.TransactWriteItems", "DynamoDB_20120810.ListTables",
			"DynamoDB_20120810.PutItem"}, asked, name)
	}
}

// So what a client was answered is on disk: the server is killed the moment it has confirmed one transaction of many.
func TestWhatIsConfirmedSurvivesAKill(t *testing.T) {
	if !Long() {
		t.Skip("a kill is rarely just before a commit: it takes many")
	}
	t.Setenv(dynamodblocal.EnvEndpoint, "") // one that is given cannot be killed
	d := NewDatabase(t)
	db := dynamodb.New(dynamodb.Options{BaseEndpoint: &d.URL, Region: "us-east-1", Retryer: retry.NewStandard(),
		Credentials: credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", "")})
	table := aws.String("records")
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: db}, *table))
	for round := range 20 {
		confirmed := map[string]map[string]types.AttributeValue{}
		var mu sync.Mutex
		var writers sync.WaitGroup
		for i := range 8 {
			writers.Go(func() {
				for n := 0; ; n++ {
					key := map[string]types.AttributeValue{
						"pk": &types.AttributeValueMemberS{Value: fmt.Sprint(round, i, n)},
						"sk": &types.AttributeValueMemberS{Value: "written"},
					}
					_, err := db.TransactWriteItems(t.Context(), &dynamodb.TransactWriteItemsInput{
						TransactItems: []types.TransactWriteItem{{Put: &types.Put{TableName: table, Item: key}}},
					}, func(o *dynamodb.Options) { o.Retryer = aws.NopRetryer{} })
					mu.Lock()
					if err == nil && len(confirmed) < 100 {
						confirmed[fmt.Sprint(i, n)] = key
						if len(confirmed) == 100 {
							assert.NoError(t, d.Kill())
						}
					}
					enough := len(confirmed) == 100
					mu.Unlock()
					if enough {
						return
					}
				}
			})
		}
		writers.Wait()
		for _, key := range confirmed {
			out, err := db.GetItem(t.Context(), &dynamodb.GetItemInput{
				TableName: table, Key: key, ConsistentRead: aws.Bool(true),
			})
			require.NoError(t, err)
			require.NotEmpty(t, out.Item, "%v was confirmed and is not there", key)
		}
	}
}
