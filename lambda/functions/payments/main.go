// Command payments is the example behind an HTTP API (payload 2.0) or a REST API
// (payload 1.0): it charges and refunds, each under one idempotency key per request. It accepts
// statements for later: lambda/functions/statements makes them.
//
// Environment: IDEM_TABLE names the table, PROVIDER_URL the payment provider,
// IDEM_DYNAMODB_ENDPOINT a local DynamoDB (unset on AWS). PAYMENTS_API is the API's
// flavour: http, which is the default, or rest. PAYMENTS_TENANT is where the tenant is:
// jwt:<claim> (the default is jwt:sub), lambda:<member of the authorizer's context>, iam,
// or none.
package main

import (
	"os"

	"github.com/idem-go/idempotency/idem"
)

var operations = map[string]idem.Operation{
	// The provider takes the token as its own idempotency key: charging again is safe.
	"POST /payments": {Name: "charge", Repeat: idem.Repeatable},
	// The provider's refunds take no key: after an uncertain attempt no call may try again
	// until lambda/functions/refundsweeper has found out what became of it.
	"POST /refunds": {Name: "refund", Repeat: idem.NotRepeatable},
	// lambda/functions/statements makes them, under the same declaration.
	statementRoute: {Name: "statement", Repeat: idem.Repeatable},
}

func main() {
	start(func(engine *idem.Engine) (any, error) {
		payments := &service{provider: provider{os.Getenv("PROVIDER_URL")}}
		return payments.behind(engine, os.Getenv("PAYMENTS_API"), os.Getenv("PAYMENTS_TENANT"))
	})
}
