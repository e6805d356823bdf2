package infra

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// Repeat is the declaration of the operation behind a queue, as in package idem, with the
// name that is stored in records.
type Repeat string

// The two declarations.
const (
	// Repeatable operations run again after an attempt whose outcome is unknown.
	Repeatable Repeat = "repeatable"
	// NotRepeatable operations never run again after such an attempt: the message is
	// redelivered until the queue gives it up, and its record waits to be resolved.
	NotRepeatable Repeat = "not_repeatable"
)

// Defaults of a queue.
const (
	// DefaultMessageRetention is SQS's own. A dead letter of a standard queue is as old as its message, so
	// that it then has at least 10 of the 14 days of the dead-letter queue.
	// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-dead-letter-queues.html
	DefaultMessageRetention = 4 * day
	// DefaultMaxReceives is the least that AWS recommends for Lambda.
	DefaultMaxReceives = 5
	// DefaultBatchSize is Lambda's default.
	DefaultBatchSize = 10

	day = 24 * time.Hour
)

// QueueProps of a queue. Repeat is required.
type QueueProps struct {
	// Repeat is the declaration of the operation that the consumer runs. A consumer whose
	// code declares something else does not start.
	Repeat Repeat

	// Queue is a queue that exists, made or imported by CDK, such as awssqs.Queue_FromQueueArn. It stays
	// as it is: Visibility, MessageRetention, MaxReceives, DeadLetters and FIFO then say how it is, and the
	// first four are required. Nil creates one.
	Queue awssqs.IQueue

	// Name of the queue. Empty lets CloudFormation choose one. A FIFO queue's name
	// ends in .fifo.
	Name string
	// FIFO keeps the order within a message group.
	FIFO bool
	// PerGroup deduplicates and throttles by message group instead of by queue, for more
	// than 300 messages a second. A deduplication id then counts only within its group, as
	// it does for idemlambda.SQSDeduplicationID. For FIFO queues.
	PerGroup bool

	// Visibility is how long a received message is hidden. Zero means six times the
	// consumer's time-out, as AWS recommends, and the batch window.
	Visibility time.Duration
	// MessageRetention is how long a message is kept, 1 minute to 14 days. Zero means
	// [DefaultMessageRetention].
	MessageRetention time.Duration
	// MaxReceives after which a message goes to the dead-letter queue, 1 to 1,000.
	// Zero means [DefaultMaxReceives].
	MaxReceives int
	// DeadLetters is a dead-letter queue to use. Nil creates one that keeps messages
	// for 14 days. Let one of your own keep them for as long: its second alarm comes after six days.
	DeadLetters awssqs.IQueue

	// BatchSize is the most messages of an invocation: 1 to 10, or up to 10,000 for a
	// standard queue with a BatchWindow. Zero means [DefaultBatchSize].
	BatchSize int
	// BatchWindow is how long Lambda gathers a batch, in whole seconds up to 5
	// minutes. For standard queues.
	BatchWindow time.Duration
	// MaxConcurrency bounds the invocations at once, 2 to 1,000. Zero means only the
	// account's bound.
	MaxConcurrency int

	// EncryptionKey is a customer's KMS key. Nil means SQS's own.
	EncryptionKey awskms.IKey
}

// Queue is a queue with its dead-letter queue and the event source mapping to its
// consumer, with partial batch responses: both encrypted, and closed to those who
// do not use TLS. A dead-letter queue that is created stays when its stack is deleted. It is an SQS queue
// of CDK's. Of a queue that exists only the mapping is made, and CDK's own functions take its field Queue.
type Queue struct {
	awssqs.Queue
	// DeadLetters is the dead-letter queue.
	DeadLetters awssqs.IQueue
	// Mapping is the event source mapping to the consumer.
	Mapping awslambda.EventSourceMapping

	id         string
	consumer   awslambda.Function
	key        awskms.IKey
	visibility time.Duration
	waits      time.Duration // how long accepted work may wait for this queue; zero if it brings none
	fed        bool          // a function may send
}

// consumerSource is the id of the mapping below its function. A function has one queue,
// because its environment describes one.
const consumerSource = "QueueSource"

