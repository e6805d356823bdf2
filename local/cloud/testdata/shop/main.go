// Command shop is a function behind an API and a queue, as a user would write it.
package main

import (
	"context"
	"encoding/json"
	"os"

	"github.com/aws/aws-lambda-go/events"
	awslambda "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

func main() { awslambda.Start(handle) }

func handle(ctx context.Context, event json.RawMessage) (any, error) {
	var http events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(event, &http); err == nil && http.RouteKey != "" {
		c, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		_, err = sqs.NewFromConfig(c).SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: aws.String(os.Getenv("ORDERS")), MessageBody: &http.Body, MessageGroupId: aws.String("one"),
			MessageDeduplicationId: &http.RequestContext.RequestID,
		})
		return "sent", err
	}
	println("got", string(event))
	return events.SQSEventResponse{}, nil
}
