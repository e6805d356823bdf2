package snssender

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
)

const topic = "arn:aws:sns:eu-central-1:111122223333:orders"

func message(n int, key string) outbox.Message {
	return outbox.Message{
		ID: outbox.MessageID("r", time.UnixMilli(0), strconv.Itoa(n)), Destination: "orders", OrderingKey: key,
		Type: "order.placed",
		Body: []byte(`{"n":1}`), Attributes: map[string]string{"region": "eu"},
	}
}

func client(endpoint string) *sns.Client {
	return sns.New(sns.Options{
		BaseEndpoint: &endpoint, Region: "us-east-1", Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "idemlocal", SecretAccessKey: "idemlocal"}, nil
		}),
	})
}

// answering is a sender whose service gives one answer, and the forms it got.
func answering(t *testing.T, arn string, status int, body string) (*Sender, *[]url.Values) {
	var got []url.Values
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := r.ParseForm(); err == nil {
			got = append(got, r.PostForm)
		}
		w.Header().Set("Content-Type", "text/xml")
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	s, err := New(client(srv.URL), arn)
	require.NoError(t, err)
	return s, &got
}

const answer = `<PublishBatchResponse ` +
	`xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult>%s</PublishBatchResult></PublishBatchResponse>`

func TestRequest(t *testing.T) {
	for arn, group := range map[string][]string{
		topic:           {"", ""},
		topic + ".fifo": {outbox.MessageID("r", time.UnixMilli(0), "0"), "k"},
	} {
		s, got := answering(t, arn, 200,
			fmt.Sprintf(answer, `<Successful><member><Id>1</Id><MessageId>x</MessageId></member></Successful>`))
		messages := []outbox.Message{message(0, ""), message(1, "k")}
		messages[0].Body = []byte{0, 1}
		errs := s.Send(t.Context(), messages)
		require.ErrorContains(t, errs[0], "says nothing about the message")
		require.NoError(t, errs[1])
		require.Len(t, *got, 1)
		form := (*got)[0]
		require.Equal(t, arn, form.Get("TopicArn"))
		require.Equal(t, "AAE=", form.Get("PublishBatchRequestEntries.member.1.Message"))
		require.Equal(t, `{"n":1}`, form.Get("PublishBatchRequestEntries.member.2.Message"))
		tags := map[string]string{}
		for n := 1; ; n++ {
			at := fmt.Sprintf("PublishBatchRequestEntries.member.1.MessageAttributes.entry.%d.", n)
			if form.Get(at+"Name") == "" {
				break
			}
			require.Equal(t, "String", form.Get(at+"Value.DataType"))
			tags[form.Get(at+"Name")] = form.Get(at + "Value.StringValue")
		}
		require.Equal(t, map[string]string{
			"region": "eu", "idem-message-id": messages[0].ID, "idem-type": "order.placed", "idem-encoding": "base64",
		}, tags)
		for i := range messages {
			at := fmt.Sprintf("PublishBatchRequestEntries.member.%d.", i+1)
			require.Equal(t, group[i], form.Get(at+"MessageGroupId"))
			want := messages[i].ID
			if group[i] == "" {
				want = ""
			}
			require.Equal(t, want, form.Get(at+"MessageDeduplicationId"))
		}
	}
}

func TestFailures(t *testing.T) {
	s, _ := answering(t, topic, 200, fmt.Sprintf(answer, `<Failed>
		<member><Id>0</Id><SenderFault>true</SenderFault><Code>InvalidParameter</Code><Message>no</Message></member>
		<member><Id>1</Id><SenderFault>false</SenderFault><Code>InternalError</Code><Message>later</Message></member>
		<member><Id>x</Id></member></Failed>`))
	errs := s.Send(t.Context(), []outbox.Message{message(0, ""), message(1, "")})
	require.ErrorIs(t, errs[0], outbox.ErrRejected)
	require.ErrorContains(t, errs[0], "InvalidParameter: no")
	require.NotErrorIs(t, errs[1], outbox.ErrRejected)
	require.ErrorContains(t, errs[1], "InternalError: later")

	for _, c := range []struct {
		code, message string
		status        int
		rejected      bool
		requests      int
	}{
		{"InvalidParameter", "Invalid parameter: Message too long", 400, true, 3},
		{"InvalidParameter", "Invalid parameter: TopicArn", 400, false, 1},
		{"NotFound", "Topic does not exist", 404, false, 1},
		{"AuthorizationError", "no", 403, false, 1},
		{"InternalError", "later", 500, false, 1},
	} {
		s, got := answering(t, topic, c.status, fmt.Sprintf(
			`<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type>`+
				`<Code>%s</Code><Message>%s</Message></Error></ErrorResponse>`, c.code, c.message))
		errs := s.Send(t.Context(), []outbox.Message{message(0, ""), message(1, "")})
		require.Len(t, *got, c.requests, c.message)
		for _, err := range errs {
			require.ErrorContains(t, err, "sns: ")
			require.Equal(t, c.rejected, errors.Is(err, outbox.ErrRejected), c.message)
		}
	}
}

func TestBadSenders(t *testing.T) {
	_, err := New(client("http://127.0.0.1:1"), "arn:aws:sqs:eu-central-1:1:q")
	require.ErrorContains(t, err, "not a topic ARN")
	for _, none := range []Client{nil, (*sns.Client)(nil)} {
		_, err := New(none, topic)
		require.ErrorContains(t, err, "client is nil")
	}
}

// A server takes what is sent and passes it on, with its attributes.
func TestTopic(t *testing.T) {
	q := queuetest.New(t, queuetest.Spec{})
	c := client(queuetest.Endpoint(t))
	made, err := c.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("t-" + rand.Text())})
	require.NoError(t, err)
	_, err = c.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: made.TopicArn, Protocol: aws.String("sqs"), Endpoint: &q.ARN,
		Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	require.NoError(t, err)
	s, err := New(c, *made.TopicArn)
	require.NoError(t, err)
	var messages []outbox.Message
	for n := range 12 {
		messages = append(messages, message(n, ""))
	}
	for _, err := range s.Send(t.Context(), messages) {
		require.NoError(t, err)
	}
	ids := map[string]bool{}
	for _, m := range queuetest.Drain(t, q.Client, q.URL) {
		require.Equal(t, `{"n":1}`, *m.Body)
		ids[*m.MessageAttributes[outbox.AttributeID].StringValue] = true
	}
	require.Len(t, ids, 12)
}