// NewQueue returns a queue whose messages the consumer gets. The consumer is a [Function] or
// any other Lambda function of the stack. NewQueue describes the queue in its environment,
// for the library's checks at start-up, and allows it to receive from this queue and to
// delete messages. A consumer of a queue that exists must not have another mapping to it.
func NewQueue(scope constructs.Construct, id string, consumer awslambda.Function, props *QueueProps) *Queue {
	p := valueOf(props)
	timeout := timeoutOf(consumer)
	found := p.setDefaults(timeout)
	q := &Queue{id: id, consumer: consumer, key: p.EncryptionKey, visibility: p.Visibility, DeadLetters: p.DeadLetters}
	if q.DeadLetters == nil {
		q.DeadLetters = p.kept(scope, id+"DeadLetters")
	}
	if p.Queue != nil {
		jsii.UnsafeCast(p.Queue, &q.Queue)
	} else {
		in := p.queue(p.Name)
		in.VisibilityTimeout = duration(p.Visibility)
		in.RetentionPeriod = duration(p.MessageRetention)
		in.DeadLetterQueue = &awssqs.DeadLetterQueue{Queue: q.DeadLetters, MaxReceiveCount: jsii.Number(p.MaxReceives)}
		awssqs.NewQueue_Override(q, scope, &id, in)
	}
	found.refuse(q.Queue)
	p.advise(q.Queue, timeout)
	if consumer.Node().TryFindChild(jsii.String(consumerSource)) != nil {
		refuse(q.Queue, "its consumer %s has another queue already, and a function's environment describes one: give "+
			"each queue a function", *consumer.Node().Path())
		return q
	}
	if f, ok := consumer.(*Function); ok && f.reserved > 0 && (p.MaxConcurrency == 0 || p.MaxConcurrency > f.reserved) {
		refuse(q.Queue, "the ReservedConcurrency of its consumer is %d, and messages that Lambda receives beyond it spend "+
			"receives without an attempt, until they are dead letters: set MaxConcurrency to at most that, from 2 on",
			f.reserved)
	}
	q.feed(consumer, &p)
	return q
}

func (p *QueueProps) queue(name string) *awssqs.QueueProps {
	in := &awssqs.QueueProps{QueueName: optional(name), EnforceSSL: jsii.Bool(true),
		Encryption: awssqs.QueueEncryption_SQS_MANAGED}
	if p.EncryptionKey != nil {
		in.Encryption, in.EncryptionMasterKey = awssqs.QueueEncryption_KMS, p.EncryptionKey
	}
	if p.FIFO {
		in.Fifo = jsii.Bool(true)
	}
	if p.FIFO && p.PerGroup {
		in.DeduplicationScope = awssqs.DeduplicationScope_MESSAGE_GROUP
		in.FifoThroughputLimit = awssqs.FifoThroughputLimit_PER_MESSAGE_GROUP_ID
	}
	return in
}

// kept returns a queue for what is left to operators. It keeps messages for the longest possible time, and stays
// when its stack is deleted.
func (p *QueueProps) kept(scope constructs.Construct, id string) awssqs.Queue {
	in := p.queue("")
	in.RetentionPeriod = duration(maxMessageRetention)
	// A creation that fails leaves none behind.
	in.RemovalPolicy = awscdk.RemovalPolicy_RETAIN_ON_UPDATE_OR_DELETE
	return awssqs.NewQueue(scope, &id, in)
}

// failureQueue is for what a function could not handle.
func failureQueue(scope constructs.Construct, id string, key awskms.IKey) awssqs.Queue {
	return (&QueueProps{EncryptionKey: key}).kept(scope, id)
}

func (q *Queue) feed(consumer awslambda.Function, p *QueueProps) {
	in := &awslambda.EventSourceMappingProps{
		Target: consumer, EventSourceArn: q.QueueArn(),
		BatchSize: jsii.Number(p.BatchSize), MaxConcurrency: positive(p.MaxConcurrency),
		ReportBatchItemFailures: jsii.Bool(true),
	}
	if p.BatchWindow > 0 {
		in.MaxBatchingWindow = duration(p.BatchWindow)
	}
	q.Mapping = awslambda.NewEventSourceMapping(consumer, jsii.String(consumerSource), in)
	// Lambda refuses the mapping until the role may receive.
	// https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
	allow(consumer, nil, []string{*q.QueueArn()}, "sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes").
		ApplyBefore(q.Mapping)
	if q.key != nil {
		allow(consumer, nil, []string{*q.key.KeyArn()}, "kms:Decrypt").ApplyBefore(q.Mapping)
	}
	settings := map[string]string{
		schema.EnvQueueBatchSize:  strconv.Itoa(p.BatchSize),
		schema.EnvQueueRepeat:     string(p.Repeat),
		schema.EnvQueueRedelivery: seconds(p.redelivery()),
	}
	if timeout := consumer.Timeout(); timeout != nil {
		settings[schema.EnvFunctionTimeout] = seconds(timeoutOf(consumer))
	}
	// In order: the same stack gives the same text.
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		consumer.AddEnvironment(jsii.String(name), jsii.String(settings[name]), nil)
	}
}

// GrantSend allows only sending to the queue.
func (q *Queue) GrantSend(to awsiam.IGrantable) {
	q.fed = true
	allow(to, nil, []string{*q.QueueArn()}, "sqs:SendMessage")
	allowKey(q.key, to)
}

// GrantHideDuplicates allows the consumer to hide a concurrent duplicate until the lease of
// the running attempt is over, as lambda/sqsvisibility does.
func (q *Queue) GrantHideDuplicates(to awsiam.IGrantable) {
	allow(to, nil, []string{*q.QueueArn()}, "sqs:ChangeMessageVisibility", "sqs:GetQueueUrl")
}

// lambdaTimeout is Lambda's default time-out.
const lambdaTimeout = 3 * time.Second

func timeoutOf(f awslambda.Function) time.Duration {
	if f.Timeout() == nil {
		return lambdaTimeout
	}
	return time.Duration(*f.Timeout().ToSeconds(nil)) * time.Second
}
