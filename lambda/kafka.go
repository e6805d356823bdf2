package idemlambda

import (
	"cmp"
	"context"
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
)

// KafkaRetention is the default retention of an operation behind a topic: the seven days
// for which Kafka keeps records by default, and one more. Lambda retries for as long as
// the topic keeps a record: set a longer retention than your topic's.
const KafkaRetention = 8 * 24 * time.Hour

// DefaultKafkaConcurrency is how many partitions of a batch run concurrently.
const DefaultKafkaConcurrency = 10

// KafkaOptions of a topic's handler. Zero Concurrency means [DefaultKafkaConcurrency].
type KafkaOptions struct {
	// Options as for the other sources. Records of a partition run one after the
	// other, partitions concurrently.
	Options[events.KafkaRecord]
	// ReportBatchItemFailures says that the event source mapping has that response
	// type, which needs provisioned mode. The response then names the first record of
	// each partition to deliver again. Without it the handler returns an error if a record
	// has to be redelivered, and the whole batch is delivered again. Set it only if the
	// mapping has it: otherwise Lambda takes every response for success.
	ReportBatchItemFailures bool
}

// KafkaHandler is a Lambda handler of a topic's batches, for lambda.Start.
type KafkaHandler func(ctx context.Context, event events.KafkaEvent) (KafkaEventResponse, error)

// KafkaEventResponse names what Lambda must deliver again
// (https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html).
type KafkaEventResponse struct {
	BatchItemFailures []KafkaBatchItemFailure `json:"batchItemFailures"`
}

// KafkaBatchItemFailure is the record from which on a partition is delivered again.
type KafkaBatchItemFailure struct {
	ItemIdentifier KafkaItemIdentifier `json:"itemIdentifier"`
}

// KafkaItemIdentifier is a place in a partition, which is named <topic>-<number>.
type KafkaItemIdentifier struct {
	Partition string `json:"partition"`
	Offset    int64  `json:"offset"`
}

// Kafka turns a handler of one record into an idempotent handler of the batches of a
// topic, of Amazon MSK or a cluster of your own.
//
// Lambda delivers each record at least once. It delivers a batch with an error again until
// the batch succeeds, unless retries or age are limited; a mapping with an on-failure
// destination and no limit retries 10 times
// (https://docs.aws.amazon.com/lambda/latest/dg/kafka-retry-configurations.html). A
// producer without idempotence of its own that retries writes two records: if that
// matters, take the key from a header or from the value with [KafkaHeader] or
// [KafkaPointer]. Each partition runs in order, and none of its records runs after one
// that is redelivered.
//
// A nil key is the cluster, the topic, the partition, the offset and the record's
// timestamp. The timestamp is the same in every delivery, whether the producer or the
// broker sets it (the topic's message.timestamp.type, CreateTime or LogAppendTime,
// https://kafka.apache.org/documentation/#topicconfigs_message.timestamp.type). It is
// needed because an offset can occur again: in a topic that was deleted and created again,
// and in a log that an unclean leader election has cut. If a producer sets the same time
// in two such records, they count as one. The mapping's list of brokers identifies a
// cluster of your own: if you change the list, redelivered records run again.
//
// In is decoded from the value as [SQS] decodes a body, and a tombstone as JSON null. The
// fingerprint is that of the value; [KafkaRecordOf] returns the whole record. The
// retention is [KafkaRetention] if the operation has none. Mistakes in the set-up panic
// with a [*idem.ConfigError].
func Kafka[In any](engine *idem.Engine, op idem.Operation, key RecordKeyFunc[events.KafkaRecord], o *KafkaOptions,
	fn func(context.Context, In) error) KafkaHandler {
	o = cmp.Or(o, &KafkaOptions{})
	opts := o.Options
	opts.Concurrency = cmp.Or(opts.Concurrency, DefaultKafkaConcurrency)
	s := newSource(source[events.KafkaRecord]{
		what: "idemlambda.Kafka", noun: "record", engine: engine,
		key: keyOr(key, kafkaOffset), op: withRetention(op, KafkaRetention),
		window: eventWindow("a topic", topicWindow),
		name:   func(r *events.KafkaRecord) string { return kafkaPartition(r) + "@" + strconv.FormatInt(r.Offset, 10) },
		lane:   func(r *events.KafkaRecord) (string, bool) { return kafkaPartition(r), true },
		opts:   opts,
	}, func(r *events.KafkaRecord) ([]byte, error) { return kafkaBody(r, isText[In]()) }, fn)
	if !o.ReportBatchItemFailures {
		s.redeliverFrom = redeliverAll
	}
	return func(ctx context.Context, event events.KafkaEvent) (KafkaEventResponse, error) {
		var records []events.KafkaRecord
		for _, partition := range slices.Sorted(maps.Keys(event.Records)) {
			records = append(records, event.Records[partition]...)
		}
		ds := s.deliver(context.WithValue(ctx, kafkaClusterKey{}, kafkaCluster(&event)), records)
		res := KafkaEventResponse{BatchItemFailures: []KafkaBatchItemFailure{}}
		if !o.ReportBatchItemFailures {
			return res, wholeEvent(ds)
		}
		named := map[string]bool{}
		for i := range ds {
			r := ds[i].out.Event
			if p := kafkaPartition(r); !ds[i].out.Reason.Acknowledges() && !named[p] {
				named[p] = true
				res.BatchItemFailures = append(res.BatchItemFailures, KafkaBatchItemFailure{KafkaItemIdentifier{p, r.Offset}})
			}
		}
		return res, nil
	}
}

