// The senders are tested together, in a package that nothing imports: the checksums of what it needs come into no
// module of a user.
package senders_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eventbridge"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/outbox/eventbridgesender"
	"github.com/idem-go/idempotency/idem/outbox/snssender"
	"github.com/idem-go/idempotency/idem/outbox/sqssender"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
)

const (
	queue  = "https://sqs/1/orders"
	topic  = "arn:aws:sns:eu-central-1:111122223333:orders"
	source = "com.example.orders"

	// accepted is the reply of SNS to a batch.
	accepted = `<PublishBatchResponse ` +
		`xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><PublishBatchResult>%s</PublishBatchResult></PublishBatchResponse>`
)

func id(n int) string { return outbox.MessageID("r", time.UnixMilli(0), strconv.Itoa(n)) }

func message(n int, key string) outbox.Message {
	return outbox.Message{
		ID: id(n), Destination: "orders", OrderingKey: key, Type: "order.placed", Body: []byte(`{"n":1}`),
		Attributes: map[string]string{"region": "eu"},
	}
}

func several(count int) (all []outbox.Message) {
	for n := range count {
		all = append(all, message(n, ""))
	}
	return all
}

// config is that of a client that makes each request once.
func config(endpoint string) aws.Config {
	return aws.Config{
		BaseEndpoint: &endpoint, Region: "us-east-1", Retryer: func() aws.Retryer { return aws.NopRetryer{} },
		Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) {
			return aws.Credentials{AccessKeyID: "idemlocal", SecretAccessKey: "idemlocal"}, nil
		}),
	}
}

// reply is what a service answers to each request.
type reply struct {
	status     int
	kind, body string // kind of an error, but for SNS, which has it in the body
}

// answering is the configuration of a client whose service gives one answer, and the bodies it got.
func answering(t *testing.T, r reply) (aws.Config, *[]string) {
	var got []string
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		b, _ := io.ReadAll(q.Body)
		got = append(got, string(b))
		w.Header().Set("X-Amzn-Errortype", r.kind)
		w.WriteHeader(r.status)
		_, _ = io.WriteString(w, r.body)
	}))
	t.Cleanup(srv.Close)
	return config(srv.URL), &got
}

// noChecks switches off the client's checksums, which the made-up answers lack.
type noChecks struct{ *sqs.Client }

func (c noChecks) SendMessageBatch(ctx context.Context, in *sqs.SendMessageBatchInput,
	_ ...func(*sqs.Options)) (*sqs.SendMessageBatchOutput, error) {
	return c.Client.SendMessageBatch(ctx, in, func(o *sqs.Options) { o.DisableMessageChecksumValidation = true })
}

func toQueue(t *testing.T, cfg aws.Config, url string) outbox.Sender {
	s, err := sqssender.New(noChecks{sqs.NewFromConfig(cfg)}, url)
	require.NoError(t, err)
	return s
}

func toTopic(t *testing.T, cfg aws.Config, arn string) outbox.Sender {
	s, err := snssender.New(sns.NewFromConfig(cfg), arn)
	require.NoError(t, err)
	return s
}

func toBus(t *testing.T, cfg aws.Config, bus string) outbox.Sender {
	s, err := eventbridgesender.New(eventbridge.NewFromConfig(cfg), bus, source)
	require.NoError(t, err)
	return s
}

func TestRequestToSQS(t *testing.T) {
	for url, group := range map[string][]any{queue: {"acme", nil}, queue + ".fifo": {id(0), "k"}} {
		cfg, got := answering(t, reply{200, "",
			`{"Successful":[{"Id":"1","MessageId":"x","MD5OfMessageBody":"44b9b1b3a5c1cdc5f16e04c2c48f1f9a"}],"Failed":[]}`})
		messages := []outbox.Message{message(0, ""), message(1, "k")}
		messages[0].Body, messages[0].TenantGroup = []byte{0, 1}, "acme"
		sent := toQueue(t, cfg, url).Send(t.Context(), messages)
		require.ErrorContains(t, sent[0].Err, "says nothing about the message")
		require.Equal(t, outbox.Sent{ID: "x"}, sent[1])
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
			"region": attr("eu"), "idem-message-id": attr(id(0)), "idem-type": attr("order.placed"),
			"idem-encoding": attr("base64"),
		}, in.Entries[0]["MessageAttributes"])
		for i := range messages {
			require.Equal(t, group[i], in.Entries[i]["MessageGroupId"])
			deduplicated, is := in.Entries[i]["MessageDeduplicationId"]
			require.Equal(t, strings.HasSuffix(url, ".fifo"), is)
			require.True(t, !is || deduplicated == id(i))
		}
	}
}

