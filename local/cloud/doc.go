// Package cloud runs on this machine what CloudFormation templates describe: tables, queues and topics, functions as
// processes, HTTP APIs, event source mappings and schedules.
//
//	running, err := cloud.Start(ctx, "cdk.out", &cloud.Options{RunDir: dir})
//	...
//	defer running.Close()
//
// # What runs
//
//   - AWS::DynamoDB::Table, GlobalTable: keys, indexes, time to live and stream, on DynamoDB Local
//   - AWS::SQS::Queue, AWS::SNS::Topic with subscriptions of queues: on the queue server
//   - AWS::Lambda::Function, with versions, aliases and URLs: on package runtime; Invoke of Lambda calls them
//   - AWS::ApiGatewayV2 HTTP APIs, and AWS::ApiGateway REST APIs, with routes as resources or in OpenAPI, and all kinds
//     of authorizers: on package gateway
//   - AWS::Lambda::EventSourceMapping of a queue or a table's stream
//   - AWS::Events::Rule and AWS::Scheduler::Schedule with a rate or a cron expression
//
// # What differs
//
// Tokens come from [Running.Issuer]: issuer, audience and scopes of a template are not checked. A function that
// authorizes is asked about each request. A call to Invoke of Lambda has to have a signature, which is not checked. An
// invocation of the type Event is not tried again. Of STS only GetCallerIdentity is here. A mapping reads a stream from
// its oldest record at first, also with StartingPosition LATEST, and delivers a batch that fails until it succeeds.
//
// What has no behaviour here, such as alarms and log groups, is listed in [Plan.Silent], and a property without effect
// in [Plan.Notes]. Any other type is refused by its name before anything starts.
//
// [Plan.Roles] has the policies of the roles: AWS::IAM::Role, Policy, RolePolicy and ManagedPolicy. Users, groups,
// permissions boundaries and the policies of queues, topics, tables and functions are not read.
package cloud
