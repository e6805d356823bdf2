package idemlambda

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// stream makes a batch of records; partition key and deed of each.
func stream(records ...[2]string) events.KinesisEvent {
	var e events.KinesisEvent
	for i, r := range records {
		n := strconv.Itoa(100 + i)
		body, _ := json.Marshal(order{ID: n, Do: r[1]})
		e.Records = append(e.Records, events.KinesisEventRecord{
			EventID: "shardId-000000000000:" + n, EventSourceArn: "arn:aws:kinesis:eu-central-1:111122223333:stream/orders",
			Kinesis: events.KinesisRecord{Data: body, PartitionKey: r[0], SequenceNumber: n},
		})
	}
	return e
}

// ran collects what ran, in order.
type ran struct {
	mu  sync.Mutex
	ids []string
}

func (r *ran) work(ctx context.Context, o order) error {
	r.mu.Lock()
	r.ids = append(r.ids, o.ID)
	r.mu.Unlock()
	return work(ctx, o)
}

func (r *ran) take() []string {
	ids := r.ids
	r.ids = nil
	return ids
}

// Whatever happens to a batch's records, the response names the first that is
// redelivered, and delivering from there on until nothing does runs every record to its
// end, each in its partition's order. A failure is forwarded when it is acknowledged, and not
// each time that it is delivered again for another record's sake.
func TestStreamModel(t *testing.T) {
	for seed := range uint64(200) {
		g := rand.New(rand.NewPCG(seed, 1))
		deeds := make([][2]string, g.IntN(12))
		for i := range deeds {
			deeds[i] = [2]string{string(rune('a' + g.IntN(3))),
				[]string{"", "", "permanent", "fail", "not executed", "panic"}[g.IntN(6)]}
		}
		e := newEngine(t, memory())
		done, forwarded := map[string]int{}, map[string]int{}
		last := map[string]string{}
		var mu sync.Mutex
		left := stream(deeds...)
		for round := 0; len(left.Records) > 0; round++ {
			require.Less(t, round, 20)
			o := &Options[events.KinesisEventRecord]{Concurrency: 1 + g.IntN(3)}
			o.OnFailed = func(_ context.Context, d Delivery[events.KinesisEventRecord]) error {
				mu.Lock()
				defer mu.Unlock()
				forwarded[d.Event.Kinesis.SequenceNumber]++
				return nil
			}
			h := Kinesis(e, fulfil, nil, o, func(ctx context.Context, o order) error {
				mu.Lock()
				defer mu.Unlock()
				r, _ := KinesisRecordOf(ctx)
				if o.Do != "" && o.Do != "permanent" && g.IntN(2) == 0 {
					return work(ctx, o)
				}
				require.Less(t, last[r.Kinesis.PartitionKey], o.ID, "order of a partition key")
				last[r.Kinesis.PartitionKey] = o.ID
				done[o.ID]++
				if o.Do == "permanent" {
					return work(ctx, o)
				}
				return nil
			})
			res, err := h(t.Context(), left)
			require.NoError(t, err)
			at := len(left.Records)
			if len(res.BatchItemFailures) > 0 {
				require.Len(t, res.BatchItemFailures, 1)
				at = slices.IndexFunc(left.Records, func(r events.KinesisEventRecord) bool {
					return r.Kinesis.SequenceNumber == res.BatchItemFailures[0].ItemIdentifier
				})
				require.GreaterOrEqual(t, at, 0)
			}
			left.Records = left.Records[at:]
		}
		require.Len(t, done, len(deeds))
		for i, d := range deeds {
			id := fmt.Sprint(100 + i)
			require.Equal(t, 1, done[id], id)
			require.Equal(t, map[bool]int{true: 1}[d[1] == "permanent"], forwarded[id], id)
		}
	}
}

func kafkaEvent(records ...[3]string) events.KafkaEvent {
	e := events.KafkaEvent{BootstrapServers: "b-1:9098", Records: map[string][]events.KafkaRecord{}}
	for i, r := range records {
		n, _ := strconv.ParseInt(r[0], 10, 64)
		value := base64.StdEncoding.EncodeToString(fmt.Appendf(nil, `{"id":"%d","do":%q}`, i, r[1]))
		if r[2] != "" {
			value = r[2]
		}
		p := "orders-" + r[0]
		e.Records[p] = append(e.Records[p], events.KafkaRecord{Topic: "orders", Partition: n, Offset: int64(i), Value: value})
	}
	return e
}