func TestRequestToSNS(t *testing.T) {
	for arn, of := range map[string]struct{ groups, deduplicated []string }{
		topic:           {[]string{"", ""}, []string{"", ""}},
		topic + ".fifo": {[]string{id(0), "k"}, []string{id(0), id(1)}},
	} {
		cfg, got := answering(t, reply{200, "",
			fmt.Sprintf(accepted, `<Successful><member><Id>1</Id><MessageId>x</MessageId></member></Successful>`)})
		messages := []outbox.Message{message(0, ""), message(1, "k")}
		messages[0].Body = []byte{0, 1}
		sent := toTopic(t, cfg, arn).Send(t.Context(), messages)
		require.ErrorContains(t, sent[0].Err, "says nothing about the message")
		require.Equal(t, outbox.Sent{ID: "x"}, sent[1])
		require.Len(t, *got, 1)
		form, err := url.ParseQuery((*got)[0])
		require.NoError(t, err)
		entry := func(n int, name string) string {
			return form.Get(fmt.Sprintf("PublishBatchRequestEntries.member.%d.%s", n+1, name))
		}
		require.Equal(t, arn, form.Get("TopicArn"))
		require.Equal(t, "AAE=", entry(0, "Message"))
		require.Equal(t, `{"n":1}`, entry(1, "Message"))
		tags := map[string]string{}
		for n := 1; ; n++ {
			at := fmt.Sprintf("MessageAttributes.entry.%d.", n)
			if entry(0, at+"Name") == "" {
				break
			}
			require.Equal(t, "String", entry(0, at+"Value.DataType"))
			tags[entry(0, at+"Name")] = entry(0, at+"Value.StringValue")
		}
		require.Equal(t, map[string]string{
			"region": "eu", "idem-message-id": id(0), "idem-type": "order.placed", "idem-encoding": "base64",
		}, tags)
		for i := range messages {
			require.Equal(t, of.groups[i], entry(i, "MessageGroupId"))
			require.Equal(t, of.deduplicated[i], entry(i, "MessageDeduplicationId"))
		}
	}
}

func TestRequestToEventBridge(t *testing.T) {
	cfg, got := answering(t, reply{200, "", `{"FailedEntryCount":0,"Entries":[{"EventId":"1"},{"EventId":"2"}]}`})
	messages := several(2)
	messages[0].ContentType, messages[0].Body = "application/json", []byte(`{"n": 9007199254740993, "h": "<&>"}`)
	messages[1].Type, messages[1].Attributes, messages[1].Body = "", nil, []byte{0, 1}
	require.Equal(t, []outbox.Sent{{ID: "1"}, {ID: "2"}}, toBus(t, cfg, "payments").Send(t.Context(), messages))
	require.Len(t, *got, 1)
	var in struct {
		Entries []struct{ Source, DetailType, Detail, EventBusName string }
	}
	require.NoError(t, json.Unmarshal([]byte((*got)[0]), &in))
	require.Equal(t, `{"id":"`+id(0)+`","contentType":"application/json",`+
		`"attributes":{"region":"eu"},"data":{"n":9007199254740993,"h":"<&>"}}`, in.Entries[0].Detail)
	require.JSONEq(t, `{"id":"`+id(1)+`","dataBase64":"AAE="}`, in.Entries[1].Detail)
	require.Equal(t, "order.placed", in.Entries[0].DetailType)
	require.Equal(t, "orders", in.Entries[1].DetailType)
	for _, e := range in.Entries {
		require.Equal(t, source, e.Source)
		require.Equal(t, "payments", e.EventBusName)
	}
}

// Ten at a time, and no more than fit.
func TestBatches(t *testing.T) {
	cfg, got := answering(t, reply{200, "", `{"Entries":[` + strings.Repeat(`{"EventId":"1"},`, 9) + `{"EventId":"1"}]}`})
	messages := several(15)
	for n := range 3 {
		messages[12+n].Body = []byte(`"` + strings.Repeat("x", 100<<10) + `"`)
	}
	toBus(t, cfg, "default").Send(t.Context(), messages)
	var sizes []int
	for _, body := range *got {
		sizes = append(sizes, strings.Count(body, "DetailType"))
	}
	require.Equal(t, []int{10, 4, 1}, sizes)
}

