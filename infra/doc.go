// Package infra holds CDK constructs for a service that uses idem: [Table],
// [Function], [Queue], [API], [Relay] and [Monitoring], each usable alone in
// anybody's CDK app, and the two stacks of the example app.
//
//	records := infra.NewTable(stack, "Records", nil)
//	records.GrantHandler(function, nil) // any IAM grantee
//
// [Table], [Function] and [Queue] are the CDK constructs that they are made of (a
// TableV2, a Lambda function, an SQS queue), the others have theirs as fields: so
// whatever CDK can do works too.
//
// # Checks
//
// What cannot work, or breaks the promise, becomes an error at synth time; what
// can be meant, a warning. Both say what to change. The CDK command line refuses
// to deploy a stack with errors; [Problems] lists them for everybody else. A
// warning can be acknowledged with awscdk.Annotations and its id.
//
// Names of attributes, index and environment variables come from package schema.
// This package imports neither the library nor the SDK: importing it compiles
// CDK and nothing else.
package infra
