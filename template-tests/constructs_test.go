package templatetests

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-cdk-go/awscdk/v2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigateway"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsapigatewayv2authorizers"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscloudwatch"
	"github.com/aws/aws-cdk-go/awscdk/v2/awscognito"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsdynamodb"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsevents"
	"github.com/aws/aws-cdk-go/awscdk/v2/awsiam"
	"github.com/aws/aws-cdk-go/awscdk/v2/awskms"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslambda"
	"github.com/aws/aws-cdk-go/awscdk/v2/awslogs"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssns"
	"github.com/aws/aws-cdk-go/awscdk/v2/awssqs"
	"github.com/aws/jsii-runtime-go"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/infra"
)

// TestConstructs compares what settings make of the constructs with snapshots. Their defaults are in
// the snapshots of the stacks.
func TestConstructs(t *testing.T) {
	for name, c := range map[string]struct {
		build func(awscdk.Stack)
		warns []string // in each warning, one after the other
	}{
		"function": {build: func(s awscdk.Stack) {
			infra.NewFunction(s, "Default", &infra.FunctionProps{Code: given(t)})
			f := infra.NewFunction(s, "Handler", &infra.FunctionProps{
				Code: given(t), Name: "payments", Description: "takes payments", Timeout: 25 * time.Second, Memory: 1024,
				ReservedConcurrency: 20, LogRetention: awslogs.RetentionDays_ONE_YEAR, Tracing: true,
				Environment: &map[string]*string{"PROVIDER_URL": jsii.String("https://provider.example")},
			})
			f.UseTable(infra.NewTable(s, "Records", nil), nil)
		}},
		"table": {build: func(s awscdk.Stack) {
			infra.NewTable(s, "Records", &infra.TableProps{
				Name: "records", MaxReadUnits: 100, MaxWriteUnits: 400, Operations: 100, RecoveryDays: 7, EncryptionKey: newKey(s),
			}).GrantHandler(newRole(s), nil)
		}},
		"disposable table": {
			build: func(s awscdk.Stack) { infra.NewTable(s, "Records", &infra.TableProps{Disposable: true}) },
			warns: []string{"disposable", "no deletion protection", "idem:disposable-table"},
		},
		// What has expired stays in a table without TTL until the sweep removes it. Without transactions
		// each change is followed by its audit entry.
		"global table": {
			build: func(s awscdk.Stack) {
				table := infra.NewTable(s, "Records", &infra.TableProps{
					ReplicaRegions: []string{"eu-central-1"}, WitnessRegion: "eu-west-2",
					Consistency: awsdynamodb.MultiRegionConsistency_STRONG,
				})
				infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}).UseTable(table, nil)
				infra.NewSweeper(s, "Sweeper", table, &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
			},
			warns: []string{"neither TTL nor transactions", "dynamostore.Options.WithoutTransactions", "idem:global-table"},
		},
		"queue": {build: func(s awscdk.Stack) {
			q := infra.NewQueue(s, "Orders", worker(t, s, 30*time.Second), &infra.QueueProps{
				Repeat: infra.NotRepeatable, Visibility: 10 * time.Minute, MessageRetention: 4 * 24 * time.Hour,
				MaxReceives: 8, BatchSize: 100, BatchWindow: 5 * time.Second, MaxConcurrency: 4, EncryptionKey: newKey(s),
			})
			producer := infra.NewFunction(s, "Producer", &infra.FunctionProps{Code: given(t)})
			q.GrantSend(producer)
			q.GrantHideDuplicates(producer)
		}},
		"FIFO queue": {build: func(s awscdk.Stack) {
			infra.NewQueue(s, "Orders", worker(t, s, 0), &infra.QueueProps{
				Repeat: infra.Repeatable, FIFO: true, PerGroup: true, Name: "orders.fifo",
			})
		}},
		// A function that is not of this package has a queue too. Lambda's own time-out is 3 s.
		"queue of any function": {build: func(s awscdk.Stack) {
			f := awslambda.NewFunction(s, jsii.String("Plain"), &awslambda.FunctionProps{
				Runtime: awslambda.Runtime_PROVIDED_AL2023(), Handler: jsii.String("bootstrap"), Code: given(t),
			})
			infra.NewQueue(s, "Orders", f, &infra.QueueProps{Repeat: infra.Repeatable})
		}},
		"events": {build: func(s awscdk.Stack) {
			require.NotNil(t, worker(t, s, 0).OnEvents(nil))
			own := newQueue(s, "Own")
			f := infra.NewFunction(s, "Other", &infra.FunctionProps{Code: given(t)})
			require.Equal(t, own, f.OnEvents(&infra.EventsProps{Failures: own}))
		}},
		"API": {build: func(s awscdk.Stack) {
			infra.NewAPI(s, "Payments", infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}), &infra.APIProps{
				Routes: []infra.Route{{Route: "POST /payments", Scopes: []string{"pay"}},
					{Route: "GET /payments/{id}", Rate: 5, Burst: 7}},
				Authorizer: tokens(), Rate: 50, Burst: 60,
			}).GrantInvoke(newRole(s))
		}},
		// Every authorizer of CDK's is one of an API: here that which has the least of ours.
		"API with a Lambda authorizer": {build: func(s awscdk.Stack) {
			guard := infra.NewFunction(s, "Guard", &infra.FunctionProps{Code: given(t)})
			infra.NewAPI(s, "Payments", infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}), &infra.APIProps{
				Routes: twoRoutes,
				Authorizer: awsapigatewayv2authorizers.NewHttpLambdaAuthorizer(jsii.String("Guard"), guard,
					&awsapigatewayv2authorizers.HttpLambdaAuthorizerProps{ResultsCacheTtl: awscdk.Duration_Seconds(jsii.Number(0))}),
			})
		}},
		// A browser asks before it sends an Idempotency-Key, and sees what the contract says.
		"API with CORS": {build: func(s awscdk.Stack) {
			cors := &awsapigatewayv2.CorsPreflightOptions{
				AllowOrigins: jsii.Strings("https://shop.example"), AllowHeaders: jsii.Strings("X-Trace", "content-type"),
				AllowCredentials: jsii.Bool(true), MaxAge: awscdk.Duration_Hours(jsii.Number(1)),
			}
			infra.NewAPI(s, "Payments", infra.NewFunction(s, "Handler", &infra.FunctionProps{Code: given(t)}), &infra.APIProps{
				Routes: twoRoutes, Authorizer: tokens(), CORS: cors,
			})
			require.Equal(t, jsii.Strings("X-Trace", "content-type"), cors.AllowHeaders, "the caller's options are the caller's")
		}},
		// What is not an HTTP API needs none of our constructs: the README of infra shows it.
		"REST API and function URL": {build: func(stack awscdk.Stack) {
			charge := infra.NewFunction(stack, "Charge", &infra.FunctionProps{Code: given(t)})
			refund := infra.NewFunction(stack, "Refund", &infra.FunctionProps{Code: given(t)})
			alarms, functions := awssns.NewTopic(stack, jsii.String("Alarms"), nil), []awslambda.Function{charge, refund}
			monitoring := infra.NewMonitoring(stack, "Monitoring", &infra.MonitoringProps{
				Topic: alarms, Functions: functions, Metrics: functions,
			})
			customers, backOffice := awscognito.NewUserPool(stack, jsii.String("Customers"), nil), newRole(stack)

			// The code of charge uses idemlambda.RESTAPI, and its tenant is a claim of the token.
			rest := awsapigateway.NewLambdaRestApi(stack, jsii.String("REST"), &awsapigateway.LambdaRestApiProps{
				Handler: charge, Proxy: jsii.Bool(false), CloudWatchRole: jsii.Bool(false),
				DefaultMethodOptions: &awsapigateway.MethodOptions{
					Authorizer: awsapigateway.NewCognitoUserPoolsAuthorizer(stack, jsii.String("Tokens"),
						&awsapigateway.CognitoUserPoolsAuthorizerProps{CognitoUserPools: &[]awscognito.IUserPool{customers}}),
				},
			})
			rest.Root().ResourceForPath(jsii.String("/payments")).AddMethod(jsii.String("POST"), nil, nil)

			// The code of refund uses idemlambda.FunctionURL, and its tenant is the caller's account.
			url := refund.AddFunctionUrl(&awslambda.FunctionUrlOptions{AuthType: awslambda.FunctionUrlAuthType_AWS_IAM})
			url.GrantInvokeUrl(backOffice)
			faults := refund.Metric(jsii.String("Url5xxCount"), &awscloudwatch.MetricOptions{Statistic: jsii.String("Sum")})
			monitoring.AddAlarm("URL5xx", faults, 1, "the function URL answers with 5xx")
		}},
		"existing": {build: func(s awscdk.Stack) { existing(t, s) }},
		"relay": {build: func(s awscdk.Stack) {
			infra.NewRelay(s, "Relay", infra.NewTable(s, "Records", nil), &infra.RelayProps{
				Function: infra.FunctionProps{Code: given(t), Timeout: 2 * time.Minute}, MaxTries: 5, EncryptionKey: newKey(s),
				Queues: map[string]awssqs.IQueue{"orders": newQueue(s, "Orders")},
				Topics: map[string]awssns.ITopic{"news": awssns.NewTopic(s, jsii.String("News"), nil)},
				Buses:  map[string]awsevents.IEventBus{"bus": awsevents.NewEventBus(s, jsii.String("Bus"), nil)},
				Source: "com.example.payments",
			})
		}},
		"sweeper with a key": {build: func(s awscdk.Stack) {
			infra.NewSweeper(s, "Sweeper", infra.NewTable(s, "Records", nil), &infra.SweeperProps{
				Function: infra.FunctionProps{Code: given(t)}, EncryptionKey: newKey(s), Concurrency: 64,
			}).GrantEscalation(newRole(s))
		}},
		"sweeper with a queue": {build: func(s awscdk.Stack) {
			own := awssqs.NewQueue(s, jsii.String("Support"), &awssqs.QueueProps{EncryptionMasterKey: newKey(s)})
			infra.NewSweeper(s, "Sweeper", infra.NewTable(s, "Records", nil), &infra.SweeperProps{
				Function: infra.FunctionProps{Code: given(t)}, EscalationQueue: own,
			})
		}},
		// A schedule of one's own, and another time-out.
		"ledger": {build: func(s awscdk.Stack) {
			watchedLedger(t, s)
			table := infra.NewTable(s, "Records", &infra.TableProps{EncryptionKey: newKey(s)})
			infra.NewLedger(s, "Charges", table, &infra.LedgerProps{
				Function: infra.FunctionProps{Code: given(t), Timeout: 5 * time.Minute},
				Schedule: awsevents.Schedule_Cron(&awsevents.CronOptions{Hour: jsii.String("9"), Minute: jsii.String("30")}),
			}).GrantCompare(newRole(s))
		}},
		"later": {
			build: func(s awscdk.Stack) {
				a := newAccepting(t, s)
				a.api.Authorizer = tokens()
				a.later.Route.Scopes, a.later.Status, a.later.StartWithin = []string{"write"}, "/made/statements/{id}", 10*time.Hour
				a.later.Queue = infra.QueueProps{
					Repeat: infra.NotRepeatable, MessageRetention: 10 * time.Hour, EncryptionKey: newKey(s), MaxConcurrency: 3,
				}
				a.watch = &infra.MonitoringProps{Thresholds: map[string]float64{"Age": 9 * 3600}}
				a.build(t)
			},
			warns: []string{"the alarms notify no topic"},
		},
		"thresholds": {build: func(s awscdk.Stack) {
			table := infra.NewTable(s, "Records", nil)
			sweeper := infra.NewSweeper(s, "Sweeper", table, &infra.SweeperProps{Function: infra.FunctionProps{Code: given(t)}})
			relay := newRelay(t, s, table)
			f := worker(t, s, 20*time.Second)
			q := infra.NewQueue(s, "OrdersQueue", f, &infra.QueueProps{Repeat: infra.Repeatable})
			infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
				Topic: awssns.NewTopic(s, jsii.String("Alarms"), nil), Functions: []awslambda.Function{f},
				Metrics: []awslambda.Function{f},
				Relays:  []*infra.Relay{relay}, Sweepers: []*infra.Sweeper{sweeper}, Queues: []*infra.Queue{q},
				Thresholds: map[string]float64{"OldestOpen": 3600, "IteratorAge": 90_000, "KeyReused": 2_000_000, "Failed": 5},
			})
		}},
		"business table": {build: func(s awscdk.Stack) {
			table := awsdynamodb.NewTableV2(s, jsii.String("Orders"), &awsdynamodb.TablePropsV2{
				PartitionKey: &awsdynamodb.Attribute{Name: jsii.String("id"), Type: awsdynamodb.AttributeType_STRING},
			})
			infra.GrantTransaction(table, newRole(s), "PutItem", "dynamodb:ConditionCheckItem")
		}},
		// A function that records results may make data keys and unwrap them, and a reader unwrap them, with
		// this key and its encryption context alone. The table's own grants have none of it.
		"sealed results": {build: func(s awscdk.Stack) {
			key, table := newKey(s), infra.NewTable(s, "Records", nil)
			context := map[string]string{"app": "payments", "stage": "live"}
			f := infra.NewFunction(s, "Payments", &infra.FunctionProps{Code: given(t)})
			table.GrantHandler(f, nil)
			f.Seal(key, context)
			infra.NewFunction(s, "Plain", &infra.FunctionProps{Code: given(t)}).Seal(key, nil)
			reader := newRole(s)
			table.GrantReader(reader)
			infra.GrantDecrypt(key, reader, context)
		}},
	} {
		t.Run(name, func(t *testing.T) {
			got, problems := synthIn(t, ireland, c.build)
			if c.warns == nil {
				require.Empty(t, problems)
			} else {
				require.Len(t, problems, 1)
				says(t, problems, false, c.warns...)
			}
			compareText(t, filepath.Join("testdata", "constructs", strings.ReplaceAll(name, " ", "-")+".txt"), got.listed())
		})
	}
}

