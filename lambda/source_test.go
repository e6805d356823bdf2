package idemlambda

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambdacontext"
	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/stretchr/testify/require"
)

// deed is what a source's handler does in these tests, and how often.
type deed struct {
	mu   sync.Mutex // some sources' records run concurrently
	runs int
	err  error
}

func (d *deed) done() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.runs++
	return d.err
}

func (d *deed) json(context.Context, json.RawMessage) error { return d.done() }

func (d *deed) s3(context.Context, events.S3EventRecord) error { return d.done() }

func (d *deed) change(context.Context, events.DynamoDBEventRecord) error { return d.done() }

func (d *deed) answer(context.Context, json.RawMessage) (string, error) { return "done", d.done() }

// sourceEntry gives an event of a source to its handler, as aws-lambda-go does.
type sourceEntry func(ctx context.Context, payload []byte) (any, error)

func through[E, R any](h func(context.Context, E) (R, error)) sourceEntry {
	return func(ctx context.Context, payload []byte) (any, error) {
		var e E
		if err := json.Unmarshal(payload, &e); err != nil {
			return nil, err
		}
		return h(ctx, e)
	}
}

func without[E any](h func(context.Context, E) error) func(context.Context, E) (any, error) {
	return func(ctx context.Context, e E) (any, error) { return nil, h(ctx, e) }
}

// sourceTest is a source of this package: its handler with its default key, and what it declares.
type sourceTest struct {
	constructor       string
	window, retention time.Duration
	open              func(*idem.Engine, idem.Operation, *deed) sourceEntry
}

// sources are the sources by their sample.
var sources = map[string]sourceTest{
	"sns": {"SNS", 23*day + 6*time.Hour, SNSRetention, func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry {
		return through(without(SNS(e, op, nil, nil, d.json)))
	}},
	"eventbridge-custom":    onBus,
	"eventbridge-scheduled": onBus,
	"s3": {"S3", 6 * time.Hour, S3Retention, func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry {
		return through(without(S3(e, op, nil, nil, d.s3)))
	}},
	"kinesis": {"Kinesis", day, KinesisRetention, func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry {
		return through(Kinesis(e, op, nil, nil, d.json))
	}},
	"dynamodb-stream": {"DynamoDBStream", day, DynamoDBStreamRetention,
		func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry {
			return through(DynamoDBStream(e, op, nil, nil, d.change))
		}},
	"kafka-msk": {"Kafka", 7 * day, KafkaRetention, func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry {
		return through(Kafka(e, op, nil, &KafkaOptions{ReportBatchItemFailures: true}, d.json))
	}},
	"async-direct": {"Async", 6 * time.Hour, AsyncRetention,
		func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry { return raw(Async(e, op, nil, d.answer)) }},
	"stepfunctions-task": {"StepFunctions", 14 * day, StepFunctionsRetention,
		func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry {
			return raw(StepFunctions(e, op, nil, d.answer))
		}},
}

var onBus = sourceTest{"EventBridge", 30 * time.Hour, EventBridgeRetention,
	func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry {
		return through(without(EventBridge(e, op, nil, nil, d.json)))
	}}

func raw(h Handler) sourceEntry {
	return func(ctx context.Context, payload []byte) (any, error) { return h(ctx, payload) }
}

func invocation(t *testing.T) context.Context {
	return lambdacontext.NewContext(t.Context(),
		&lambdacontext.LambdaContext{AwsRequestID: "8476a536-e9f4-11e8-9739-2dfe598c3fcd"})
}

func sourceSample(t testing.TB, name string) []byte {
	t.Helper()
	b, err := samples.Get(name)
	require.NoError(t, err)
	return b
}

// came reports whether the source would deliver something again.
func came(t *testing.T, res any, err error) bool {
	t.Helper()
	if err != nil {
		return true
	}
	b, err := json.Marshal(res)
	require.NoError(t, err)
	return strings.Contains(string(b), "itemIdentifier")
}

