package caller

import (
	"net/http"
	"os"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
)

// Engine makes an engine over the table that the environment names, for a compiled function.
func Engine(kind *dynamostore.Options, o *idem.Options) (*idem.Engine, *dynamodb.Client, error) {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{
		Endpoint: os.Getenv(schema.EnvEndpoint), Transport: Transport{http.DefaultTransport.(*http.Transport).Clone()},
	})
	if err != nil {
		return nil, nil, err
	}
	store, err := dynamostore.New(client, os.Getenv(schema.EnvTable), kind)
	if err != nil {
		return nil, nil, err
	}
	engine, err := idem.New(store, o)
	return engine, client, err
}

// Patient makes an engine for a busy machine. Claims and outcomes may need the time; the share of the
// function's own bounds it. A handler that outlives its kill time is renewed for as long as Lease
// says: on such a machine the kill comes late. Nor is a table down that is slow there: with every
// claim that is not made a message comes nearer to its dead-letter queue.
func Patient() (*idem.Engine, *dynamodb.Client, error) {
	return Engine(&dynamostore.Options{AttemptTimeout: 10 * time.Second}, &idem.Options{
		Lease: time.Second, Margin: 250 * time.Millisecond, ClaimBudget: time.Minute, FinishBudget: time.Minute,
		Observer: idem.LogTo(nil),
	})
}