// listed are the resources, with a line for each of their properties.
func (tt template) listed() string {
	var b strings.Builder
	all, _ := tt["Resources"].(map[string]any)
	for _, id := range slices.Sorted(maps.Keys(all)) {
		resource := all[id].(map[string]any)
		fmt.Fprintf(&b, "%s %s\n", id, resource["Type"])
		for _, member := range []string{"DeletionPolicy", "UpdateReplacePolicy", "DependsOn"} {
			if resource[member] != nil {
				fmt.Fprintf(&b, "  %s: %s\n", member, text(resource[member]))
			}
		}
		properties, _ := resource["Properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			fmt.Fprintf(&b, "  .%s: %s\n", name, asset.ReplaceAllString(text(properties[name]), "<asset>"))
		}
	}
	return b.String()
}

func newKey(s awscdk.Stack) awskms.Key { return awskms.NewKey(s, jsii.String("Key"), nil) }

func newQueue(s awscdk.Stack, id string) awssqs.Queue { return awssqs.NewQueue(s, &id, nil) }

// watchedLedger has a ledger and its monitoring. The example's stacks have none.
func watchedLedger(t *testing.T, s awscdk.Stack) {
	refunds := infra.NewLedger(s, "Refunds", infra.NewTable(s, "RefundRecords", nil),
		&infra.LedgerProps{Function: infra.FunctionProps{Code: given(t)}})
	infra.NewMonitoring(s, "Monitoring", &infra.MonitoringProps{
		Topic: awssns.NewTopic(s, jsii.String("Alarms"), nil), Ledgers: []*infra.Ledger{refunds},
	})
}

// newRelay brings messages to a queue.
func newRelay(t *testing.T, s awscdk.Stack, table *infra.Table) *infra.Relay {
	return infra.NewRelay(s, "Relay", table, &infra.RelayProps{
		Function: infra.FunctionProps{Code: given(t)}, Queues: map[string]awssqs.IQueue{"orders": newQueue(s, "Orders")},
	})
}

func newRole(s awscdk.Stack) awsiam.Role {
	return awsiam.NewRole(s, jsii.String("Role"), &awsiam.RoleProps{AssumedBy: awsiam.NewAccountRootPrincipal()})
}
