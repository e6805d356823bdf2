// Command shop is the function behind the routes.
package main

import (
	"context"
	"encoding/json"
	"log"
	"net/http"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"example.com/shop"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/outbox"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

type (
	request  = events.APIGatewayV2HTTPRequest
	response = events.APIGatewayV2HTTPResponse
)

var routes = idemhttp.Routes{
	"POST /orders":  {Name: "order", Repeat: idem.Repeatable},     // all that it does commits with its outcome
	"POST /refunds": {Name: "refund", Repeat: idem.NotRepeatable}, // the bank would pay a second time
}

func handle(ctx context.Context, r request) (response, error) {
	order, err := orderOf(ctx, r)
	switch {
	case err != nil:
		idem.SetNotExecuted(ctx) // the key stays free for a corrected body
		return answer(http.StatusBadRequest, []byte(`{"message": "send a number of cents"}`))
	case r.RouteKey == "POST /orders":
		dynamostore.TxOf(ctx).Publish("placed", outbox.Message{Destination: "orders", Body: order.JSON()})
	case r.RouteKey == "POST /refunds":
		log.Printf("the bank pays %d cents to %s", order.Cents, order.Customer) // ask the bank here
	}
	return answer(http.StatusCreated, order.JSON())
}

func orderOf(ctx context.Context, r request) (order shop.Order, err error) {
	err = json.Unmarshal([]byte(r.Body), &order)
	info, _ := idem.InfoOf(ctx)
	order.Customer, order.ID = info.Tenant, info.Token
	return order, err
}

func answer(status int, body []byte) (response, error) {
	headers := map[string]string{"Content-Type": "application/json"}
	return response{StatusCode: status, Headers: headers, Body: string(body)}, nil
}

func main() {
	lambda.Start(idemlambda.HTTPAPI(shop.Engine(), routes, idemhttp.Claim("sub"), nil, handle))
}
