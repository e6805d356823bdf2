// Command shop is a function behind APIs, queues and schedules, as a user would write it. With a queue it sends the body
// of a request there, without one it answers with the event. As an authorizer it lets in who says "open sesame". It
// prints any other event, fails for one with the word "fail", and names all of its messages as failed for "name". With
// SLEEP it only works for that time.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/aws/aws-lambda-go/events"
	awslambda "github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
)

func main() { awslambda.Start(handle) }

func handle(ctx context.Context, event json.RawMessage) (any, error) {
	if d, err := time.ParseDuration(os.Getenv("SLEEP")); err == nil {
		println("begin", os.Getenv("TAG"))
		time.Sleep(d)
		println("end", os.Getenv("TAG"))
		return nil, nil
	}
	var http struct {
		events.APIGatewayV2HTTPRequest
		HTTPMethod, Type string
	}
	if err := json.Unmarshal(event, &http); err != nil {
		return nil, err
	}
	queue := cmp.Or(os.Getenv("ORDERS"), os.Getenv("QUEUE_ORDERS")) // of a template, and of flags
	switch {
	case http.Type != "":
		policy := events.APIGatewayCustomAuthorizerPolicy{Statement: []events.IAMPolicyStatement{
			{Effect: "Deny", Action: []string{"execute-api:Invoke"}, Resource: []string{cmp.Or(os.Getenv("ALLOWED"), "*")}},
		}}
		known := strings.Contains(string(event), "open sesame")
		if known {
			policy.Statement[0].Effect = "Allow"
		}
		return map[string]any{"isAuthorized": known, "principalId": "ada", "policyDocument": policy,
			"context": map[string]any{"tenant": "acme"}}, nil
	case http.RouteKey+http.HTTPMethod != "" && (http.RouteKey == "$default" || queue == ""):
		return map[string]any{"statusCode": 200, "body": string(event)}, nil
	case http.RouteKey != "":
		c, err := config.LoadDefaultConfig(ctx)
		if err != nil {
			return nil, err
		}
		_, err = sqs.NewFromConfig(c).SendMessage(ctx, &sqs.SendMessageInput{
			QueueUrl: &queue, MessageBody: &http.Body, MessageGroupId: aws.String("one"),
			MessageDeduplicationId: &http.RequestContext.RequestID,
		})
		return "sent", err
	case strings.Contains(string(event), "fail"):
		return nil, errors.New("it fails")
	}
	println("got", string(event))
	var messages events.SQSEvent
	var answer events.SQSEventResponse
	if strings.Contains(string(event), `"name"`) && json.Unmarshal(event, &messages) == nil {
		for _, m := range messages.Records {
			answer.BatchItemFailures = append(answer.BatchItemFailures, events.SQSBatchItemFailure{ItemIdentifier: m.MessageId})
		}
	}
	return answer, nil
}
