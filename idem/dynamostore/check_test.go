package dynamostore

import (
	"context"
	"net/http"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	smithyhttp "github.com/aws/smithy-go/transport/http"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
)

// refusing is a client that refuses with an error.
type refusing struct{ err error }

// refused is an error as DynamoDB answers with it.
func refused(err error) error {
	return &smithyhttp.ResponseError{Response: &smithyhttp.Response{Response: &http.Response{StatusCode: http.StatusBadRequest}}, Err: err}
}

func (r refusing) DescribeTable(context.Context, *dynamodb.DescribeTableInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTableOutput, error) {
	return nil, r.err
}

func (r refusing) DescribeTimeToLive(context.Context, *dynamodb.DescribeTimeToLiveInput, ...func(*dynamodb.Options)) (*dynamodb.DescribeTimeToLiveOutput, error) {
	return nil, r.err
}

// TestCheckExplainsOnce: what to do is said once, and about the table that was named.
func TestCheckExplainsOnce(t *testing.T) {
	message := "not found"
	for name, c := range map[string]struct {
		err  error
		want string
	}{
		"missing":     {&types.ResourceNotFoundException{Message: &message}, "does not exist in this region"},
		"not allowed": {api("AccessDeniedException"), "allow dynamodb:DescribeTable on it"},
		"credentials": {api("UnrecognizedClientException"), "cannot be reached with these credentials"},
		"other":       {api("SomethingElseException"), "cannot be checked with dynamodb:DescribeTable"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(t.Context(), refusing{refused(c.err)}, "payments")
			var config *protocol.ConfigError
			require.ErrorAs(t, err, &config)
			require.ErrorIs(t, err, c.err)
			require.ErrorContains(t, err, c.want)
			require.ErrorContains(t, err, `table "payments"`)
			require.NotContains(t, err.Error(), `table ""`)
			require.Equal(t, 1, strings.Count(err.Error(), "dynamostore: table"), err.Error())
		})
	}
}