// Every source: its default keys, that each record runs once however often it is delivered, and what is redelivered.
func TestSources(t *testing.T) {
	for name, source := range sources {
		t.Run(name, func(t *testing.T) {
			payload := sourceSample(t, name)
			store, d := memory(), &deed{}
			h := source.open(newEngine(t, store), fulfil, d)
			res, err := h(invocation(t), payload)
			require.NoError(t, err)
			require.False(t, came(t, res, err))
			records := d.runs
			require.Positive(t, records)
			var keys []string
			for _, rec := range store.Records() {
				keys = append(keys, rec.Value)
			}
			slices.Sort(keys)
			golden(t, "sources/"+name+".json", map[string]any{"keys": keys, "response": res})
			res, err = h(invocation(t), payload)
			require.NoError(t, err)
			require.False(t, came(t, res, err))
			require.Equal(t, records, d.runs, "a second delivery runs nothing")

			for what, c := range map[string]struct {
				err   error
				op    idem.Operation
				back  bool
				again int // runs of the first record after a second delivery
			}{
				"error, repeatable":     {errDown, fulfil, true, 2},
				"error, not repeatable": {errDown, charge, true, 1},
				"not executed":          {idem.NotExecuted(errDown), charge, true, 2},
				"permanent": {idem.Permanent(errDeclined), charge, name == "async-direct" ||
					name == "stepfunctions-task", records},
			} {
				d := &deed{err: c.err}
				h := source.open(newEngine(t, memory()), c.op, d)
				res, err := h(invocation(t), payload)
				require.Equal(t, c.back, came(t, res, err), what)
				_, _ = h(invocation(t), payload)
				if name == "kafka-msk" && c.back {
					require.Equal(t, c.again*2, d.runs, "%s: the first record of two partitions", what)
					continue
				}
				require.Equal(t, c.again, d.runs, what)
			}
		})
	}
}

// What a service changes in a repeat is not taken for another request, and what tells two requests apart is.
func TestRepeatsThatDiffer(t *testing.T) {
	for _, c := range []struct {
		source, from, to string
		runs             int
	}{
		{"s3", `"eventTime": "2026`, `"eventTime": "2027`, 0},
		{"eventbridge-scheduled", "53dc4d37-cffa", "00000000-cffa", 0},
		{"stepfunctions-task", `"retryCount": 1`, `"retryCount": 2`, 0},
		{"sns", `"Signature": "`, `"Signature": "another`, 0},
		{"s3", `"sequencer": "`, `"sequencer": "1`, 1},
		{"eventbridge-scheduled", "09:30:00Z", "09:35:00Z", 1},
		{"stepfunctions-task", `"stateEnteredTime": "2026-11-21T09:26:53`, `"stateEnteredTime": "2026-11-21T09:26:54`, 1},
		{"sns", `"MessageId": "`, `"MessageId": "1`, 1},
		{"kinesis", `"eventID": "`, `"eventID": "1`, 1},
		{"dynamodb-stream", `"eventID": "`, `"eventID": "1`, 1},
		{"kafka-msk", `"offset": 1501`, `"offset": 1500`, 1},
	} {
		d := &deed{}
		h := sources[c.source].open(newEngine(t, memory()), fulfil, d)
		payload := string(sourceSample(t, c.source))
		require.Contains(t, payload, c.from, c.source)
		_, err := h(invocation(t), []byte(payload))
		require.NoError(t, err, c.source)
		before := d.runs
		_, err = h(invocation(t), []byte(strings.Replace(payload, c.from, c.to, 1)))
		require.NoError(t, err, c.source)
		require.Equal(t, c.runs, d.runs-before, "%+v", c)
	}
}

// An event without what its key is made of is refused, not shared with other events.
func TestSourcesWithoutIdentity(t *testing.T) {
	for name, payload := range map[string]string{
		"sns":                   `{"Records":[{"Sns":{"Message":"{}"}}]}`,
		"eventbridge-custom":    `{"source":"shop","detail":{}}`,
		"eventbridge-scheduled": `{"source":"aws.events","detail-type":"Scheduled Event","detail":{}}`,
		"s3":                    `{"Records":[{"s3":{"bucket":{"name":"b"},"object":{"key":"k"}}}]}`,
		"kinesis":               `{"Records":[{"kinesis":{"data":"e30=","sequenceNumber":"7"}}]}`,
		"dynamodb-stream":       `{"Records":[{"dynamodb":{"SequenceNumber":"7"}}]}`,
		"kafka-msk":             `{"records":{"t-0":[{"topic":"t","offset":7,"value":"e30="}]}}`,
		"stepfunctions-task":    `{"executionId":"e","input":{}}`,
	} {
		d := &deed{}
		res, err := sources[name].open(newEngine(t, memory()), fulfil, d)(invocation(t), []byte(payload))
		require.True(t, came(t, res, err), name)
		require.Zero(t, d.runs, name)
	}
	d := &deed{}
	_, err := sources["async-direct"].open(newEngine(t, memory()), fulfil, d)(t.Context(), []byte(`{}`))
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
	_, err = sources["stepfunctions-task"].open(newEngine(t, memory()), fulfil, d)(t.Context(),
		[]byte(`{"executionId":"e","stateName":"s","stateEnteredTime":"t"}`))
	require.ErrorContains(t, err, "has no input")
	require.Zero(t, d.runs)
}