func TestKafkaPartitions(t *testing.T) {
	event := kafkaEvent([3]string{"0"}, [3]string{"0", "fail"}, [3]string{"0"}, [3]string{"1"},
		[3]string{"2", "", "no base64!"}, [3]string{"2"})
	r, o := &ran{}, &KafkaOptions{ReportBatchItemFailures: true}
	res, err := Kafka(newEngine(t, memory()), fulfil, nil, o, r.work)(t.Context(), event)
	require.NoError(t, err)
	require.ElementsMatch(t, []string{"0", "1", "3"}, r.take())
	b, err := json.Marshal(res)
	require.NoError(t, err)
	require.JSONEq(t, `{"batchItemFailures":[{"itemIdentifier":{"partition":"orders-0","offset":1}},`+
		`{"itemIdentifier":{"partition":"orders-2","offset":4}}]}`, string(b))

	// Without the response type, Lambda would take the response for success.
	o.ReportBatchItemFailures = false
	res, err = Kafka(newEngine(t, memory()), fulfil, nil, o, r.work)(t.Context(), event)
	require.Same(t, errDown, err)
	require.Empty(t, res.BatchItemFailures)
}

// A tombstone has no value; two of one key are two records.
func TestKafkaTombstones(t *testing.T) {
	event := kafkaEvent([3]string{"0"}, [3]string{"0"})
	for i := range event.Records["orders-0"] {
		event.Records["orders-0"][i].Value = ""
	}
	var got []string
	_, err := Kafka(newEngine(t, memory()), fulfil, nil, nil, func(_ context.Context, in *order) error {
		got = append(got, fmt.Sprint(in))
		return nil
	})(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, []string{"<nil>", "<nil>"}, got)
	_, err = Kafka(newEngine(t, memory()), fulfil, nil, nil, func(_ context.Context, in string) error {
		require.Empty(t, in)
		return nil
	})(t.Context(), event)
	require.NoError(t, err)
}

// The same change of another item may run in parallel, the same item's never.
func TestDynamoDBStreamLanes(t *testing.T) {
	var event events.DynamoDBEvent
	for i := range 6 {
		event.Records = append(event.Records, events.DynamoDBEventRecord{
			EventID: strconv.Itoa(i), EventSourceArn: "arn:aws:dynamodb:eu-central-1:111122223333:table/t/stream/s",
			Change: events.DynamoDBStreamRecord{
				SequenceNumber: strconv.Itoa(100 + i),
				Keys:           map[string]events.DynamoDBAttributeValue{"pk": events.NewStringAttribute(strconv.Itoa(i % 2))},
			},
		})
	}
	var mu sync.Mutex
	var ids []string
	res, err := DynamoDBStream(newEngine(t, memory()), fulfil, nil, &Options[events.DynamoDBEventRecord]{Concurrency: 2},
		func(_ context.Context, r events.DynamoDBEventRecord) error {
			mu.Lock()
			defer mu.Unlock()
			ids = append(ids, r.EventID)
			if r.EventID == "2" {
				return errDown
			}
			return nil
		})(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, []events.DynamoDBBatchItemFailure{{ItemIdentifier: "102"}}, res.BatchItemFailures)
	require.ElementsMatch(t, []string{"0", "2", "1", "3", "5"}, ids)
}

func ExampleSNS() {
	engine, err := idem.New(memory(), nil)
	if err != nil {
		panic(err)
	}
	handler := SNS(engine, fulfil, nil, nil, func(ctx context.Context, o order) error {
		fmt.Println("fulfilling", o.ID)
		return nil
	})
	event := events.SNSEvent{Records: []events.SNSEventRecord{{SNS: events.SNSEntity{
		TopicArn: "arn:aws:sns:eu-central-1:111122223333:orders", MessageID: "95df01b4", Message: `{"id":"order-1042"}`,
	}}}}
	fmt.Println(handler(context.Background(), event))
	fmt.Println(handler(context.Background(), event)) // delivered twice
	// Output:
	// fulfilling order-1042
	// <nil>
	// <nil>
}

