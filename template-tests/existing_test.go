package templatetests

import (
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

const (
	ordersARN = "arn:aws:sqs:eu-west-1:111111111111:orders"
	streamARN = "arn:aws:dynamodb:eu-west-1:111111111111:table/records/stream/2026-01-01T00:00:00.000"
)

// existingTable is one of another stack's, with a stream.
func existingTable(s awscdk.Stack) *infra.Table {
	return infra.ImportTable(awsdynamodb.TableV2_FromTableAttributes(s, jsii.String("Records"),
		&awsdynamodb.TableAttributesV2{TableName: jsii.String("records"), TableStreamArn: jsii.String(streamARN)}), nil)
}

// existingQueue is described for a function that ends within 30 s.
func existingQueue(s awscdk.Stack) infra.QueueProps {
	return infra.QueueProps{
		Queue: queueOf(s, "Orders", ordersARN), DeadLetters: queueOf(s, "OrdersDead", ordersARN+"-dead"),
		Visibility: 3 * time.Minute, MessageRetention: 4 * 24 * time.Hour, MaxReceives: 5,
	}
}

func queueOf(s awscdk.Stack, id, arn string) awssqs.IQueue {
	return awssqs.Queue_FromQueueArn(s, &id, &arn)
}

// existing has everything around what exists already.
func existing(t *testing.T, s awscdk.Stack) {
	records := infra.ImportTable(awsdynamodb.TableV2_FromTableAttributes(s, jsii.String("Records"),
		&awsdynamodb.TableAttributesV2{
			TableArn:       jsii.String("arn:aws:dynamodb:eu-west-1:111111111111:table/records"),
			TableStreamArn: jsii.String(streamARN),
			EncryptionKey: awskms.Key_FromKeyArn(s, jsii.String("Key"),
				jsii.String("arn:aws:kms:eu-west-1:111111111111:key/1")),
		}), nil)
	f := worker(t, s, 30*time.Second)
	f.UseTable(records, &infra.GrantOptions{Tenants: []string{"acme"}})
	described := existingQueue(s)
	described.Repeat, described.BatchWindow = infra.NotRepeatable, 0
	described.Queue = awssqs.Queue_FromQueueAttributes(s, jsii.String("Sealed"), &awssqs.QueueAttributes{
		QueueArn: jsii.String(ordersARN), KeyArn: jsii.String("arn:aws:kms:eu-west-1:111111111111:key/2"),
	})
	queue := infra.NewQueue(s, "OrdersQueue", f, &described)
	queue.GrantHideDuplicates(f)
	producer := infra.NewFunction(s, "Producer", &infra.FunctionProps{Code: given(t)})
	queue.GrantSend(producer)
	relay := infra.NewRelay(s, "Relay", records, &infra.RelayProps{
		Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"orders": queue},
	})
	sweeper := infra.NewSweeper(s, "Sweeper", records, &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
	infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
		Topic: awssns.NewTopic(s, jsii.String("Alarms"), nil), Table: records, Functions: []awslambda.Function{f},
		Metrics: []awslambda.Function{f}, Queues: []*infra.Queue{queue},
		APIs: []constructs.IConstruct{
			awsapigatewayv2.HttpApi_FromHttpApiAttributes(s, jsii.String("Payments"),
				&awsapigatewayv2.HttpApiAttributes{HttpApiId: jsii.String("a1b2c3")}),
			awsapigateway.RestApi_FromRestApiAttributes(s, jsii.String("Refunds"), &awsapigateway.RestApiAttributes{
				RestApiId: jsii.String("d4e5f6"), RootResourceId: jsii.String("r"), RestApiName: jsii.String("refunds"),
			}),
			awsapigateway.NewSpecRestApi(s, jsii.String("Own"), &awsapigateway.SpecRestApiProps{
				ApiDefinition: awsapigateway.ApiDefinition_FromInline(map[string]any{"openapi": "3.0.0"}),
			}),
		},
		Relays: []*infra.Relay{relay}, Sweepers: []*infra.Sweeper{sweeper},
	})
}

