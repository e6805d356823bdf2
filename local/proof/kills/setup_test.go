package kills

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/aws/testmain"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// margin as the function has it.
const margin = 250 * time.Millisecond

func TestMain(m *testing.M) {
	testmain.Parallel(6) // they wait for time-outs most of the time
	testmain.Run(m)
}

// setup is the function, its two tables and what lies between them.
type setup struct {
	t                 *testing.T
	pool              *runtime.Pool
	client            *dynamodb.Client
	store             *dynamostore.Store
	records, bookings string
	hang              string
	network           *faultnet.Network
}

func newSetup(t *testing.T, fn runtime.Function, o *runtime.Options) *setup {
	endpoint := dynamotest.Endpoint(t)
	s := &setup{
		t: t, hang: t.TempDir(), network: faultnet.New(),
		records: fmt.Sprintf("kills%d", time.Now().UnixNano()), bookings: fmt.Sprintf("ledger%d", time.Now().UnixNano()),
	}
	var err error
	s.client = dynamotest.Client(t)
	for _, table := range []string{s.records, s.bookings} {
		require.NoError(t, dynamostore.CreateTable(t.Context(), dynamotest.WithoutStream{Client: s.client}, table))
	}
	s.store, err = dynamostore.New(s.client, s.records, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)

	fn.Path = testmain.Program(t, "./ledger")
	fn.Env = []string{
		schema.EnvEndpoint + "=" + s.network.Serve(t, endpoint), schema.EnvTable + "=" + s.records,
		"LEDGER_TABLE=" + s.bookings, "LEDGER_HANG=" + s.hang,
	}
	s.pool, err = runtime.Start(context.Background(), fn, o)
	require.NoError(t, err)
	t.Cleanup(s.pool.Close)
	return s
}

// order is one booking that somebody wants.
type order struct {
	id   string
	kind idem.Repeat
}

func (o order) operation() idem.Operation {
	if o.kind == idem.Repeatable {
		return idem.Operation{Name: "credit", Repeat: idem.Repeatable}
	}
	return idem.Operation{Name: "debit"}
}

func (o order) event() []byte {
	event, _ := json.Marshal(map[string]string{"id": o.id, "kind": o.operation().Name}) // strings cannot fail
	return event
}

func (s *setup) invoke(o order) runtime.Result {
	s.t.Helper()
	result, err := s.pool.Invoke(context.Background(), o.event(), nil)
	require.NoError(s.t, err)
	return result
}

// busy are the errors of a store that a busy machine keeps from answering in time.
var busy = []string{"StoreUnavailableError", "OutOfTimeError"}

// ended invokes until the record is in nobody's hands any more, and the store
// of a busy machine answers in time.
func (s *setup) ended(o order) runtime.Result {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		result := s.invoke(o)
		if result.Error == nil || result.Error.Type != "InFlightError" && !slices.Contains(busy, result.Error.Type) {
			return result
		}
		select {
		case <-time.After(50 * time.Millisecond):
		case <-ctx.Done():
			require.FailNow(s.t, "it does not end", "%v", result.Error)
		}
	}
}

func (s *setup) record(o order) *idem.Record {
	s.t.Helper()
	rec, err := s.store.Get(context.Background(), o.operation().Key(idem.NoTenant, o.id).ID())
	require.NoError(s.t, err)
	require.NotNil(s.t, rec, "no record of %s", o.id)
	return rec
}

// booked lists the bookings of an order.
func (s *setup) booked(o order) []string {
	s.t.Helper()
	out, err := s.client.Query(context.Background(), &dynamodb.QueryInput{
		TableName: &s.bookings, ConsistentRead: aws.Bool(true), KeyConditionExpression: aws.String("pk = :pk"),
		ExpressionAttributeValues: map[string]types.AttributeValue{
			":pk": &types.AttributeValueMemberS{Value: o.operation().Name + "#" + o.id},
		},
	})
	require.NoError(s.t, err)
	var list []string
	for _, item := range out.Items {
		list = append(list, item["booking"].(*types.AttributeValueMemberS).Value)
	}
	return list
}

// requireKept checks that what was answered is what is recorded, and what was
// done, once.
func (s *setup) requireKept(o order, answer []byte) {
	s.t.Helper()
	rec := s.record(o)
	require.Equal(s.t, idem.Completed, rec.State, o.id)
	recorded, err := s.store.Result(context.Background(), rec)
	require.NoError(s.t, err)
	require.Equal(s.t, string(answer), string(recorded), "%s was answered otherwise than recorded", o.id)
	var r struct {
		ID, Booking string
	}
	require.NoError(s.t, json.Unmarshal(answer, &r))
	require.Equal(s.t, o.id, r.ID)
	require.Equal(s.t, []string{r.Booking}, s.booked(o), "%s took effect otherwise than answered", o.id)
}
