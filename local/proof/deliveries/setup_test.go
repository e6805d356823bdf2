package deliveries

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams/types"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
	"github.com/stretchr/testify/require"
)

const (
	// timeout of the function: short, since the lease of a killed attempt runs
	// until then; and long, since a quarter of it is all that a claim may take.
	timeout = 3 * time.Second
	// visibility of the queues: the lease of a killed attempt is over when its
	// messages are redelivered.
	visibility = 4 * time.Second
	// margin and lease as the function has them.
	margin, lease = 250 * time.Millisecond, time.Second
)

func TestMain(m *testing.M) {
	if !rig.Long() {
		testmain.Parallel(8) // they wait for time-outs most of the time
	}
	testmain.Run(m)
}

// setup is the function, its two tables, what lies between them, and the recorder.
type setup struct {
	t                *testing.T
	pool             *runtime.Pool
	store            *dynamostore.Store
	records, effects string
	network          *faultnet.Network
	kills            *faultnet.Random
	recorder         *rig.Recorder
}

// newSetup makes one without histories: its table of records has no stream.
func newSetup(t *testing.T, fn runtime.Function, fate func(n, run int) string, env ...string) *setup {
	return newSetupOn(t, rig.Table(t), fn, fate, env...)
}

func newSetupOn(t *testing.T, records string, fn runtime.Function, fate func(n, run int) string, env ...string) *setup {
	s := &setup{t: t, network: faultnet.New(), recorder: rig.NewRecorder(t, fate), records: records,
		effects: rig.StreamTable(t)}
	s.store = rig.Store(t, dynamotest.Client(t), s.records)
	fn.Path = testmain.Program(t, "./internal/orders")
	if fn.Timeout == 0 {
		fn.Timeout = timeout
	}
	fn.Env = append([]string{
		"ORDERS_TABLE=" + s.effects, "ORDERS_RECORDER=" + s.recorder.URL, "ORDERS_SOURCE=sqs",
	}, env...)
	s.pool = rig.Start(t, s.records, s.network.Serve(t, dynamotest.Endpoint(t)), fn, nil)
	return s
}

// killOneIn has one call in so many kill its instance.
func (s *setup) killOneIn(odds int) {
	s.kills = faultnet.NewRandom(1, faultnet.Caller(s.pool), func(string) (float64, []string) {
		return 100 / float64(odds), []string{faultnet.KilledBefore, faultnet.KilledAfter, faultnet.KilledWith}
	})
	s.network.Set(s.kills.Rule)
}

func fulfil(repeat idem.Repeat) idem.Operation { return idem.Operation{Name: "fulfil", Repeat: repeat} }

// value is what a message's key is made of.
func value(n int) string { return fmt.Sprint("order-", n) }

func recordID(n int) string { return fulfil(idem.NotRepeatable).Key(idem.SingleTenant, value(n)).ID() }

func body(n int, group string) string { return fmt.Sprintf(`{"n":%d,"group":%q}`, n, group) }

// changes are all changes of a table, in the order of its stream. DynamoDB Local
// has one open shard of a new table, which orders all of them.
func (s *setup) changes(table string) (all []types.StreamRecord) {
	ctx := s.t.Context()
	client, arn := rig.Streams(s.t, table)
	stream, err := client.DescribeStream(ctx, &dynamodbstreams.DescribeStreamInput{StreamArn: &arn})
	require.NoError(s.t, err)
	require.Len(s.t, stream.StreamDescription.Shards, 1)
	at, err := client.GetShardIterator(ctx, &dynamodbstreams.GetShardIteratorInput{
		StreamArn: &arn, ShardId: stream.StreamDescription.Shards[0].ShardId,
		ShardIteratorType: types.ShardIteratorTypeTrimHorizon,
	})
	require.NoError(s.t, err)
	for next := at.ShardIterator; ; {
		got, err := client.GetRecords(ctx, &dynamodbstreams.GetRecordsInput{ShardIterator: next})
		require.NoError(s.t, err)
		if len(got.Records) == 0 {
			return all
		}
		for _, r := range got.Records {
			all = append(all, *r.Dynamodb)
		}
		next = got.NextShardIterator
		require.NotNil(s.t, next, "the shard is open")
	}
}

func text(item map[string]types.AttributeValue, name string) string {
	switch v := item[name].(type) {
	case *types.AttributeValueMemberS:
		return v.Value
	case *types.AttributeValueMemberN:
		return v.Value
	}
	return ""
}

// image is what a record was after one of its changes.
type image struct {
	state   idem.State
	owner   string
	attempt int
}

// histories are the images of every record, by its id.
func (s *setup) histories() map[string][]image {
	all := map[string][]image{}
	for _, c := range s.changes(s.records) {
		require.NotEmpty(s.t, c.NewImage, "no record goes")
		require.Equal(s.t, schema.RecordSK, text(c.Keys, schema.SK))
		attempt, err := strconv.Atoi(cmp.Or(text(c.NewImage, schema.Attempt), "1"))
		require.NoError(s.t, err)
		id := text(c.Keys, schema.PK)
		all[id] = append(all[id], image{idem.State(text(c.NewImage, schema.State)), text(c.NewImage, schema.Owner), attempt})
	}
	return all
}

// ended reports whether the outcome of an attempt was ever recorded: that it is
// known.
func ended(history []image, attempt int) (idem.State, bool) {
	for _, i := range history {
		if i.attempt == attempt && (i.state == idem.Completed || i.state == idem.Failed || i.state == idem.Released) {
			return i.state, true
		}
	}
	return "", false
}

// effect is one that took place.
type effect struct {
	group string
	n     int
}

// done are the effects in the order in which they took place.
func (s *setup) done() (all []effect) {
	for _, c := range s.changes(s.effects) {
		require.Empty(s.t, c.OldImage, "an effect is written once")
		number, _, _ := strings.Cut(text(c.Keys, schema.SK), "#")
		n, err := strconv.Atoi(number)
		require.NoError(s.t, err)
		all = append(all, effect{text(c.Keys, schema.PK), n})
	}
	return all
}

// requireNoneRanAgain holds every record to the promise: after an attempt whose
// outcome was unknown there was no other.
func requireNoneRanAgain(t *testing.T, id string, history []image) {
	t.Helper()
	owners := map[string]bool{}
	for i, now := range history {
		if i > 0 && now.attempt != history[i-1].attempt {
			before := history[i-1]
			require.Equal(t, before.attempt+1, now.attempt, "%s: %v", id, history)
			// A claim whose reply never came may be taken back before anybody sees it.
			require.Contains(t, []idem.State{idem.InProgress, idem.Released}, now.state, "%s: %v", id, history)
			require.Equal(t, idem.Released, before.state, "%s was claimed while it was uncertain: %v", id, history)
			require.False(t, owners[now.owner], "%s: an attempt runs again: %v", id, history)
		}
		owners[now.owner] = true
	}
}
