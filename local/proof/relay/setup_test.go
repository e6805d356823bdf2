package relay

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/aws/streampoller"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
)

func TestMain(m *testing.M) {
	testmain.Parallel(8) // they wait for the relay and the queue most of the time
	testmain.Run(m)
}

// setup is all of it: table and operations, stream, relay, network, queue.
type setup struct {
	t       *testing.T
	table   string
	engine  *idem.Engine
	pool    *runtime.Pool
	batches *batches
	queue   queuetest.Queue
	want    []string // ids published, in order
}

var place = idem.Operation{Name: "place", Repeat: idem.Repeatable}

func newSetup(t *testing.T, fifo bool, env ...string) *setup {
	endpoint := dynamotest.Endpoint(t)
	r := &setup{t: t, table: rig.StreamTable(t), queue: queuetest.New(t, queuetest.Spec{FIFO: fifo}),
		batches: &batches{sent: map[string]int{}}}
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: endpoint})
	require.NoError(t, err)
	// How fast the table answers is not what is tested.
	r.engine, err = idem.New(rig.Store(t, client, r.table),
		&idem.Options{ClaimBudget: 5 * time.Minute, FinishBudget: 5 * time.Minute})
	require.NoError(t, err)
	network := faultnet.New()
	network.Set(func(*faultnet.Call) faultnet.Fault { return r.batches.send })
	r.pool = rig.Relay(t, r.table, endpoint, network.Serve(t, queuetest.Endpoint(t)),
		map[string]string{"orders": r.queue.URL}, env...)
	return r
}

// publish runs an operation twice; its transaction has n messages, with the ordering key if it is not empty.
func (r *setup) publish(value, key string, n int) {
	r.t.Helper()
	k := place.Key(idem.SingleTenant, value)
	var created time.Time
	for range 2 { // the second one is a replay
		out, err := idem.Run(r.t.Context(), r.engine, k, value,
			dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, in string) (string, error) {
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
func (r *setup) poll() *streampoller.Poller { return rig.Feed(r.t, r.pool, r.table) }

// caughtUp waits until the poller is done with n messages; the limit is only there to end a broken test.
func (r *setup) caughtUp(p *streampoller.Poller, n int) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return p.Delivered() == n }, 5*time.Minute, 50*time.Millisecond)
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
	for _, it := range rig.Scan(r.t, r.table) {
		if strings.HasPrefix(rig.Text(it[schema.SK]), schema.OutboxSK) {
			list = append(list, it)
		}
	}
	return list
}

// in counts the messages by state.
func (r *setup) in(state string) (n int) {
	for _, it := range r.messages() {
		if rig.Text(it[schema.State]) == state {
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
		require.Equal(r.t, schema.OutboxDispatched, rig.Text(it[schema.State]))
		require.Contains(r.t, it, schema.ExpiresAt)
		require.NotContains(r.t, it, schema.OpenShard)
	}
}

// receive empties the queue: bodies in the order in which they came, and how often each id was sent.
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
	require.ElementsMatch(r.t, r.want, slices.Collect(maps.Keys(ids)))
}
