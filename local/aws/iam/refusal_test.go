package iam

import (
	"context"
	"io"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	dynamo "github.com/aws/aws-sdk-go-v2/service/dynamodb"
	snsclient "github.com/aws/aws-sdk-go-v2/service/sns"
	snstypes "github.com/aws/aws-sdk-go-v2/service/sns/types"
	sqsclient "github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"
)

// The SDK's clients get the errors that they get on AWS.
func TestRefuse(t *testing.T) {
	r := role(t, noPuts)
	c := against(t, func(w http.ResponseWriter, req *http.Request) {
		body, _ := io.ReadAll(req.Body)
		requests, _ := Requests(req.Header, body, keyOf)
		Refuse(w, "Shop-Charge", r, requests[0], r.Allows(requests[0]))
	})
	lacks := func(action string) string {
		return " because no identity-based policy allows the " + action + " action"
	}
	for _, tc := range []struct {
		call       func(context.Context) error
		code, what string
		status     int
	}{
		{call(c.tables.GetItem, &dynamo.GetItemInput{TableName: aws.String("Books"), Key: key("a")}),
			"AccessDeniedException", "dynamodb:GetItem on resource: " + books + lacks("dynamodb:GetItem"), 400},
		{call(c.tables.PutItem, &dynamo.PutItemInput{TableName: aws.String("Books"), Item: key("a")}),
			"AccessDeniedException", "dynamodb:PutItem on resource: " + books + " with an explicit deny", 400},
		{call(c.queues.SendMessage, &sqsclient.SendMessageInput{QueueUrl: aws.String("http://h/000000000000/jobs"),
			MessageBody: aws.String("m")}),
			"AccessDenied", "sqs:sendmessage on resource: " + jobs + lacks("sqs:sendmessage"), 403},
		{call(c.topics.Publish, &snsclient.PublishInput{Message: aws.String("m"),
			TopicArn: aws.String("arn:aws:sns:us-east-1:000000000000:a&b")}),
			"AuthorizationError", "SNS:Publish on resource: arn:aws:sns:us-east-1:000000000000:a&b" + lacks("SNS:Publish"), 403},
	} {
		err := tc.call(t.Context())
		var api smithy.APIError
		require.ErrorAs(t, err, &api)
		require.Equal(t, tc.code, api.ErrorCode())
		require.Equal(t, "User: arn:aws:sts::000000000000:assumed-role/Shop-Role/Shop-Charge is not authorized to perform: "+
			tc.what, api.ErrorMessage())
		var response *smithyhttp.ResponseError
		require.ErrorAs(t, err, &response)
		require.Equal(t, tc.status, response.HTTPStatusCode())
		if known := (*snstypes.AuthorizationErrorException)(nil); tc.code == known.ErrorCode() {
			require.ErrorAs(t, err, &known)
		}
	}
}
