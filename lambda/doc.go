// Package idemlambda makes AWS Lambda handlers idempotent: [Wrap] for handlers of
// plain JSON, [HTTPAPI] for API Gateway's HTTP APIs. Handlers keep the types and
// signatures that aws-lambda-go gives them.
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
// claim ends when Lambda would kill the function.
package idemlambda