func kafkaPartition(r *events.KafkaRecord) string {
	return r.Topic + "-" + strconv.FormatInt(r.Partition, 10)
}

// kafkaBody is the record's value. A tombstone has none.
func kafkaBody(r *events.KafkaRecord, text bool) ([]byte, error) {
	body, err := base64.StdEncoding.DecodeString(r.Value)
	if err != nil {
		return nil, fmt.Errorf("idemlambda: the record's value is not Base64: %w", err)
	}
	if len(body) == 0 && !text {
		return []byte("null"), nil
	}
	return body, nil
}

type kafkaClusterKey struct{}

// kafkaCluster names the cluster, which records do not, by its ARN or by its sorted
// brokers.
func kafkaCluster(e *events.KafkaEvent) string {
	if e.EventSourceARN != "" {
		return e.EventSourceARN
	}
	var brokers []string
	for broker := range strings.SplitSeq(e.BootstrapServers, ",") {
		brokers = append(brokers, strings.TrimSpace(broker))
	}
	slices.Sort(brokers)
	return strings.Join(brokers, ",")
}

func kafkaOffset(ctx context.Context, r *events.KafkaRecord) (tenant, value string, err error) {
	cluster, _ := ctx.Value(kafkaClusterKey{}).(string)
	return parts("record", [2]string{"cluster", cluster}, [2]string{"topic", r.Topic},
		[2]string{"partition", strconv.FormatInt(r.Partition, 10)}, [2]string{"offset", strconv.FormatInt(r.Offset, 10)},
		[2]string{"timestamp", strconv.FormatInt(r.Timestamp.UnixMilli(), 10)})
}

// KafkaRecordOf returns the record whose handler, key function or hook has the
// context, and false outside one.
func KafkaRecordOf(ctx context.Context) (events.KafkaRecord, bool) {
	return recordOf[events.KafkaRecord](ctx)
}

// KafkaHeader takes the key from the record's header with this name, and the tenant from
// the header tenantHeader. tenantHeader may be [idem.SingleTenant]. A header that is missing,
// empty or repeated is an error that matches [idem.ErrKeyInvalid]. An empty name panics.
func KafkaHeader(tenantHeader, name string) RecordKeyFunc[events.KafkaRecord] {
	return byNames("KafkaHeader", "header", tenantHeader, name, kafkaHeader)
}

func kafkaHeader(r *events.KafkaRecord, name string) (string, error) {
	var found []string
	for _, h := range r.Headers {
		if v, ok := h[name]; ok {
			found = append(found, string(v))
		}
	}
	if len(found) != 1 || found[0] == "" {
		return "", fmt.Errorf("%w: the record has no header %q, more than one, or an empty one", idem.ErrKeyInvalid, name)
	}
	return found[0], nil
}

// KafkaPointer takes tenant and key from the value's JSON, by the rules of [Pointer].
func KafkaPointer(tenantPointer string, values ...string) RecordKeyFunc[events.KafkaRecord] {
	return inBody("KafkaPointer", tenantPointer, values,
		func(r *events.KafkaRecord) ([]byte, error) { return kafkaBody(r, false) })
}
