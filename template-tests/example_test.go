package templatetests

import (
	"fmt"
	"os"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/constructs-go/constructs/v10"
	"github.com/aws/jsii-runtime-go"

	"github.com/idem-go/idempotency/infra"
)

// What the README of infra shows.
func Example_api() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Shop"), nil)
	issuer := "https://issuer.example"
	orders := awsdynamodb.NewTableV2(stack, jsii.String("Orders"), &awsdynamodb.TablePropsV2{
		PartitionKey: &awsdynamodb.Attribute{Name: jsii.String("id"), Type: awsdynamodb.AttributeType_STRING},
	})
	shipping, alarms := awssqs.NewQueue(stack, jsii.String("Shipping"), nil),
		awssns.NewTopic(stack, jsii.String("Alarms"), nil)

	records := infra.NewTable(stack, "Records", nil)

	charge := infra.NewFunction(stack, "Charge",
		&infra.FunctionProps{Package: "./testdata/charge", Timeout: 20 * time.Second})
	charge.UseTable(records, nil) // IDEM_TABLE, and the permissions for it

	api := infra.NewAPI(stack, "API", charge, &infra.APIProps{
		Routes: []infra.Route{{Route: "POST /payments"}},
		Authorizer: awsapigatewayv2authorizers.NewHttpJwtAuthorizer(jsii.String("JWT"), &issuer,
			&awsapigatewayv2authorizers.HttpJwtAuthorizerProps{JwtAudience: jsii.Strings("payments")}),
	})

	worker := infra.NewFunction(stack, "Worker",
		&infra.FunctionProps{Package: "./testdata/charge", Timeout: 30 * time.Second})
	worker.UseTable(records, nil)
	infra.GrantTransaction(orders, worker, "PutItem") // what its transactions write with the record
	queue := infra.NewQueue(stack, "OrdersQueue", worker, &infra.QueueProps{
		Repeat: infra.Repeatable, // the code says idem.Repeatable
	})
	queue.GrantHideDuplicates(worker) // for sqsvisibility

	relay := infra.NewRelay(stack, "Relay", records, &infra.RelayProps{
		Queues: map[string]awssqs.IQueue{"shipping": shipping}, // a message's Destination
	})
	sweeper := infra.NewSweeper(stack, "Sweeper", records, &infra.SweeperProps{
		Function: infra.FunctionProps{Package: "./testdata/charge"}, // without it, one that asks no provider
	})
	handlers := []awslambda.Function{charge, worker}
	infra.NewMonitoring(stack, "Monitoring", &infra.MonitoringProps{
		Topic: alarms, Table: records, Functions: handlers, APIs: []constructs.IConstruct{api},
		Queues: []*infra.Queue{queue}, Relays: []*infra.Relay{relay}, Sweepers: []*infra.Sweeper{sweeper},
		Metrics: handlers, // their code writes metrics with idem/emf
	})

	// What the runbook and idemctl use.
	awscdk.NewCfnOutput(stack, jsii.String("TableName"), &awscdk.CfnOutputProps{Value: records.TableName()})
	awscdk.NewCfnOutput(stack, jsii.String("EscalationQueueURL"),
		&awscdk.CfnOutputProps{Value: sweeper.EscalationQueue.QueueUrl()})
	awscdk.NewCfnOutput(stack, jsii.String("DeadLetterQueueURL"),
		&awscdk.CfnOutputProps{Value: queue.DeadLetters.QueueUrl()})
	awscdk.NewCfnOutput(stack, jsii.String("RelayFunctionName"),
		&awscdk.CfnOutputProps{Value: relay.Function.FunctionName()})

	assembly := app.Synth(nil)
	defer os.RemoveAll(*assembly.Directory())
	fmt.Println(*(*assembly.Stacks())[0].StackName(), infra.Problems(app))
	// Output: Shop []
}

