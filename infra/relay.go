package infra

import (
	"cmp"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/idem/schema"
)

// RelayPackage is the ready relay.
const RelayPackage = "github.com/idem-go/idempotency/lambda/functions/relay"

// Defaults of a relay.
const (
	// DefaultRelayTimeout is for a batch whose destinations are slow.
	DefaultRelayTimeout = time.Minute
	// relaySweep is the time between two sweeps for messages that the stream missed.
	relaySweep = 5 * time.Minute
	// RelayGrace is how old a message is when a sweep sends it: longer than the stream usually
	// takes, and longer than an invocation.
	RelayGrace = 2 * time.Minute

	// sentLate is when a message that the stream has missed is sent at the latest, if its
	// destination takes it.
	sentLate = RelayGrace + relaySweep

	// streamBatch is the most messages of an invocation.
	streamBatch = 100
	// streamRetries is how often a part of a batch is tried before it goes to the failure
	// queue. The sweep also sends its messages.
	streamRetries = 10
)

// RelayProps of a relay. At least one destination is required.
type RelayProps struct {
	// Function of the relay. An empty Package means [RelayPackage], a zero Timeout
	// [DefaultRelayTimeout]; at most [RelayGrace].
	Function FunctionProps

	// Queues, Topics and Buses are the targets of messages, by the name of the destination
	// in the messages. A name is in only one of them.
	Queues map[string]awssqs.IQueue
	Topics map[string]awssns.ITopic
	Buses  map[string]awsevents.IEventBus
	// Source of the relay's events on EventBridge. Required with Buses.
	Source string

	// MaxTries is how many tries of a message may fail until it becomes a dead letter. Zero
	// means 10, which take 45 minutes at least. An outage of a destination that lasts longer makes
	// dead letters, and what is behind them in their order is sent: set 100 for 8 hours.
	MaxTries int

	// EncryptionKey is a customer's KMS key for the failure queue. Nil means SQS's own.
	EncryptionKey awskms.IKey
}

// Relay sends the messages of the table's outbox. It is a function on the table's stream,
// which gets only new messages, and a schedule, by which it sends messages that the stream
// missed. A batch that fails is split in two, and a single message that fails ends in the
// failure queue.
type Relay struct {
	constructs.Construct
	// Function is the relay itself.
	Function *Function
	// Failures gets the stream positions of records that could not be handled.
	Failures awssqs.Queue
	// Mapping is the event source mapping from the stream to the function.
	Mapping awslambda.EventSourceMapping
}

// NewRelay returns a relay of the table's outbox.
func NewRelay(scope constructs.Construct, id string, table *Table, props *RelayProps) *Relay {
	p := valueOf(props)
	r := &Relay{}
	constructs.NewConstruct_Override(r, scope, &id)
	p.setDefaults().refuse(r)
	r.Function = NewFunction(r, "Function", &p.Function)
	if timeout := timeoutOf(r.Function); timeout > RelayGrace {
		refuse(r, "the relay's Timeout is %v: a sweep takes up messages that are %v old, and would send what an invocation "+
			"is still sending; set it to at most %v", timeout, RelayGrace, RelayGrace)
	}
	table.name(r.Function)
	if table.strong {
		refuse(r, "a relay is for messages that commit with an outcome, and a global table has no transactions for that: "+
			"leave the relay out, or keep the records in a table of one region")
	}
	r.routes(&p)
	r.Failures = failureQueue(r, "Failures", p.EncryptionKey)
	r.feed(table, &p)
	for _, q := range p.Queues {
		table.routes = append(table.routes, *q.Node().Path())
	}
	schedule(r, "Sweep", "Relay", "Has the relay look for messages that the stream missed.", r.Function, relaySweep)
	return r
}

// MetricIteratorAge is how far the relay is behind the table's stream, in
// milliseconds.
func (r *Relay) MetricIteratorAge() awscloudwatch.Metric {
	return r.Function.Metric(jsii.String("IteratorAge"), statistic("Maximum", period))
}