func TestExistingTableRefuses(t *testing.T) {
	imported := func(s awscdk.Stack, consistency awsdynamodb.MultiRegionConsistency) *infra.Table {
		return infra.ImportTable(awsdynamodb.TableV2_FromTableName(s, jsii.String("Records"), jsii.String("records")),
			&infra.ImportTableProps{Consistency: consistency})
	}
	objects(t, ireland, map[string]objection{
		"an eventually consistent table": refuses(func(s awscdk.Stack) {
			imported(s, awsdynamodb.MultiRegionConsistency_EVENTUAL).GrantReader(newRole(s))
		}, "not strong", "two regions may both get a claim"),
		"a relay without stream": refuses(func(s awscdk.Stack) {
			newRelay(t, s, imported(s, ""))
		}, "TableStreamArn", "LatestStreamArn", "describe-table"),
		"a relay of a global table": refuses(func(s awscdk.Stack) {
			newRelay(t, s, imported(s, awsdynamodb.MultiRegionConsistency_STRONG))
		}, "a global table has no transactions"),
		"a mistake in a tenant": refuses(func(s awscdk.Stack) {
			existingTable(s).GrantHandler(newRole(s), &infra.GrantOptions{Tenants: []string{""}})
		}, "a tenant in GrantOptions is empty"),
		"replicas of a table of CDK's": refuses(func(s awscdk.Stack) {
			infra.ImportTable(awsdynamodb.NewTableV2(s, jsii.String("Own"), &awsdynamodb.TablePropsV2{
				PartitionKey: &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING},
				Replicas:     &[]*awsdynamodb.ReplicaTableProps{{Region: jsii.String("eu-central-1")}},
			}), nil)
		}, "two regions may both get a claim"),
		"replicas of CDK's first table": refuses(func(s awscdk.Stack) {
			infra.ImportTable(awsdynamodb.NewTable(s, jsii.String("Own"), &awsdynamodb.TableProps{
				PartitionKey:       &awsdynamodb.Attribute{Name: jsii.String("pk"), Type: awsdynamodb.AttributeType_STRING},
				ReplicationRegions: jsii.Strings("eu-central-1"),
			}), nil)
		}, "two regions may both get a claim"),
	})
}

// What is wrong in the description of a queue is refused as it is for a queue that is created: see TestQueueChecks.
func TestExistingQueueChecks(t *testing.T) {
	described := func(change func(awscdk.Stack, *infra.QueueProps)) func(awscdk.Stack) {
		return func(s awscdk.Stack) {
			p := existingQueue(s)
			p.Repeat = infra.Repeatable
			change(s, &p)
			queue(t, p)(s)
		}
	}
	const read = "aws sqs get-queue-attributes --attribute-names All shows"
	objects(t, nil, map[string]objection{
		"all that is needed": accepts(described(func(awscdk.Stack, *infra.QueueProps) {})),
		"a queue of CDK's": accepts(described(func(s awscdk.Stack, p *infra.QueueProps) {
			p.Queue, p.DeadLetters = newQueue(s, "Own"), newQueue(s, "Dead")
		})),
		"no visibility": refuses(described(func(_ awscdk.Stack, p *infra.QueueProps) { p.Visibility = 0 }),
			"Visibility of the existing queue is missing", "the queue's VisibilityTimeout", read),
		"no retention": refuses(described(func(_ awscdk.Stack, p *infra.QueueProps) { p.MessageRetention = 0 }),
			"MessageRetention of the existing queue is missing", "MessageRetentionPeriod", read),
		"no receives": refuses(described(func(_ awscdk.Stack, p *infra.QueueProps) { p.MaxReceives = 0 }),
			"MaxReceives of the existing queue is missing", "maxReceiveCount in RedrivePolicy", read),
		"no dead letters": refuses(described(func(_ awscdk.Stack, p *infra.QueueProps) { p.DeadLetters = nil }),
			"DeadLetters of the existing queue is missing", "deadLetterTargetArn in RedrivePolicy", "give it first"),
		"a name": refuses(described(func(_ awscdk.Stack, p *infra.QueueProps) { p.Name = "orders" }),
			"Name, PerGroup and EncryptionKey are for a queue that is created"),
		"visibility within lease": refuses(described(func(_ awscdk.Stack, p *infra.QueueProps) {
			p.Visibility = 31 * time.Second
		}), "Visibility of 31s against the function's time-out of 30s", "lease", "no less than 32s"),
		"FIFO by its name": refuses(described(func(s awscdk.Stack, p *infra.QueueProps) {
			p.Queue, p.BatchWindow = queueOf(s, "Ordered", ordersARN+".fifo"), time.Second
		}), "a FIFO queue has none"),
	})
}
