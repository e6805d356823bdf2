// Package infra is for those who deploy a service that uses idem with the CDK. It has the constructs
// [Table], [Function], [Queue], [API], [Later], [Relay], [Sweeper] and [Monitoring], which each
// work alone in any CDK app, and the two stacks of the example app.
//
//	records := infra.NewTable(stack, "Records", nil)
//	records.GrantHandler(function, nil) // any IAM grantee
//
// [Table], [Function] and [Queue] embed their CDK constructs (a TableV2, a Lambda function,
// an SQS queue), and the others have theirs as fields, so all features of CDK are available.
//
// # Checks
//
// A setting that cannot work, or breaks the promise, becomes an error at synth time. A
// setting that may be intended becomes a warning. Both say what to change. The CDK command
// line refuses to deploy a stack with errors; other programs can list them with [Problems].
// A warning can be acknowledged with awscdk.Annotations and its id.
//
// Names of attributes, index and environment variables come from package schema.
// This package does not import the library or the SDK: importing it compiles only CDK.
package infra

import _ "github.com/idem-go/idempotency/infra/internal/quiet"
