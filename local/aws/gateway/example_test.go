package gateway_test

import (
	"context"
	"fmt"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/idem-go/idempotency/local/aws/gateway"
)

func charge(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
	return events.APIGatewayV2HTTPResponse{StatusCode: http.StatusCreated}, nil // a debugger stops here, once
}

// A gateway and the handler in one process, for a debugger. With http.ListenAndServe("127.0.0.1:8080", api) in place of
// the test server it answers curl. A client waits for 30 s, and the handler for the debugger.
func Example_debugger() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		log.Fatal(err)
	}
	routes := idemhttp.Routes{"POST /payments": {Name: "charge", Repeat: idem.Repeatable}}
	handler := lambda.NewHandler(idemlambda.HTTPAPI(engine, routes, idemhttp.SingleTenant, nil, charge))
	api, err := gateway.New(map[string]gateway.Invoke{"POST /payments": handler.Invoke}, nil)
	if err != nil {
		log.Fatal(err)
	}
	server := httptest.NewServer(api)
	defer server.Close()

	for range 2 {
		req, _ := http.NewRequest(http.MethodPost, server.URL+"/payments", strings.NewReader(`{"cents": 1999}`))
		req.Header = http.Header{"Idempotency-Key": {"payment-000000001"}, "Content-Type": {"application/json"}}
		res, err := http.DefaultClient.Do(req)
		if err != nil {
			log.Fatal(err)
		}
		res.Body.Close()
		fmt.Println(res.StatusCode, "replayed:", res.Header.Get("Idempotency-Replayed") == "true")
	}
	// Output:
	// 201 replayed: false
	// 201 replayed: true
}