// A route that is accepted for later, as the README of infra shows it.
func Example_later() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Shop"), nil)
	authorizer := awsapigatewayv2authorizers.NewHttpIamAuthorizer()
	records := infra.NewTable(stack, "Records", nil)
	accept := infra.NewFunction(stack, "Accept", &infra.FunctionProps{Package: "./testdata/charge"})
	accept.UseTable(records, nil)

	worker := infra.NewFunction(stack, "Statements",
		&infra.FunctionProps{Package: "./testdata/charge", Timeout: time.Minute})
	worker.UseTable(records, nil)
	statements := infra.NewLater(stack, "StatementsQueue", records, worker, &infra.LaterProps{
		Route: infra.Route{Route: "POST /statements"}, Status: "/statements/{id}", // as idemhttp's options say
		StartWithin: 2 * time.Hour, // how long work may wait for its worker
		Queue:       infra.QueueProps{Repeat: infra.Repeatable},
	})
	api := infra.NewAPI(stack, "API", accept, &infra.APIProps{Routes: statements.Routes, Authorizer: authorizer})
	relay := infra.NewRelay(stack, "Relay", records, &infra.RelayProps{
		Queues: map[string]awssqs.IQueue{"statements": statements.Queue}, // the message's Destination
	})

	infra.NewSweeper(stack, "Sweeper", records,
		&infra.SweeperProps{Function: infra.FunctionProps{Package: "./testdata/charge"}})
	infra.NewMonitoring(stack, "Monitoring", &infra.MonitoringProps{
		Topic: awssns.NewTopic(stack, jsii.String("Alarms"), nil), Table: records,
		Functions: []awslambda.Function{accept, worker}, Metrics: []awslambda.Function{accept, worker},
		APIs: []constructs.IConstruct{api}, Queues: []*infra.Queue{statements.Queue}, Relays: []*infra.Relay{relay},
	})

	assembly := app.Synth(nil)
	defer os.RemoveAll(*assembly.Directory())
	fmt.Println(*(*assembly.Stacks())[0].StackName(), infra.Problems(app))
	// Output: Shop []
}

// What exists already, as the README of infra shows it.
func Example_existing() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Shop"), nil)
	table, stream := "records", "arn:aws:dynamodb:eu-west-1:111111111111:table/records/stream/2026-01-01T00:00:00.000"
	orders, dead := "arn:aws:sqs:eu-west-1:111111111111:orders", "arn:aws:sqs:eu-west-1:111111111111:orders-dead"
	worker := infra.NewFunction(stack, "Worker",
		&infra.FunctionProps{Package: "./testdata/charge", Timeout: 30 * time.Second})
	alarms := awssns.NewTopic(stack, jsii.String("Alarms"), nil)
	http := awsapigatewayv2.HttpApi_FromHttpApiAttributes(stack, jsii.String("HTTP"),
		&awsapigatewayv2.HttpApiAttributes{HttpApiId: jsii.String("a1b2c3")})
	rest := awsapigateway.RestApi_FromRestApiAttributes(stack, jsii.String("REST"), &awsapigateway.RestApiAttributes{
		RestApiId: jsii.String("d4e5f6"), RootResourceId: jsii.String("r"), RestApiName: jsii.String("refunds"),
	})

	records := infra.ImportTable(awsdynamodb.TableV2_FromTableAttributes(stack, jsii.String("Records"),
		&awsdynamodb.TableAttributesV2{TableName: &table, TableStreamArn: &stream}), nil) // the stream: for NewRelay

	queue := infra.NewQueue(stack, "OrdersQueue", worker, &infra.QueueProps{
		Repeat:      infra.Repeatable,
		Queue:       awssqs.Queue_FromQueueArn(stack, jsii.String("Orders"), &orders),
		DeadLetters: awssqs.Queue_FromQueueArn(stack, jsii.String("OrdersDead"), &dead),
		// As aws sqs get-queue-attributes shows them:
		Visibility: 3 * time.Minute, MessageRetention: 4 * 24 * time.Hour, MaxReceives: 5,
	})

	infra.NewMonitoring(stack, "Monitoring", &infra.MonitoringProps{
		Topic: alarms, Table: records, Queues: []*infra.Queue{queue}, Metrics: []awslambda.Function{worker},
		APIs: []constructs.IConstruct{http, rest}, // each made or imported by CDK
	})

	worker.UseTable(records, nil)
	assembly := app.Synth(nil)
	defer os.RemoveAll(*assembly.Directory())
	fmt.Println(*(*assembly.Stacks())[0].StackName(), infra.Problems(app))
	// Output: Shop []
}

// Somebody else's app: a table, and a role of its own that may handle records.
func Example() {
	app := awscdk.NewApp(nil)
	stack := awscdk.NewStack(app, jsii.String("Billing"), nil)

	records := infra.NewTable(stack, "Records", nil)
	role := awsiam.NewRole(stack, jsii.String("Worker"), &awsiam.RoleProps{
		AssumedBy: awsiam.NewServicePrincipal(jsii.String("ecs-tasks.amazonaws.com"), nil),
	})
	records.GrantHandler(role, &infra.GrantOptions{Tenants: []string{"acme"}})
	awscdk.NewCfnOutput(stack, jsii.String("Table"), &awscdk.CfnOutputProps{Value: records.TableName()})

	assembly := app.Synth(nil)
	defer os.RemoveAll(*assembly.Directory())
	fmt.Println(*(*assembly.Stacks())[0].StackName(), infra.Problems(app))
	// Output: Billing []
}
