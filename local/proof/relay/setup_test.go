package relay

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/aws/queue/queuetest"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/aws/streampoller"
	"github.com/idem-go/idempotency/local/aws/testmain"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

func TestMain(m *testing.M) {
	testmain.Parallel(8) // they wait for the relay and the queue most of the time
	testmain.Run(m)
}

// setup is all of it: table and operations, stream, relay, network, queue.
type setup struct {
	t       *testing.T
	db      *dynamodb.Client
	table   string
	engine  *idem.Engine
	client  *dynamodbstreams.Client
	stream  string
	pool    *runtime.Pool
	batches *batches
	queue   queuetest.Queue
	want    []string // ids published, in order
}

var place = idem.Operation{Name: "place", Repeat: idem.Repeatable}

func newSetup(t *testing.T, fifo bool, env ...string) *setup {
	endpoint := dynamotest.Endpoint(t)
	r := &setup{t: t, table: "relay-" + rand.Text(), queue: queuetest.New(t, queuetest.Spec{FIFO: fifo}), batches: &batches{sent: map[string]int{}}}
	r.db = dynamotest.Client(t)
	require.NoError(t, dynamostore.CreateTable(t.Context(), r.db, r.table))
	t.Cleanup(func() {
		_, err := r.db.DeleteTable(context.Background(), &dynamodb.DeleteTableInput{TableName: &r.table})
		require.NoError(t, err)
	})
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: endpoint})
	require.NoError(t, err)
	// How fast the table answers is not what is tested.
	store, err := dynamostore.New(client, r.table, &dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)
	r.engine, err = idem.New(store, &idem.Options{ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute})
	require.NoError(t, err)
	r.client = dynamodbstreams.New(dynamodbstreams.Options{
		BaseEndpoint: &endpoint, Region: "local", Credentials: r.db.Options().Credentials,
	})
	r.stream, err = streampoller.StreamOf(t.Context(), r.db, r.table)
	require.NoError(t, err)

	network := faultnet.New()
	network.Set(r.batches.rule)
	routes, err := json.Marshal(map[string]string{"orders": r.queue.URL})
	require.NoError(t, err)
	r.pool, err = runtime.Start(context.Background(), runtime.Function{
		Path: testmain.Program(t, "../../../lambda/functions/relay"), Timeout: 20 * time.Second,
		Env: append([]string{
			"AWS_ACCESS_KEY_ID=idemlocal", "AWS_SECRET_ACCESS_KEY=idemlocal", "AWS_ENDPOINT_URL_SQS=" + network.Serve(t, queuetest.Endpoint(t)),
			schema.EnvTable + "=" + r.table, schema.EnvEndpoint + "=" + endpoint, schema.EnvOutboxRoutes + "=" + string(routes),
			schema.EnvOutboxBackoff + "=20ms",
		}, env...),
	}, nil)
	require.NoError(t, err)
	t.Cleanup(r.pool.Close)
	return r
}

// publish runs an operation twice; its transaction has n messages, with the
// ordering key if it is not empty.
func (r *setup) publish(value, key string, n int) {
	r.t.Helper()
	k := place.Key(idem.NoTenant, value)
	var created time.Time
	for range 2 { // the second one is a replay
		out, err := idem.Run(r.t.Context(), r.engine, k, value, dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, in string) (string, error) {
			for i := range n {
				tx.Publish(strconv.Itoa(i), outbox.Message{
					Destination: "orders", OrderingKey: key, Type: "order.placed", Body: fmt.Appendf(nil, "%s/%d", in, i),
				})
			}
			return in, nil
		}))
		require.NoError(r.t, err)
		created = out.Outcome.CreatedAt
	}
	for i := range n {
		r.want = append(r.want, outbox.MessageID(k.ID(), created, strconv.Itoa(i)))
	}
}

// poll feeds the relay from the start of the stream.
func (r *setup) poll() *streampoller.Poller {
	r.t.Helper()
	p, err := streampoller.Start(context.Background(), r.client, r.stream, r.pool.Call, &streampoller.Options{
		Filters: []string{schema.OutboxFilter}, ReportBatchItemFailures: true, BisectBatchOnFunctionError: true,
		BatchSize: 20, PollInterval: 50 * time.Millisecond, Backoff: 10 * time.Millisecond,
	})
	require.NoError(r.t, err)
	r.t.Cleanup(p.Close)
	return p
}

// caughtUp waits until the poller is done with n messages.
func (r *setup) caughtUp(p *streampoller.Poller, n int) {
	r.t.Helper()
	until(r.t, func() bool { return p.Stats().Delivered == n })
}

// until polls a condition; the limit is only there to end a broken test.
func until(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 5*time.Minute, 50*time.Millisecond)
}

// sweep is the event by which its schedule invokes the relay.
var sweep = []byte(`{"detail-type":"Scheduled Event","source":"aws.events"}`)

// sweepUntil invokes the relay as its schedule does, but more often. The condition gets
// the invocation's error; the limit is only there to end a broken test.
func (r *setup) sweepUntil(condition func(err error) bool) {
	r.t.Helper()
	require.Eventually(r.t, func() bool {
		_, err := r.pool.Call(r.t.Context(), sweep)
		return condition(err)
	}, 5*time.Minute, 200*time.Millisecond)
}

// messages are the items of all messages.
func (r *setup) messages() (list []map[string]types.AttributeValue) {
	r.t.Helper()
	pages := dynamodb.NewScanPaginator(r.db, &dynamodb.ScanInput{TableName: &r.table, ConsistentRead: aws.Bool(true)})
	for pages.HasMorePages() {
		page, err := pages.NextPage(r.t.Context())
		require.NoError(r.t, err)
		for _, it := range page.Items {
			if strings.HasPrefix(str(it[schema.SK]), schema.OutboxSK) {
				list = append(list, it)
			}
		}
	}
	return list
}

func str(v types.AttributeValue) string {
	s, _ := v.(*types.AttributeValueMemberS)
	if s == nil {
		return ""
	}
	return s.Value
}

// in counts the messages by state.
func (r *setup) in(state string) (n int) {
	for _, it := range r.messages() {
		if str(it[schema.State]) == state {
			n++
		}
	}
	return n
}

// allDispatched shows that every message is noted as sent, and only those expire.
func (r *setup) allDispatched() {
	r.t.Helper()
	list := r.messages()
	require.Len(r.t, list, len(r.want))
	for _, it := range list {
		require.Equal(r.t, schema.OutboxDispatched, str(it[schema.State]))
		require.Contains(r.t, it, schema.ExpiresAt)
		require.NotContains(r.t, it, schema.OpenShard)
	}
}

// receive empties the queue: bodies in the order in which they came, and how often
// each id was sent.
func (r *setup) receive() (bodies []string, ids map[string]int) {
	r.t.Helper()
	ids = map[string]int{}
	for _, m := range queuetest.Drain(r.t, r.queue.Client, r.queue.URL) {
		bodies = append(bodies, *m.Body)
		ids[*m.MessageAttributes[outbox.AttributeID].StringValue]++
	}
	return bodies, ids
}

// nothingLost shows that each message arrived, under its one id.
func (r *setup) nothingLost(ids map[string]int) {
	r.t.Helper()
	want := slices.Sorted(slices.Values(r.want))
	var got []string
	for id := range ids {
		got = append(got, id)
	}
	slices.Sort(got)
	require.Equal(r.t, want, got)
}
