// Command payments is the function of the test from the HTTP request to the process.
package main

import (
	"context"
	"encoding/json"
	"net/http"
	"os"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-lambda-go/lambda"
)

func main() {
	lambda.Start(func(_ context.Context, event events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		if event.PathParameters["id"] == "crash" {
			os.Exit(1)
		}
		body, err := json.Marshal(event)
		return events.APIGatewayV2HTTPResponse{
			StatusCode: http.StatusCreated,
			Headers:    map[string]string{"X-Key": event.Headers["idempotency-key"], "Content-Type": "application/json"},
			Body:       string(body),
		}, err
	})
}
