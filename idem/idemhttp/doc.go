// Package idemhttp is the HTTP contract of idempotent requests: which requests need a key,
// what a client gets when it sends one again, and how a response is kept so that its replay
// is the same, byte for byte. It works on a neutral [Request] and [Response]. Each gateway
// that passes requests to a service, such as API Gateway, a load balancer or a net/http
// server, has an adapter that translates: package idemlambda has those of Lambda, and
// [Contract.Middleware] is the one of net/http.
//
//	contract, err := idemhttp.New(engine, idemhttp.Routes{"POST /payments": Charge}, idemhttp.Claim("sub"), nil)
//	res, err := contract.Serve(ctx, req, next)
//
// With net/http it is one line; nil stands for the defaults of [MiddlewareOptions]:
//
//	mux.Handle("POST /payments", contract.Middleware(handler, nil))
//
// # What a client gets
//
// The key comes in the Idempotency-Key header, bare or as a structured-field
// string (RFC 9651); both forms name the same key. For producers without headers it
// can come from the body or a function, for all routes or for single ones ([Options.ByRoute]). By
// default only POST and PATCH need a key; requests with other methods are passed on unchanged, and so
// are those of routes that are [Unprotected]. Refusals are problem details (RFC 9457) with
// a stable code, and say nothing about other clients' requests. This package's
// README.md has the table of all codes, written for the clients.
//
// The contract is that of an expired draft that many services follow, see [IETF]. The
// [Stripe] profile has Stripe's bodies, keys and header of a replay. [Options.OnRefusal]
// changes single answers. If the first request still runs, a repeat can also wait for
// its response ([idem.Options].Wait), until shortly before the gateway gives up
// ([Request.GatewayDeadline]).
//
// # What is kept
//
// The response's status decides. 2xx, 3xx and 4xx are outcomes and are replayed. A 4xx is a
// refusal: it is recorded, the unit of work (dynamostore.TxOf) is dropped, and the
// steps are undone, as after an error elsewhere. A handler that wants to record the refusal
// and also commit its unit of work calls [idem.SetCompleted]. After 408, 5xx and all other
// statuses it is open whether something was executed, and the operation's declaration
// decides.
//
// Handlers usually answer 401, 403, 425 and 429 before they do anything: the same key may
// then try again. But a handler may also pass on another service's 429 after it has charged
// a card. These statuses therefore count as not executed only if the attempt has shown no
// sign of an effect: it has not asked for its token ([idem.Token], [idem.InfoOf]), reached
// a step, asked for its unit of work or called another operation. After a sign the
// declaration decides. An effect without the token shows no sign: an operation that is not
// repeatable should send the token, or answer with another status.
//
// If there is no such sign, a redirect with 307 or 308 leaves the key free for the request
// to its target, and a response that is not recorded ([idem.ClassRefused], the Stripe
// profile's 400) leaves it free for a corrected body. After any other response the key
// belongs to its request: another body under it is refused with 422, which has the status of
// the first answer if the tenant is the same. A handler that validates before it does anything
// calls [idem.SetNotExecuted] before it returns its 400.
//
// What takes longer than a connection is accepted for later: [Options.Later] records the request
// for a worker, answers with 202, and serves the status that the 202 names.
//
// A handler that knows more calls [idem.SetNotExecuted] or [idem.SetCompleted], or the operation
// has a rule in [idem.Operation.Classify]. [Options.Status] changes what a status means
// everywhere. An error in place of a response is answered with a problem if it says what became of
// the operation, by [idem.NotExecuted] with 503 and by [idem.Permanent] with 500.
//
// Status, headers in the handler's own spelling, and body are kept. Cookies,
// hop-by-hop and authentication headers are not: they belong to one exchange. The
// first caller gets the same bytes as every later one, except for what the service
// removes from the record ([Options.Redact]) or renews in a replay ([Options.Refresh],
// [Options.Migrate]). A replay also has the first response's headers that depend on the
// request, such as Content-Encoding and Access-Control-Allow-Origin.
// Compress outside the contract, and answer for CORS there or in Refresh.
package idemhttp
