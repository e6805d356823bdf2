package sqssender

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
)

func message(n int, key string) outbox.Message {
	return outbox.Message{
		ID: outbox.MessageID("r", time.UnixMilli(0), strconv.Itoa(n)), Destination: "orders", OrderingKey: key,
		Type: "order.placed",
		Body: []byte(`{"n":1}`), Attributes: map[string]string{"region": "eu"},
	}
}

// answering is a client whose service gives one answer, and the bodies it got.
func answering(t *testing.T, status int, kind, body string) (*sqs.Client, *[]string) {
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got = append(got, string(b))
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.Header().Set("X-Amzn-Errortype", kind)
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(srv.Close)
	return sqs.New(sqs.Options{
		BaseEndpoint: &srv.URL, Region: "eu-central-1", Retryer: aws.NopRetryer{},
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "a", SecretAccessKey: "b"}, nil
		}),
	}), &got
}

func sender(t *testing.T, client Client, url string) *Sender {
	s, err := New(client, url)
	require.NoError(t, err)
	return s
}

func TestRequest(t *testing.T) {
	for url, group := range map[string][]any{
		"https://sqs/1/orders":      {"acme", nil},
		"https://sqs/1/orders.fifo": {outbox.MessageID("r", time.UnixMilli(0), "0"), "k"},
	} {
		client, got := answering(t, 200, "",
			`{"Successful":[{"Id":"1","MessageId":"x","MD5OfMessageBody":"44b9b1b3a5c1cdc5f16e04c2c48f1f9a"}],"Failed":[]}`)
		messages := []outbox.Message{message(0, ""), message(1, "k")}
		messages[0].Body, messages[0].TenantGroup = []byte{0, 1}, "acme"
		errs := sender(t, noChecks{client}, url).Send(t.Context(), messages)
		require.ErrorContains(t, errs[0], "says nothing about the message")
		require.NoError(t, errs[1])
		require.Len(t, *got, 1)
		var in struct {
			QueueUrl string
			Entries  []map[string]any
		}
		require.NoError(t, json.Unmarshal([]byte((*got)[0]), &in))
		require.Equal(t, url, in.QueueUrl)
		require.Equal(t, "AAE=", in.Entries[0]["MessageBody"])
		require.Equal(t, `{"n":1}`, in.Entries[1]["MessageBody"])
		attr := func(v string) map[string]any { return map[string]any{"DataType": "String", "StringValue": v} }
		require.Equal(t, map[string]any{
			"region": attr("eu"), "idem-message-id": attr(messages[0].ID), "idem-type": attr("order.placed"),
			"idem-encoding": attr("base64"),
		}, in.Entries[0]["MessageAttributes"])
		for i := range messages {
			require.Equal(t, group[i], in.Entries[i]["MessageGroupId"])
			deduplicated, is := in.Entries[i]["MessageDeduplicationId"]
			require.Equal(t, strings.HasSuffix(url, ".fifo"), is)
			require.True(t, !is || deduplicated == messages[i].ID)
		}
	}
}

// noChecks switches off the client's checksums, which the made-up answers lack.
type noChecks struct{ *sqs.Client }

func (c noChecks) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput,
	_ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	return c.Client.SendMessageBatch(ctx, in, func(o *sqs.Options) { o.DisableMessageChecksumValidation = true })
}

func TestFailures(t *testing.T) {
	client, _ := answering(t, 200, "", `{"Successful":[],"Failed":[
		{"Id":"0","SenderFault":true,"Code":"InvalidMessageContents","Message":"no"},
		{"Id":"1","SenderFault":false,"Code":"InternalError","Message":"later"},
		{"Id":"2","SenderFault":true,"Code":"KmsAccessDenied","Message":"key"},
		{"Id":"77","SenderFault":true,"Code":"X"}]}`)
	errs := sender(t, client, "https://sqs/1/q").Send(t.Context(),
		[]outbox.Message{message(0, ""), message(1, ""), message(2, "")})
	require.ErrorIs(t, errs[0], outbox.ErrRejected)
	require.ErrorContains(t, errs[0], "InvalidMessageContents: no")
	require.NotErrorIs(t, errs[1], outbox.ErrRejected)
	require.ErrorContains(t, errs[1], "InternalError: later")
	require.NotErrorIs(t, errs[2], outbox.ErrRejected, "somebody can mend the key's permissions")

	for kind, c := range map[string]struct {
		status   int
		rejected bool
		requests int
	}{
		"InvalidParameterValue":     {400, true, 3},
		"QueueDoesNotExist":         {400, false, 1},
		"AccessDeniedException":     {403, false, 1},
		"ServiceUnavailable":        {503, false, 1},
		"RequestThrottledException": {400, false, 1},
	} {
		client, got := answering(t, c.status, kind, `{"__type":"com.amazonaws.sqs#`+kind+`","message":"m"}`)
		errs := sender(t, client, "https://sqs/1/q").Send(t.Context(), []outbox.Message{message(0, ""), message(1, "")})
		require.Len(t, *got, c.requests, kind)
		for _, err := range errs {
			require.ErrorContains(t, err, "sqs: ", kind)
			require.Equal(t, c.rejected, errors.Is(err, outbox.ErrRejected), kind)
		}
	}
}

func TestBadSenders(t *testing.T) {
	client, _ := answering(t, 200, "", "")
	_, err := New(client, "arn:aws:sqs:eu-central-1:1:q")
	require.ErrorContains(t, err, "not a queue URL")
	for _, none := range []Client{nil, (*sqs.Client)(nil)} {
		_, err := New(none, "https://sqs/1/q")
		require.ErrorContains(t, err, "client is nil")
	}
}

// A server takes what is sent, a FIFO queue drops what is sent again, and a standard queue
// has the tenants' groups.
func TestQueue(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		q := queuetest.New(t, queuetest.Spec{FIFO: fifo})
		s := sender(t, q.Client, q.URL)
		var messages []outbox.Message
		for n := range 23 {
			messages = append(messages, message(n, ""))
		}
		messages[7].Body = []byte(strings.Repeat("x", 200<<10))
		groups := map[string]string{messages[3].ID: protocol.TenantGroup("acme#op#1"),
			messages[4].ID: protocol.TenantGroup("s%C3%B6hne#op#2")}
		messages[3].TenantGroup, messages[4].TenantGroup = groups[messages[3].ID], groups[messages[4].ID]
		for range 2 {
			for _, err := range s.Send(t.Context(), messages) {
				require.NoError(t, err)
			}
		}
		ids := map[string]int{}
		all := queuetest.Drain(t, q.Client, q.URL)
		for _, m := range all {
			id := *m.MessageAttributes[outbox.AttributeID].StringValue
			ids[id]++
			require.Equal(t, "order.placed", *m.MessageAttributes[outbox.AttributeType].StringValue)
			if fifo {
				require.Equal(t, id, m.Attributes["MessageDeduplicationId"])
				require.Equal(t, id, m.Attributes["MessageGroupId"])
			} else {
				require.Equal(t, groups[id], m.Attributes["MessageGroupId"])
			}
		}
		require.Len(t, all, map[bool]int{false: 46, true: 23}[fifo])
		require.Len(t, ids, 23)
	}
}
