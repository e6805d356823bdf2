package ledger

import (
	"crypto/rand"
	"fmt"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/aws/streampoller"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
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
func newSetup(t *testing.T, mode string, fn runtime.Function, freeze, stick bool,
	of func(op string) (float64, []string), env ...string) *setup {
	s := &setup{
		t: t, db: dynamotest.Client(t), tally: &tally{unanswered: map[string]int{}, notices: map[string]int{},
			commits: map[string]int{}},
		records: rig.StreamTable(t), accounts: "accounts-" + rand.Text(), entries: "entries-" + rand.Text(),
	}
	s.createTable(s.accounts, "id")
	s.createTable(s.entries, "transfer", "entry")
	s.store = rig.Store(t, s.db, s.records)
	s.open()

	network := faultnet.New()
	fn.Path = testmain.Program(t, "./internal/worker")
	fn.Env = append(env, "LEDGER_ACCOUNTS="+s.accounts, "LEDGER_ENTRIES="+s.entries, "LEDGER_MODE="+mode)
	s.pool = rig.Start(t, s.records, network.Serve(t, dynamotest.Endpoint(t)), fn,
		&runtime.Options{Output: s.tally, Freeze: freeze})
	s.tally.Random = faultnet.NewRandom(*seed, faultnet.Caller(s.pool), of)
	rule := s.tally.Rule
	if stick {
		rule = s.tally.stuck(rule)
	}
	network.Set(rule)
	s.networks = append(s.networks, network)
	return s
}

func (s *setup) createTable(name string, keys ...string) {
	in := &dynamodb.CreateTableInput{TableName: &name, BillingMode: types.BillingModePayPerRequest}
	for i, k := range keys {
		in.AttributeDefinitions = append(in.AttributeDefinitions,
			types.AttributeDefinition{AttributeName: &k, AttributeType: types.ScalarAttributeTypeS})
		in.KeySchema = append(in.KeySchema,
			types.KeySchemaElement{AttributeName: &k, KeyType: []types.KeyType{types.KeyTypeHash, types.KeyTypeRange}[i]})
	}
	_, err := s.db.CreateTable(s.t.Context(), in)
	require.NoError(s.t, err)
	rig.DeleteTable(s.t, name)
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
func (s *setup) startRelay() {
	t := s.t
	s.queue = queuetest.New(t, queuetest.Spec{})
	db, out := faultnet.New(), faultnet.New()
	s.relay = rig.Relay(t, s.records, db.Serve(t, dynamotest.Endpoint(t)), out.Serve(t, queuetest.Endpoint(t)),
		map[string]string{"made": s.queue.URL},
		schema.EnvOutboxGrace+"=100ms", schema.EnvOutboxMaxTries+"=50")
	for i, network := range []*faultnet.Network{db, out} {
		network.Set(faultnet.NewRandom(*seed+1+uint64(i), faultnet.Caller(s.relay), func(string) (float64, []string) {
			return 12, []string{faultnet.KilledBefore, faultnet.KilledAfter, faultnet.CallLost,
				faultnet.ReplyLost, faultnet.CutLate}
		}).Rule)
		s.networks = append(s.networks, network)
	}
	s.poller = rig.Feed(t, s.relay, s.records)
}

// calm ends all faults, and waits for what is late.
func (s *setup) calm() {
	for _, network := range s.networks {
		network.Calm()
	}
}
