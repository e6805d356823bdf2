package infra

import (
	"cmp"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"
)

const (
	functions = "github.com/idem-go/idempotency/lambda/functions/"

	// noProvider is an address that does not exist.
	noProvider = "https://provider.invalid"
)

// NewApp returns an app for [NewStacks]. The folder of its output does not depend on the
// settings of CDK's command line. Under the command line pass nil for outdir.
func NewApp(outdir *string, context map[string]string) awscdk.App {
	values := map[string]any{
		// One statement for one resource makes a function's permissions readable.
		"@aws-cdk/aws-iam:minimizePolicies": true,
		// The table cannot be deleted while another stack uses it.
		"@aws-cdk/core:defaultCrossStackReferences": "strong",
	}
	for name, value := range context {
		values[name] = value
	}
	return awscdk.NewApp(&awscdk.AppProps{Outdir: outdir, AnalyticsReporting: jsii.Bool(false), Context: &values})
}

// Payments is the stack payments-api: the table of records, the payments function
// and its API, the statements function and its queue, the relay that sends it the statements
// that the payments function has accepted, and the sweeper that asks the provider about refunds.
type Payments struct {
	awscdk.Stack
	Records  *Table
	Function *Function
	API      *API
	// Worker makes the statements. Statements has its queue.
	Worker     *Function
	Statements *Later
	Relay      *Relay
	Sweeper    *Sweeper
	Alarms     awssns.Topic
}

// Orders is the stack orders-worker: the business's table of orders, the orders
// function and its queue, and the relay of the outbox, which sends the function's messages
// for order-events to a topic. It has a table of records of its own. The relay reads all of
// the table's stream, and neither it nor the function can read the payments function's
// records.
type Orders struct {
	awscdk.Stack
	Records  *Table
	Table    awsdynamodb.TableV2
	Function *Function
	Queue    *Queue
	Events   awssns.Topic
	Relay    *Relay
	Sweeper  *Sweeper
}

// NewStacks adds the example's stacks to an app.
func NewStacks(app constructs.Construct, s *Settings) (*Payments, *Orders) {
	payments := newPayments(app, s)
	return payments, newOrders(app, s, payments)
}

func newPayments(app constructs.Construct, s *Settings) *Payments {
	p := &Payments{Stack: awscdk.NewStack(app, jsii.String("payments-api"),
		s.stack("payments-api", "Payments behind API Gateway, and the table of idempotency records."))}
	p.Records = NewTable(p.Stack, "Records", nil)
	provider := cmp.Or(s.Provider, noProvider)
	if provider == noProvider {
		warn(p.Stack, "no-provider", "the payment provider is %s, which does not exist: say -c provider=https://…", provider)
	}
	p.Function = NewFunction(p.Stack, "Payments", &FunctionProps{
		Package: functions + "payments", Description: "Charges and refunds, once each, and accepts statements.",
		Tracing: s.Tracing, Timeout: 20 * time.Second,
		Environment: &map[string]*string{"PROVIDER_URL": &provider, "PAYMENTS_API": jsii.String("http"),
			"PAYMENTS_TENANT": jsii.String(s.tenantSetting())},
	})
	p.Function.UseTable(p.Records, nil)
	p.Worker = NewFunction(p.Stack, "Statements", &FunctionProps{
		Package: functions + "statements", Description: "Makes the statements that were accepted.", Tracing: s.Tracing,
		Timeout:     time.Minute,
		Environment: &map[string]*string{"PROVIDER_URL": &provider},
	})
	p.Worker.UseTable(p.Records, nil)
	p.Statements = NewLater(p.Stack, "StatementsQueue", p.Records, p.Worker, &LaterProps{
		Route: Route{Route: "POST /statements", Rate: 10, Burst: 20}, Status: "/statements/{id}",
		// A statement has the whole time of an invocation.
		Queue: QueueProps{Repeat: Repeatable, BatchSize: 1, MaxConcurrency: 10},
	})
	p.Relay = NewRelay(p.Stack, "StatementsRelay", p.Records, &RelayProps{
		Function: FunctionProps{Description: "Sends the worker what was accepted.", Tracing: s.Tracing},
		Queues:   map[string]awssqs.IQueue{"statements": p.Statements.Queue},
	})
	p.API = NewAPI(p.Stack, "API", p.Function, &APIProps{
		Name: s.Prefix + "payments", Authorizer: s.authorizer(),
		Routes: append([]Route{{Route: "POST /payments"}, {Route: "POST /refunds"}}, p.Statements.Routes...),
	})
	p.Sweeper = NewSweeper(p.Stack, "RefundSweeper", p.Records, &SweeperProps{Function: FunctionProps{
		Package: functions + "refundsweeper", Description: "Asks the provider about refunds whose outcome is unknown.",
		Tracing:     s.Tracing,
		Environment: &map[string]*string{"PROVIDER_URL": &provider},
	}})
	p.Alarms = alarms(p.Stack)
	handlers := []awslambda.Function{p.Function, p.Worker}
	NewMonitoring(p.Stack, "Monitoring", &MonitoringProps{
		Topic: p.Alarms, Table: p.Records, Functions: handlers, Metrics: handlers,
		APIs: []constructs.IConstruct{p.API}, Queues: []*Queue{p.Statements.Queue}, Relays: []*Relay{p.Relay},
		Sweepers: []*Sweeper{p.Sweeper},
	})
	output(p.Stack, "URL", p.API.URL)
	output(p.Stack, "TableName", *p.Records.TableName())
	output(p.Stack, "DeadLetterQueueURL", *p.Statements.Queue.DeadLetters.QueueUrl())
	output(p.Stack, "EscalationQueueURL", *p.Sweeper.EscalationQueue.QueueUrl())
	output(p.Stack, "AlarmTopic", *p.Alarms.TopicArn())
	return p
}