// A reply says of each message whether it was taken, and whether it could be if it was sent again.
func TestFailuresOfMessages(t *testing.T) {
	const taken = "" // in place of what the error says
	for name, c := range map[string]struct {
		open           func(*testing.T, aws.Config, string) outbox.Sender
		to, body       string
		rejected, says []string
	}{
		"sqs": {toQueue, queue, `{"Successful":[],"Failed":[
			{"Id":"0","SenderFault":true,"Code":"InvalidMessageContents","Message":"no"},
			{"Id":"1","SenderFault":false,"Code":"InternalError","Message":"later"},
			{"Id":"2","SenderFault":true,"Code":"KmsAccessDenied","Message":"an operator can correct it"},
			{"Id":"3","SenderFault":true,"Code":"InvalidParameterValue","Message":"not valid for this queue type"},
			{"Id":"4","SenderFault":true,"Code":"MissingParameter","Message":"must contain the parameter MessageGroupId"},
			{"Id":"5","SenderFault":true,"Code":"AWS.SimpleQueueService.NonExistentQueue","Message":"no"},
			{"Id":"77","SenderFault":true,"Code":"X"}]}`,
			[]string{"InvalidMessageContents: no"}, []string{"InternalError: later", "KmsAccessDenied: an operator",
				"queue type", "MissingParameter", "NonExistentQueue"}},
		"sns": {toTopic, topic, fmt.Sprintf(accepted, `<Failed>
			<member><Id>0</Id><SenderFault>true</SenderFault><Code>InvalidParameter</Code><Message>no</Message></member>
			<member><Id>1</Id><SenderFault>false</SenderFault><Code>InternalError</Code><Message>later</Message></member>
			<member><Id>2</Id><SenderFault>true</SenderFault><Code>InvalidParameter</Code>
				<Message>The MessageGroupId parameter is required for FIFO topics</Message></member>
			<member><Id>3</Id><SenderFault>true</SenderFault><Code>KMSAccessDenied</Code><Message>no</Message></member>
			<member><Id>x</Id></member></Failed>`),
			[]string{"InvalidParameter: no"}, []string{"InternalError: later", "FIFO topics", "KMSAccessDenied"}},
		"eventbridge": {toBus, "default", `{"FailedEntryCount":5,"Entries":[
			{"ErrorCode":"MalformedDetail","ErrorMessage":"no"},{"EventId":"1"},
			{"ErrorCode":"ThrottlingException","ErrorMessage":"later"},{"ErrorCode":"NotAuthorizedForSourceException"},
			{"ErrorCode":"InvalidArgument","ErrorMessage":"Parameter EventBusName is not valid"},
			{"ErrorCode":"ResourceNotFoundException","ErrorMessage":"Event bus payments does not exist"},{}]}`,
			[]string{"MalformedDetail: no"},
			[]string{taken, "ThrottlingException: later", "NotAuthorized", "EventBusName", "ResourceNotFound", "says nothing",
				"says nothing"}},
	} {
		cfg, _ := answering(t, reply{200, "", c.body})
		for i, sent := range c.open(t, cfg, c.to).Send(t.Context(), several(len(c.rejected)+len(c.says))) {
			err := sent.Err
			says, rejected := append(c.rejected, c.says...)[i], i < len(c.rejected)
			require.Equal(t, says == taken, err == nil, name)
			require.Equal(t, rejected, errors.Is(err, outbox.ErrRejected), says)
			if err != nil {
				require.ErrorContains(t, err, name+": ")
				require.ErrorContains(t, err, says)
			}
		}
	}
}

// A request that fails as a whole for what one message has is made again for each; else the messages wait.
func TestFailuresOfRequests(t *testing.T) {
	type service struct {
		name string
		open func(*testing.T, aws.Config, string) outbox.Sender
		to   string
		body func(kind, message string) string
	}
	jsonError := func(kind, message string) string { return `{"__type":"` + kind + `","message":"` + message + `"}` }
	ofSQS := func(kind, message string) string { return jsonError("com.amazonaws.sqs#"+kind, message) }
	ofSNS := func(kind, message string) string {
		return `<ErrorResponse xmlns="http://sns.amazonaws.com/doc/2010-03-31/"><Error><Type>Sender</Type><Code>` + kind +
			`</Code><Message>` + message + `</Message></Error></ErrorResponse>`
	}
	toSQS, toSNS := service{"sqs", toQueue, queue, ofSQS}, service{"sns", toTopic, topic, ofSNS}
	toEvents := service{"eventbridge", toBus, "default", jsonError}
	for _, c := range []struct {
		service
		kind, message string
		status        int
		rejected      bool
	}{
		{toSQS, "InvalidParameterValue", "m", 400, true},
		{toSQS, "InvalidParameterValue", "must be provided for FIFO queues", 400, false},
		{toSQS, "QueueDoesNotExist", "m", 400, false},
		{toSQS, "AccessDeniedException", "m", 403, false},
		{toSQS, "ServiceUnavailable", "m", 503, false},
		{toSQS, "RequestThrottledException", "m", 400, false},
		{toSNS, "InvalidParameter", "Invalid parameter: Message too long", 400, true},
		{toSNS, "InvalidParameter", "Invalid parameter: TopicArn", 400, false},
		{toSNS, "InvalidParameter", "MessageGroupId is not valid for standard topics", 400, false},
		{toSNS, "NotFound", "Topic does not exist", 404, false},
		{toSNS, "AuthorizationError", "no", 403, false},
		{toSNS, "InternalError", "later", 500, false},
		{toEvents, "ValidationException", "1 validation error: detail", 400, true},
		{toEvents, "ValidationException", "EventBusName must match", 400, false},
		{toEvents, "AccessDeniedException", "no", 400, false},
		{toEvents, "InternalException", "later", 500, false},
	} {
		cfg, got := answering(t, reply{c.status, c.kind, c.body(c.kind, c.message)})
		all := c.open(t, cfg, c.to).Send(t.Context(), several(2))
		require.Len(t, *got, map[bool]int{false: 1, true: 3}[c.rejected], "%s: %s", c.kind, c.message)
		for _, sent := range all {
			require.ErrorContains(t, sent.Err, c.name+": ")
			require.Equal(t, c.rejected, errors.Is(sent.Err, outbox.ErrRejected), "%s: %s", c.kind, c.message)
		}
	}
}

