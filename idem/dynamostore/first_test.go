package dynamostore

import (
	"context"
	"net/http"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// Both writes of a first execution, with 200 bytes of result, take 1,300 bytes at most.
func TestAFirstExecutionSendsLittle(t *testing.T) {
	var bodies []string
	w := &wire{fault: func(_ int, _ string, req *http.Request) (*http.Response, error) {
		bodies = append(bodies, bodyOf(t, req))
		return answer(http.StatusOK, "{}"), nil
	}}
	client, err := NewClient(aws.Config{}, &ClientOptions{Endpoint: "http://127.0.0.1:1", Transport: w})
	require.NoError(t, err)
	store, err := New(client, "table", nil)
	require.NoError(t, err)
	engine, err := idem.New(store, nil)
	require.NoError(t, err)
	key := idem.Operation{Name: "charge", Repeat: idem.Repeatable}.Key("acme", "order-1000000")
	out, err := engine.Execute(t.Context(), idem.Call{Key: key, Fingerprint: "1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k",
		Run: func(context.Context) idem.Answer { return idem.Answer{Body: noise(200)} }})
	require.NoError(t, err)
	require.Equal(t, idem.Completed, out.RecordState)
	require.Equal(t, []string{"PutItem", "UpdateItem"}, w.calls())
	require.LessOrEqual(t, len(bodies[0])+len(bodies[1]), 1300)
}