func newOrders(app constructs.Construct, s *Settings, payments *Payments) *Orders {
	o := &Orders{Stack: awscdk.NewStack(app, jsii.String("orders-worker"),
		s.stack("orders-worker", "Orders from a queue, each written once, with messages about them."))}
	o.Records = NewTable(o.Stack, "Records", nil)
	o.Table = awsdynamodb.NewTableV2(o.Stack, jsii.String("Orders"), &awsdynamodb.TablePropsV2{
		PartitionKey: key("customer", awsdynamodb.AttributeType_STRING),
		SortKey:      key("order_id", awsdynamodb.AttributeType_STRING),
		Billing:      awsdynamodb.Billing_OnDemand(nil), Encryption: awsdynamodb.TableEncryptionV2_DynamoOwnedKey(),
		DeletionProtection: jsii.Bool(true), RemovalPolicy: awscdk.RemovalPolicy_RETAIN,
		PointInTimeRecoverySpecification: &awsdynamodb.PointInTimeRecoverySpecification{
			PointInTimeRecoveryEnabled: jsii.Bool(true)},
	})
	o.Function = NewFunction(o.Stack, "Worker", &FunctionProps{
		Package: functions + "orders", Description: "Writes each order once.", Tracing: s.Tracing, Timeout: 30 * time.Second,
	})
	o.Function.UseTable(o.Records, nil)
	o.Function.AddEnvironment(jsii.String("ORDERS_TABLE"), o.Table.TableName(), nil)
	// An order's row, its message and its outcome commit in one transaction.
	GrantTransaction(o.Table, o.Function, "PutItem")
	o.Queue = NewQueue(o.Stack, "OrdersQueue", o.Function, &QueueProps{Repeat: Repeatable, MaxConcurrency: 50})
	o.Events = awssns.NewTopic(o.Stack, jsii.String("OrderEvents"), &awssns.TopicProps{EnforceSSL: jsii.Bool(true)})
	// SNS does not encrypt by itself. This key costs nothing, and needs no permission in the account.
	// https://docs.aws.amazon.com/sns/latest/dg/sns-key-management.html
	o.Events.Node().DefaultChild().(awssns.CfnTopic).SetKmsMasterKeyId(jsii.String("alias/aws/sns"))
	o.Relay = NewRelay(o.Stack, "Relay", o.Records, &RelayProps{
		Function: FunctionProps{Description: "Sends the messages of the outbox.", Tracing: s.Tracing},
		Topics:   map[string]awssns.ITopic{"order-events": o.Events},
	})
	o.Sweeper = NewSweeper(o.Stack, "Sweeper", o.Records, &SweeperProps{
		Function: FunctionProps{Description: "Escalates open questions.", Tracing: s.Tracing},
	})
	handlers := []awslambda.Function{o.Function}
	NewMonitoring(o.Stack, "Monitoring", &MonitoringProps{
		Topic: payments.Alarms, Table: o.Records, Functions: handlers, Metrics: handlers,
		Queues: []*Queue{o.Queue}, Relays: []*Relay{o.Relay}, Sweepers: []*Sweeper{o.Sweeper},
	})
	output(o.Stack, "QueueURL", *o.Queue.QueueUrl())
	output(o.Stack, "DeadLetterQueueURL", *o.Queue.DeadLetters.QueueUrl())
	output(o.Stack, "EscalationQueueURL", *o.Sweeper.EscalationQueue.QueueUrl())
	output(o.Stack, "RelayFunctionName", *o.Relay.Function.FunctionName())
	output(o.Stack, "TableName", *o.Records.TableName())
	output(o.Stack, "OrdersTableName", *o.Table.TableName())
	output(o.Stack, "OrderEventsTopic", *o.Events.TopicArn())
	return o
}

func (s *Settings) authorizer() awsapigatewayv2.IHttpRouteAuthorizer {
	switch s.Authorizer {
	case "jwt":
		return awsapigatewayv2authorizers.NewHttpJwtAuthorizer(jsii.String("JWT"), &s.Issuer,
			&awsapigatewayv2authorizers.HttpJwtAuthorizerProps{JwtAudience: jsii.Strings(s.audiences()...)})
	case "none":
		return awsapigatewayv2.NewHttpNoneAuthorizer()
	}
	return awsapigatewayv2authorizers.NewHttpIamAuthorizer()
}

// alarms is a topic for operators' subscriptions that accepts messages only over TLS. Its
// policy replaces the topic's default one, so it must let alarms publish. It is not encrypted: an alarm has no
// customer's data, and cannot publish under SNS's own key.
// https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/Notify_Users_Alarm_Changes.html
func alarms(scope constructs.Construct) awssns.Topic {
	topic := awssns.NewTopic(scope, jsii.String("Alarms"), &awssns.TopicProps{EnforceSSL: jsii.Bool(true)})
	topic.AddToResourcePolicy(awsiam.NewPolicyStatement(&awsiam.PolicyStatementProps{
		Sid:        jsii.String("AlarmsMayPublish"),
		Principals: &[]awsiam.IPrincipal{awsiam.NewServicePrincipal(jsii.String("cloudwatch.amazonaws.com"), nil)},
		Actions:    jsii.Strings("sns:Publish"), Resources: &[]*string{topic.TopicArn()},
		Conditions: &map[string]any{"StringEquals": map[string]any{"aws:SourceAccount": awscdk.Stack_Of(scope).Account()}},
	}))
	return topic
}

func output(scope constructs.Construct, name, value string) {
	awscdk.NewCfnOutput(scope, jsii.String(name), &awscdk.CfnOutputProps{Value: &value})
}
