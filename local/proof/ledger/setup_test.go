package ledger

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/aws/queue/queuetest"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/aws/streampoller"
	"github.com/idem-go/idempotency/local/aws/testmain"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

func TestMain(m *testing.M) { testmain.Run(m) }

const (
	accounts = 10
	opening  = 200 // of each account
)

// setup is the function with its tables, what lies between them, and the relay with
// its queue.
type setup struct {
	t                          *testing.T
	db                         *dynamodb.Client
	store                      *dynamostore.Store
	records, accounts, entries string
	pool                       *runtime.Pool
	networks                   []*faultnet.Network
	tally                      *tally

	relay  *runtime.Pool
	poller *streampoller.Poller
	queue  queuetest.Queue
}

// newSetup starts all of it. The faults are of the function's calls; stick has some
// transactions get no answer at all.
func newSetup(t *testing.T, mode string, seed uint64, timeout time.Duration, stick bool, of func(op string) (int, []string), env ...string) *setup {
	endpoint := dynamotest.Endpoint(t)
	s := &setup{
		t: t, records: "records-" + rand.Text(), accounts: "accounts-" + rand.Text(), entries: "entries-" + rand.Text(),
		tally: newTally(),
	}
	var err error
	s.db = dynamotest.Client(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), s.db, s.records))
	s.createTable(s.accounts, "id")
	s.createTable(s.entries, "transfer", "entry")
	t.Cleanup(func() {
		for _, table := range []string{s.records, s.accounts, s.entries} {
			_, err := s.db.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &table})
			require.NoError(t, err)
		}
	})
	s.store, err = dynamostore.New(s.db, s.records, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	s.open()

	network := faultnet.New()
	s.pool, err = runtime.Start(context.Background(), runtime.Function{
		Path: testmain.Program(t, "./internal/worker"), MaxInstances: 6, Timeout: timeout,
		Env: append([]string{
			schema.EnvEndpoint + "=" + network.Serve(t, endpoint), schema.EnvTable + "=" + s.records,
			"LEDGER_ACCOUNTS=" + s.accounts, "LEDGER_ENTRIES=" + s.entries, "LEDGER_MODE=" + mode,
		}, env...),
	}, &runtime.Options{Output: s.tally})
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	calls := newFaults(seed, s.tally, s.pool, of)
	calls.stick = stick
	network.Set(calls.rule)
	s.networks = append(s.networks, network)
	return s
}

func (s *setup) createTable(name string, keys ...string) {
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, k := range keys {
		in.AttributeDefinitions = append(in.AttributeDefinitions, types.AttributeDefinition{AttributeName: &k, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema, types.KeySchemaElement{AttributeName: &k, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
	}
	_, err := s.db.CreateTable(s.t.Context(), in)
	require.NoError(s.t, err)
}

// open opens the accounts, and the books.
func (s *setup) open() {
	put := func(item map[string]types.AttributeValue) {
		_, err := s.db.PutItem(s.t.Context(), &dynamodb.PutItemInput{TableName: &s.accounts, Item: item})
		require.NoError(s.t, err)
	}
	put(map[string]types.AttributeValue{"id": &types.AttributeValueMemberS{Value: "open"}})
	for i := range accounts {
		put(map[string]types.AttributeValue{
			"id":      &types.AttributeValueMemberS{Value: accountName(i)},
			"balance": &types.AttributeValueMemberN{Value: fmt.Sprint(opening)},
			"journal": &types.AttributeValueMemberL{Value: []types.AttributeValue{}},
		})
	}
}

func accountName(i int) string { return fmt.Sprintf("account-%d", i) }

// startRelay sends the messages from the table's stream to a queue, over networks that
// kill the relay and lose its calls.
func (s *setup) startRelay(seed uint64) {
	t := s.t
	s.queue = queuetest.New(t, queuetest.Spec{})
	db, out := faultnet.New(), faultnet.New()
	routes, err := json.Marshal(map[string]string{"made": s.queue.URL})
	require.NoError(t, err)
	s.relay, err = runtime.Start(context.Background(), runtime.Function{
		Path: testmain.Program(t, "../../../lambda/functions/relay"), MaxInstances: 2, Timeout: 20 * time.Second,
		Env: []string{
			"AWS_ACCESS_KEY_ID=idemlocal", "AWS_SECRET_ACCESS_KEY=idemlocal", "AWS_ENDPOINT_URL_SQS=" + out.Serve(t, queuetest.Endpoint(t)),
			schema.EnvTable + "=" + s.records, schema.EnvEndpoint + "=" + db.Serve(t, dynamotest.Endpoint(t)), schema.EnvOutboxRoutes + "=" + string(routes),
			schema.EnvOutboxBackoff + "=20ms", schema.EnvOutboxGrace + "=100ms", schema.EnvOutboxMaxTries + "=50",
		},
	}, nil)
	require.NoError(t, err)
	t.Cleanup(s.relay.Close)
	unseen := newTally()
	for i, network := range []*faultnet.Network{db, out} {
		network.Set(newFaults(seed+1+uint64(i), unseen, s.relay, func(string) (int, []string) {
			return 12, []string{killBefore, killAfter, lostCall, lostReply, lateCut}
		}).rule)
		s.networks = append(s.networks, network)
	}
	stream, err := streampoller.StreamOf(t.Context(), s.db, s.records)
	require.NoError(t, err)
	client := dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: aws.String(dynamotest.Endpoint(t)), Region: "local", Credentials: s.db.Options().Credentials,
	})
	s.poller, err = streampoller.Start(context.Background(), client, stream, s.relay.Call, &streampoller.Options{
		Filters: []string{schema.OutboxFilter}, ReportBatchItemFailures: true, BisectBatchOnFunctionError: true,
		BatchSize: 10, PollInterval: 10 * time.Millisecond, Backoff: 10 * time.Millisecond,
	})
	require.NoError(t, err)
	t.Cleanup(s.poller.Close)
}

// calm ends all faults, and waits for what is late.
func (s *setup) calm() {
	for _, network := range s.networks {
		network.Calm()
	}
}
