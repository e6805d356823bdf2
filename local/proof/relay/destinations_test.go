package relay

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
)

// One transaction, three services: each message goes where its destination leads,
// under its id.
func TestDestinations(t *testing.T) {
	t.Parallel()
	asked := make(chan []byte, 10)
	bus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- body
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_, _ = io.WriteString(w, `{"FailedEntryCount":0,"Entries":[{"EventId":"1"}]}`)
	}))
	t.Cleanup(bus.Close)
	topics := sns.New(sns.Options{
		BaseEndpoint: aws.String(queuetest.Endpoint(t)), Region: "us-east-1",
		Credentials: queuetest.Client(t).Options().Credentials,
	})
	topic, err := topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("t-" + rand.Text())})
	require.NoError(t, err)
	behind := queuetest.New(t, queuetest.Spec{})
	_, err = topics.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: topic.TopicArn, Protocol: aws.String("sqs"), Endpoint: &behind.ARN,
		Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	require.NoError(t, err)
	direct := queuetest.New(t, queuetest.Spec{})
	routes, err := json.Marshal(map[string]string{
		"orders": direct.URL, "prices": *topic.TopicArn, "audit": "arn:aws:events:us-east-1:000000000000:event-bus/audit",
	})
	require.NoError(t, err)

	r := newSetup(t, false, schema.EnvOutboxRoutes+"="+string(routes), schema.EnvOutboxSource+"=com.example.shop",
		"AWS_ENDPOINT_URL_SNS="+queuetest.Endpoint(t), "AWS_ENDPOINT_URL_EVENTBRIDGE="+bus.URL)
	k, destinations := place.Key(idem.SingleTenant, "o-1"), []string{"orders", "prices", "audit"}
	out, err := idem.Run(t.Context(), r.engine, k, "o-1",
		dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, in string) (string, error) {
			for _, d := range destinations {
				tx.Publish(d, outbox.Message{Destination: d, Body: []byte(`{"to":"` + d + `"}`)})
			}
			return in, nil
		}))
	require.NoError(t, err)
	for _, d := range destinations {
		r.want = append(r.want, outbox.MessageID(k.ID(), out.Outcome.CreatedAt, d))
	}
	p := r.poll()
	r.caughtUp(p, 3)
	r.allDispatched()

	for i, q := range []queuetest.Queue{direct, behind} {
		one := *r
		one.queue, one.want = q, r.want[i:i+1] // one of each
		bodies, ids := one.receive()
		one.nothingLost(ids)
		require.Equal(t, []string{`{"to":"` + []string{"orders", "prices"}[i] + `"}`}, bodies)
	}
	require.Len(t, asked, 1)
	var in struct {
		Entries []struct{ Detail string }
	}
	require.NoError(t, json.Unmarshal(<-asked, &in))
	require.Len(t, in.Entries, 1)
	require.Equal(t, `{"id":"`+r.want[2]+`","data":{"to":"audit"}}`, in.Entries[0].Detail)
}
