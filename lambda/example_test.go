package idemlambda_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

type Payment struct {
	ID     string `json:"paymentId"`
	Amount int    `json:"amount"`
}

type Receipt struct {
	Charge string `json:"charge"`
}

var Charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}

var byPaymentID = idemlambda.Pointer(idem.SingleTenant, "/paymentId")

func charge(ctx context.Context, p Payment) (Receipt, error) {
	fmt.Println("charging", p.Amount)
	return Receipt{Charge: "ch_" + p.ID}, nil
}

func ExampleWrap() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	handler := idemlambda.Wrap(engine, Charge, byPaymentID, charge) // for lambda.Start

	for range 2 {
		out, err := handler.Invoke(context.Background(), []byte(`{"paymentId":"p1","amount":4999}`))
		fmt.Println(string(out), err)
	}
	// Output:
	// charging 4999
	// {"charge":"ch_p1"} <nil>
	// {"charge":"ch_p1"} <nil>
}

func ExampleKeyFrom() {
	key := idemlambda.KeyFrom(func(p Payment) (tenant, value string) { return idem.SingleTenant, p.ID })
	_, value, err := key(context.Background(), []byte(`{"paymentId":"p1"}`))
	fmt.Println(value, err)
	// Output: p1 <nil>
}

func ExampleHTTPAPI() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	post := func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		fmt.Println("charging")
		return events.APIGatewayV2HTTPResponse{StatusCode: 201, Body: `{"charge":"ch_1"}`}, nil
	}
	handler := idemlambda.HTTPAPI(engine, idemhttp.Routes{"POST /payments": Charge},
		idemhttp.Claim("sub"), nil, post) // for lambda.Start

	event := events.APIGatewayV2HTTPRequest{
		RouteKey: "POST /payments",
		Headers:  map[string]string{"idempotency-key": "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "POST"},
			Authorizer: &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
				JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "alice"}},
			},
		},
	}
	for range 2 {
		res, _ := handler(context.Background(), event)
		fmt.Printf("%d %s %q\n", res.StatusCode, res.Body, res.Headers[idemhttp.HeaderReplayed])
	}
	// Output:
	// charging
	// 201 {"charge":"ch_1"} ""
	// 201 {"charge":"ch_1"} "true"
}
