package rig

import (
	"fmt"
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

// What a client was told is on disk: the server is killed the moment it has confirmed one transaction of many.
func TestWhatIsConfirmedSurvivesAKill(t *testing.T) {
	t.Setenv(dynamodblocal.EnvEndpoint, "") // one that is given cannot be killed
	d := NewDatabase(t)
	db := dynamodb.New(dynamodb.Options{BaseEndpoint: &d.URL, Region: "us-east-1", Retryer: retry.NewStandard(),
		Credentials: credentials.NewStaticCredentialsProvider("idemlocal", "idemlocal", "")})
	table := aws.String("records")
	require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: db}, *table))
	rounds := 2
	if Long() {
		rounds = 20
	}
	for round := range rounds {
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
