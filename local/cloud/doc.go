// Package cloud runs on this machine what CloudFormation templates describe: tables, queues and topics, functions as
// processes, HTTP APIs, event source mappings and schedules.
//
//	plan, err := cloud.Read("cdk.out", nil)
//	...
//	running, err := cloud.Start(ctx, plan, nil)
//	...
//	defer running.Close()
//
// # What runs
//
//   - AWS::DynamoDB::Table, GlobalTable: keys, indexes, time to live and stream, on DynamoDB Local
//   - AWS::SQS::Queue, AWS::SNS::Topic with subscriptions of queues: on the queue server
//   - AWS::Lambda::Function, with versions, aliases and URLs: on package runtime
//   - AWS::ApiGatewayV2 HTTP APIs, and AWS::ApiGateway REST APIs: on package gateway
//   - AWS::Lambda::EventSourceMapping of a queue or a table's stream
//   - AWS::Events::Rule and AWS::Scheduler::Schedule with a rate
//
// What has no behaviour here, such as alarms, roles and log groups, is listed in [Plan.Silent], and a property without
// effect in [Plan.Notes]. Any other type is refused by its name before anything starts.
package cloud