// A batch of a tumbling window wants its state back, to which a replayed record can add
// nothing.
func TestTimeWindowsAreRefused(t *testing.T) {
	const window = `"window":{"start":"2026-11-21T12:00:00Z","end":"2026-11-21T12:02:00Z"},"state":{"sum":3},` +
		`"isFinalInvokeForWindow":false`
	var seen ran
	for name, h := range map[string]any{
		"kinesis": Kinesis(newEngine(t, memory()), fulfil, nil, nil, seen.work),
		"dynamodb-stream": DynamoDBStream(newEngine(t, memory()), fulfil, nil, nil,
			func(ctx context.Context, r events.DynamoDBEventRecord) error {
				return seen.work(ctx, order{ID: r.EventID})
			}),
	} {
		plain := string(sourceSample(t, name))
		_, err := lambda.NewHandler(h).Invoke(t.Context(), []byte(strings.Replace(plain, "{", "{"+window+",", 1)))
		require.ErrorIs(t, err, ErrTimeWindow, name)
		require.Empty(t, seen.take(), name)
		out, err := lambda.NewHandler(h).Invoke(t.Context(), []byte(plain))
		require.NoError(t, err, name)
		require.JSONEq(t, `{"batchItemFailures":[]}`, string(out), name)
		require.NotEmpty(t, seen.take(), name)
		_, err = lambda.NewHandler(h).Invoke(t.Context(), []byte(`{"Records":1}`))
		require.Error(t, err, name)
	}
}

// A source that delivers an event as a whole acknowledges nothing as long as one record is
// redelivered: until then no failure is forwarded.
func TestOnFailedWaitsForTheWholeEvent(t *testing.T) {
	var forwarded []string
	down := true
	o := &KafkaOptions{}
	o.Concurrency = 1
	o.OnFailed = func(_ context.Context, d Delivery[events.KafkaRecord]) error {
		forwarded = append(forwarded, d.Event.Topic+strconv.FormatInt(d.Event.Partition, 10))
		return nil
	}
	h := Kafka(newEngine(t, memory()), fulfil, nil, o, func(ctx context.Context, in order) error {
		if in.Do == "fail" && !down {
			return nil
		}
		return work(ctx, in)
	})
	event := kafkaEvent([3]string{"0", "permanent"}, [3]string{"1", "fail"}, [3]string{"2", "permanent"})
	for range 5 {
		_, err := h(t.Context(), event)
		require.Same(t, errDown, err)
		require.Empty(t, forwarded)
	}
	down = false
	_, err := h(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, []string{"orders0", "orders2"}, forwarded)
}

// What cannot be forwarded is redelivered, with all that depends on it.
func TestOnFailedFailsLast(t *testing.T) {
	full := errors.New("the queue of failures is full")
	reasons := map[string]Reason{}
	h := Kinesis(newEngine(t, memory()), transfer, nil, &Options[events.KinesisEventRecord]{Concurrency: 3,
		OnFailed: func(_ context.Context, d Delivery[events.KinesisEventRecord]) error {
			if d.Event.EventID == "1" {
				return full
			}
			return nil
		},
		OnOutcome: func(_ context.Context, d Delivery[events.KinesisEventRecord]) { reasons[d.Event.EventID] = d.Reason },
	}, func(context.Context, string) error { return idem.Permanent(errors.New("no such account")) })
	var event events.KinesisEvent
	for i := range 3 {
		event.Records = append(event.Records, events.KinesisEventRecord{EventID: fmt.Sprint(i), EventSourceArn: "s",
			Kinesis: events.KinesisRecord{PartitionKey: fmt.Sprint(i), SequenceNumber: fmt.Sprint(i)}})
	}
	res, err := h(t.Context(), event)
	require.NoError(t, err)
	require.Equal(t, []events.KinesisBatchItemFailure{{ItemIdentifier: "1"}}, res.BatchItemFailures)
	require.Equal(t, map[string]Reason{"0": ReasonFailed, "1": ReasonFailureNotForwarded, "2": ReasonFailed}, reasons)
}

// Brokers have no order of their own.
func TestKafkaClusterByItsBrokers(t *testing.T) {
	runs := 0
	h := Kafka(newEngine(t, memory()), transfer, nil, nil, func(context.Context, string) error { runs++; return nil })
	for _, brokers := range []string{"b:9092,a:9092", "a:9092,b:9092", " a:9092, b:9092"} {
		event := events.KafkaEvent{BootstrapServers: brokers,
			Records: map[string][]events.KafkaRecord{"t-0": {{Topic: "t", Offset: 7}}}}
		_, err := h(t.Context(), event)
		require.NoError(t, err)
	}
	require.Equal(t, 1, runs)
}