// Several records of one event: those that are done are not run again when the others are redelivered.
func TestEventThatComesBackAsAWhole(t *testing.T) {
	d := map[string]int{}
	fail := true
	h := SNS(newEngine(t, memory()), fulfil, SNSPointer(idem.SingleTenant, "/id"),
		nil,
		func(ctx context.Context, o order) error {
			r, ok := SNSNotificationOf(ctx)
			require.True(t, ok)
			require.Equal(t, "m-"+o.ID, r.SNS.MessageID)
			d[o.ID]++
			if fail && o.ID == "b" {
				return errDown
			}
			return nil
		})
	event := events.SNSEvent{}
	for _, id := range []string{"a", "b", "c"} {
		event.Records = append(event.Records,
			events.SNSEventRecord{SNS: events.SNSEntity{MessageID: "m-" + id, Message: `{"id":"` + id + `"}`}})
	}
	require.Same(t, errDown, h(t.Context(), event))
	fail = false
	require.NoError(t, h(t.Context(), event))
	require.Equal(t, map[string]int{"a": 1, "b": 2, "c": 1}, d)
}

// Identities that their services allow are never too long for a key, and stay apart.
func TestLongIdentities(t *testing.T) {
	brokers := make([]string, 10)
	for i := range brokers {
		brokers[i] = fmt.Sprintf("b-%d.payments-production.vpce-0a1b2c3d4e5f67890-abcdefgh."+
			"vpce-svc-0123456789abcdef0.ap-southeast-2.vpce.amazonaws.com:9092", i)
	}
	cluster := context.WithValue(t.Context(), kafkaClusterKey{},
		kafkaCluster(&events.KafkaEvent{BootstrapServers: strings.Join(brokers, ",")}))
	long := strings.Repeat("/+", 1023)
	for name, value := range map[string]func(last string) (string, string, error){
		"brokers": func(last string) (string, string, error) {
			return kafkaOffset(cluster, &events.KafkaRecord{Topic: "orders" + last})
		},
		"object": func(last string) (string, string, error) {
			r := &events.S3EventRecord{EventName: "ObjectCreated:Put"}
			r.S3.Bucket.Name, r.S3.Object.Sequencer, r.S3.Object.Key = "b", "1", strings.Repeat("x", 1023)+last
			return S3ObjectVersion(t.Context(), r)
		},
		"task token": func(last string) (string, string, error) {
			return TaskToken(t.Context(), &Task{TaskToken: long + last})
		},
		"pointers": func(last string) (string, string, error) {
			return Pointer(idem.SingleTenant, "/bucket", "/key")(t.Context(),
				json.RawMessage(`{"bucket":"b","key":"`+long+last+`"}`))
		},
		"group and deduplication id": func(last string) (string, string, error) {
			return SQSDeduplicationID(idem.SingleTenant)(t.Context(), &events.SQSMessage{
				EventSourceARN: "arn:aws:sqs:eu-central-1:111122223333:" + strings.Repeat("q", 75) + ".fifo",
				Attributes: map[string]string{sqsGroup: strings.Repeat("/", 127) + last,
					"MessageDeduplicationId": strings.Repeat("+", 128)},
			})
		},
	} {
		_, one, err := value("a")
		require.NoError(t, err, name)
		require.NoError(t, fulfil.Key(idem.SingleTenant, one).Err(), name)
		_, other, err := value("b")
		require.NoError(t, err, name)
		require.NotEqual(t, one, other, name)
	}
}

