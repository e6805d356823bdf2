// Package idemlambda makes AWS Lambda handlers idempotent: of plain JSON ([Wrap],
// [Async], [StepFunctions]), of HTTP requests ([HTTPAPI], [RESTAPI], [FunctionURL],
// [ALB]), and of events ([SQS], [SNS], [EventBridge], [S3], [Kinesis],
// [DynamoDBStream], [Kafka]). Handlers of requests keep the types and signatures that
// aws-lambda-go gives them; handlers of events take one message, notification or
// record at a time.
//
//	var Charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}
//
//	var byPaymentID = idemlambda.Pointer(idem.SingleTenant, "/paymentId")
//
//	func main() {
//		…
//		lambda.Start(idemlambda.Wrap(engine, Charge, byPaymentID, charge))
//	}
//
// A mistake in the set-up (a nil engine, an invalid operation) panics with a
// [*idem.ConfigError] where the handler is wrapped, as [net/http.Handle] does. The
// function then fails in its init phase, before it takes an event.
//
// The engine learns the invocation's deadline from the context: the lease of a
// claim ends when Lambda would kill the function. A middleware that shortens the context
// ends handlers early, but the claim of a handler that keeps running stays. On Lambda
// Managed Instances a time-out does not kill the function, and a handler that ignores its
// context keeps running. The lease is therefore renewed until the handler returns, see
// [idem.WithKillTime].
//
// # HTTP
//
// Clients get the contract of package idemhttp behind every gateway; the adapters only
// translate. The tenant comes from:
//
//	HTTPAPI      JWT authorizer     idemhttp.Claim("sub")
//	             Lambda authorizer  idemhttp.AuthorizerValue("tenantId"), simple or policy
//	             IAM                idemhttp.IAMAccount, idemhttp.IAMUser
//	RESTAPI      Cognito user pool  idemhttp.Claim("sub")
//	             Lambda authorizer  idemhttp.AuthorizerValue("principalId")
//	             IAM                idemhttp.IAMAccount, idemhttp.IAMUser
//	             usage plan         idemhttp.APIKey
//	FunctionURL  IAM                idemhttp.IAMAccount, idemhttp.IAMUser
//	ALB          none               a function of your own
//	any          tenant isolation   idemhttp.LambdaTenant
//
// The user must not be able to write the claim. A "custom:" attribute of a Cognito user
// pool must be immutable or not writable by any app client, which is not the default. If
// tokens of several issuers reach one function, idemhttp.IssuerClaim("sub") keeps their
// claims apart.
//
// A concurrent duplicate that waits for the first request's response stops before the
// gateway gives up: 29 s after a REST API got the request, 30 s for HTTP APIs, 60 s for
// load balancers.
//
// # Queues and other sources
//
// [SQS], [SNS], [EventBridge], [S3], [Kinesis], [DynamoDBStream] and [Kafka] turn a
// handler of one message, notification or record into a handler of the service's events.
// [Reason] says what is acknowledged and what is redelivered. [Async] and [StepFunctions]
// are for callers that get a result.
//
// The documentation of each source says what its service promises about duplicates and for
// how long it retries. The default retention is longer than that. If an operation sets a
// retention that ends before the source stops delivering, a late delivery runs again: for
// an operation that is not repeatable that is a mistake in the set-up, for a repeatable one
// a warning is logged. If your source delivers for another time than its service documents,
// set that time in seconds: IDEM_QUEUE_REDELIVERY for [SQS], IDEM_EVENT_REDELIVERY for the
// others.
//
// These wrappers refuse durable executions, see [ErrDurableExecution].
package idemlambda