func TestBadSenders(t *testing.T) {
	cfg := config("http://127.0.0.1:1")
	toSQS := func(c sqssender.Client, url string) error { _, err := sqssender.New(c, url); return err }
	toSNS := func(c snssender.Client, arn string) error { _, err := snssender.New(c, arn); return err }
	toEvents := func(c eventbridgesender.Client, bus, source string) error {
		_, err := eventbridgesender.New(c, bus, source)
		return err
	}
	events := eventbridge.NewFromConfig(cfg)
	for _, c := range []struct {
		err  error
		says string
	}{
		{toSQS(nil, queue), "client is nil"},
		{toSQS((*sqs.Client)(nil), queue), "client is nil"},
		{toSQS(sqs.NewFromConfig(cfg), "arn:aws:sqs:eu-central-1:1:q"), "not a queue URL"},
		{toSNS(nil, topic), "client is nil"},
		{toSNS((*sns.Client)(nil), topic), "client is nil"},
		{toSNS(sns.NewFromConfig(cfg), "arn:aws:sqs:eu-central-1:1:q"), "not a topic ARN"},
		{toEvents(nil, "default", source), "client is nil"},
		{toEvents((*eventbridge.Client)(nil), "default", source), "client is nil"},
		{toEvents(events, "", source), "bus is empty"},
		{toEvents(events, "default", ""), `source ""`},
		{toEvents(events, "default", "aws.orders"), `source "aws.orders"`},
	} {
		require.ErrorContains(t, c.err, c.says)
	}
}

// A server takes what is sent, a FIFO queue drops what is sent again, and a standard queue has the tenants' groups.
func TestQueue(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		q := queuetest.New(t, queuetest.Spec{FIFO: fifo})
		s, err := sqssender.New(q.Client, q.URL)
		require.NoError(t, err)
		messages := several(23)
		messages[7].Body = []byte(strings.Repeat("x", 200<<10))
		groups := map[string]string{id(3): protocol.TenantGroup("acme#op#1"), id(4): protocol.TenantGroup("s%C3%B6hne#op#2")}
		messages[3].TenantGroup, messages[4].TenantGroup = groups[id(3)], groups[id(4)]
		given := map[string][]string{} // by the queue
		for range 2 {
			for i, sent := range s.Send(t.Context(), messages) {
				require.NoError(t, sent.Err)
				given[id(i)] = append(given[id(i)], sent.ID)
			}
		}
		ids := map[string]int{}
		all := queuetest.Drain(t, q.Client, q.URL)
		for _, m := range all {
			id := *m.MessageAttributes[outbox.AttributeID].StringValue
			ids[id]++
			require.Contains(t, given[id], *m.MessageId, "a consumer gets it under the id that the sender has got")
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

// A server takes what is sent and passes it on, with its attributes.
func TestTopic(t *testing.T) {
	q := queuetest.New(t, queuetest.Spec{})
	cfg := config(queuetest.Endpoint(t))
	c := sns.NewFromConfig(cfg)
	made, err := c.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("t-" + rand.Text())})
	require.NoError(t, err)
	_, err = c.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: made.TopicArn, Protocol: aws.String("sqs"), Endpoint: &q.ARN,
		Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	require.NoError(t, err)
	for _, sent := range toTopic(t, cfg, *made.TopicArn).Send(t.Context(), several(12)) {
		require.NoError(t, sent.Err)
		require.NotEmpty(t, sent.ID)
	}
	ids := map[string]bool{}
	for _, m := range queuetest.Drain(t, q.Client, q.URL) {
		require.Equal(t, `{"n":1}`, *m.Body)
		ids[*m.MessageAttributes[outbox.AttributeID].StringValue] = true
	}
	require.Len(t, ids, 12)
}