// A topic that is made again, or cut by an unclean election of its leader, counts from an old offset again.
func TestKafkaOffsetsThatComeAgain(t *testing.T) {
	var seen []string
	h := Kafka(newEngine(t, memory()), fulfil, nil, &KafkaOptions{Options: Options[events.KafkaRecord]{}},
		func(_ context.Context, in string) error {
			seen = append(seen, in)
			return nil
		})
	deliver := func(at time.Time, value string) {
		_, err := h(t.Context(), events.KafkaEvent{EventSourceARN: "arn:aws:kafka:us-east-1:111122223333:cluster/c/1",
			Records: map[string][]events.KafkaRecord{
				"orders-0": {{Topic: "orders", Offset: 7, Timestamp: events.MilliSecondsEpochTime{Time: at},
					Value: base64.StdEncoding.EncodeToString([]byte(value))}},
			}})
		require.NoError(t, err)
	}
	deliver(noon, "tick")
	deliver(noon, "tick")
	deliver(noon.Add(time.Millisecond), "tick")
	deliver(noon.Add(time.Hour), "tock")
	require.Equal(t, []string{"tick", "tick", "tock"}, seen, "the second delivery is the repeat")
}

// Iterations of a Map state enter the same state at the same time.
func TestTaskKeys(t *testing.T) {
	task := Task{ExecutionID: "e", StateName: "s", StateEnteredTime: "t", TaskToken: "token"}
	_, plain, err := TaskState(t.Context(), &task)
	require.NoError(t, err)
	zero := 0
	task.ItemIndex = &zero
	_, first, err := TaskState(t.Context(), &task)
	require.NoError(t, err)
	require.NotEqual(t, plain, first)
	_, token, err := TaskToken(t.Context(), &task)
	require.NoError(t, err)
	require.Equal(t, idem.JoinValues("token"), token)
	h := StepFunctions(newEngine(t, memory()), fulfil, TaskToken, func(ctx context.Context, in order) (string, error) {
		got, ok := TaskOf(ctx)
		require.True(t, ok)
		require.Equal(t, "token", got.TaskToken)
		return in.ID, nil
	})
	out, err := h(t.Context(), []byte(`{"taskToken":"token","input":{"id":"7"}}`))
	require.NoError(t, err)
	require.Equal(t, `"7"`, string(out))
}

// withQueue are the sources and a queue.
func withQueue() map[string]sourceTest {
	all := maps.Clone(sources)
	all["sqs-standard"] = sourceTest{"SQS", 14 * day, SQSRetention,
		func(e *idem.Engine, op idem.Operation, d *deed) sourceEntry {
			return through(SQS(e, op, byAttribute, nil, d.json))
		}}
	return all
}

func TestSourceRetention(t *testing.T) {
	for name, source := range withQueue() {
		for _, own := range []time.Duration{0, 30 * 24 * time.Hour} {
			store, op := memory(), fulfil
			op.Retention = own
			_, err := source.open(newEngine(t, store), op, &deed{})(invocation(t), sourceSample(t, name))
			require.NoError(t, err)
			require.Equal(t, cmp.Or(own, source.retention), store.Records()[0].Retention, name)
		}
	}
}

func ignore(context.Context, string) error { return nil }

// A delivery after its record has expired runs again: that is refused where it would do
// harm, and logged where it would not.
func TestRetentionWithinTheSourcesDeliveries(t *testing.T) {
	defer slog.SetDefault(slog.Default())
	for name, m := range withQueue() {
		t.Run(name, func(t *testing.T) {
			env := schema.EnvEventRedelivery
			if name == "sqs-standard" {
				env = schema.EnvQueueRedelivery
			}
			var log bytes.Buffer
			slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
			start := func(repeat idem.Repeat, keep time.Duration) func() {
				return func() {
					op := idem.Operation{Name: "close-month", Repeat: repeat, Retention: keep}
					m.open(newEngine(t, memory()), op, &deed{})
				}
			}
			requireConfigPanic(t, start(idem.NotRepeatable, m.window), m.constructor, "close-month",
				"Retention is "+m.window.String(), env)
			require.NotPanics(t, start(idem.NotRepeatable, m.window+time.Second))
			require.NotPanics(t, start(idem.NotRepeatable, 0), "the source's own retention is long enough")
			require.Empty(t, log.String())
			require.NotPanics(t, start(idem.Repeatable, m.window))
			require.Contains(t, log.String(), "level=WARN")
			require.Contains(t, log.String(), env)

			// What the stack says of the source stands above what its service documents.
			t.Setenv(env, "3600")
			require.NotPanics(t, start(idem.NotRepeatable, time.Hour+time.Second))
			requireConfigPanic(t, start(idem.NotRepeatable, time.Hour), env)
			t.Setenv(env, "an hour")
			requireConfigPanic(t, start(idem.Repeatable, 0), env, `"an hour"`, "seconds")
		})
	}
}
