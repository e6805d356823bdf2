// Package idemlambda makes AWS Lambda handlers idempotent: of plain JSON ([Wrap],
// [Async], [StepFunctions]), of HTTP requests ([HTTPAPI], [RESTAPI], [FunctionURL],
// [ALB]), and of events ([SQS], [SNS], [EventBridge], [S3], [Kinesis],
// [DynamoDBStream], [Kafka]). Handlers of requests keep the types and signatures that
// aws-lambda-go gives them; handlers of events take one message, notification or
// record at a time.
//
//	var Charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}
//
//	var byPaymentID = idemlambda.Pointer(idem.NoTenant, "/paymentId")
//
//	func main() {
//		…
//		lambda.Start(idemlambda.Wrap(engine, Charge, byPaymentID, charge))
//	}
//
// A mistake in the set-up (a nil engine, an operation that makes no sense) panics
// with a [*idem.ConfigError] where the handler is wrapped, as [net/http.Handle]
// does: the function then fails in its init phase, before it takes an event.
//
// The engine learns the invocation's deadline from the context: the lease of a
// claim ends when Lambda would kill the function. A middleware that shortens the context
// ends handlers early, and no claim of one that runs on. On Lambda Managed Instances, where
// it kills nothing and a handler that does not look at its context runs on, the
// lease is renewed until the handler returns, see [idem.WithKillTime].
//
// # HTTP
//
// What a client gets is the contract of package idemhttp, whatever the gateway;
// the adapters only translate. Where the tenant comes from:
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
// A claim must be one that its user cannot write: in a Cognito user pool a "custom:"
// attribute is one only if it is immutable or no app client may write it, which is not
// the default. Where several issuers' tokens reach one function their claims are told
// apart by idemhttp.IssuerClaim("sub").
//
// A concurrent duplicate that waits for the first request's response stops before the
// gateway gives up: 29 s after a
// REST API got it, 30 s for HTTP APIs, 60 s for load balancers.
//
// # Queues and other sources
//
// [SQS], [SNS], [EventBridge], [S3], [Kinesis], [DynamoDBStream] and [Kafka] make of a
// handler of one message, notification or record a handler of the service's events.
// [Reason] says what is acknowledged and what is redelivered. [Async] and [StepFunctions]
// are for the callers that get a result. Each source's doc says what its service
// promises about duplicates and for how long it retries; the retention follows. An
// operation's own retention that ends before its source's deliveries do lets a late one
// run again: where the operation is not repeatable it is a mistake in the set-up, else a
// warning is logged. Where your source delivers for another time than its service
// documents, say so in seconds: IDEM_QUEUE_REDELIVERY for [SQS], IDEM_EVENT_REDELIVERY for
// the others.
//
// A durable execution is not for these wrappers, see [ErrDurableExecution].
package idemlambda