func (p *RelayProps) setDefaults() (found problems) {
	if p.Function.Package == "" && p.Function.Code == nil {
		p.Function.Package = RelayPackage
	}
	p.Function.Timeout = cmp.Or(p.Function.Timeout, DefaultRelayTimeout)
	if p.MaxTries < 0 {
		found.add("MaxTries is %d: use a positive number, or zero for the relay's default", p.MaxTries)
		p.MaxTries = 0
	}
	if len(p.Buses) > 0 && p.Source == "" {
		found.add("Source is empty: name the source of the relay's events on EventBridge, such as com.example.payments")
	}
	if len(p.Queues)+len(p.Topics)+len(p.Buses) == 0 {
		found.add("there is no destination: name at least one queue, topic or bus")
	}
	seen := map[string]bool{}
	names := slices.Concat(slices.Collect(maps.Keys(p.Queues)), slices.Collect(maps.Keys(p.Topics)),
		slices.Collect(maps.Keys(p.Buses)))
	slices.Sort(names)
	for _, name := range names {
		if seen[name] {
			found.add("the destination %q is there twice: a name is a queue, a topic or a bus", name)
		}
		seen[name] = true
		if !destination.MatchString(name) {
			found.add("the destination %q is not a valid name: use up to 128 letters, digits, '.', '_' and '-'", name)
		}
	}
	return found
}

// destination is a name as in package outbox.
var destination = regexp.MustCompile(`^[A-Za-z0-9._-]{1,128}$`)

// routes sets the routes in the function's environment, and lets it send to them.
func (r *Relay) routes(p *RelayProps) {
	routes := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(p.Queues)) {
		q := p.Queues[name]
		routes[name] = q.QueueUrl()
		allow(r.Function, nil, []string{*q.QueueArn()}, "sqs:SendMessage")
		allowKey(q.EncryptionMasterKey(), r.Function)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Topics)) {
		routes[name] = p.Topics[name].TopicArn()
		allow(r.Function, nil, []string{*p.Topics[name].TopicArn()}, "sns:Publish")
		allowKey(p.Topics[name].MasterKey(), r.Function)
	}
	for _, name := range slices.Sorted(maps.Keys(p.Buses)) {
		routes[name] = p.Buses[name].EventBusArn()
		allow(r.Function, nil, []string{*p.Buses[name].EventBusArn()}, "events:PutEvents")
	}
	text := awscdk.Stack_Of(r).ToJsonString(routes, nil)
	r.Function.AddEnvironment(jsii.String(schema.EnvOutboxRoutes), text, nil)
	r.Function.AddEnvironment(jsii.String(schema.EnvOutboxGrace), jsii.String(RelayGrace.String()), nil)
	if p.MaxTries > 0 {
		r.Function.AddEnvironment(jsii.String(schema.EnvOutboxMaxTries), jsii.String(strconv.Itoa(p.MaxTries)), nil)
	}
	if p.Source != "" {
		r.Function.AddEnvironment(jsii.String(schema.EnvOutboxSource), &p.Source, nil)
	}
}

// allowKey allows sending to what the key encrypts, if it is not nil, before what needs that is made.
func allowKey(key awskms.IKey, to awsiam.IGrantable, before ...constructs.IConstruct) {
	if key != nil {
		allow(to, nil, []string{*key.KeyArn()}, "kms:Decrypt", "kms:GenerateDataKey").ApplyBefore(before...)
	}
}

func (r *Relay) feed(table *Table, p *RelayProps) {
	if table.TableStreamArn() == nil {
		table.GrantRelay(r.Function) // refuses that
		return
	}
	r.Mapping = awslambda.NewEventSourceMapping(r, jsii.String("Stream"), &awslambda.EventSourceMappingProps{
		Target: r.Function, EventSourceArn: table.TableStreamArn(),
		// Messages that were committed before the mapping existed must be sent too.
		StartingPosition: awslambda.StartingPosition_TRIM_HORIZON,
		BatchSize:        jsii.Number(streamBatch), RetryAttempts: jsii.Number(streamRetries),
		BisectBatchOnError: jsii.Bool(true), ReportBatchItemFailures: jsii.Bool(true),
		Filters: &[]*map[string]any{{"pattern": schema.OutboxFilter}},
	})
	r.Mapping.Node().DefaultChild().(awslambda.CfnEventSourceMapping).SetDestinationConfig(
		&awslambda.CfnEventSourceMapping_DestinationConfigProperty{
			OnFailure: &awslambda.CfnEventSourceMapping_OnFailureProperty{Destination: r.Failures.QueueArn()},
		})
	allow(r.Function, nil, []string{*r.Failures.QueueArn()}, "sqs:SendMessage").ApplyBefore(r.Mapping)
	allowKey(p.EncryptionKey, r.Function, r.Mapping)
	table.GrantRelay(r.Function).ApplyBefore(r.Mapping)
}
