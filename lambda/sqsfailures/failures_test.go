package sqsfailures

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/aws/smithy-go"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/memstore"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	idemlambda "github.com/idem-go/idempotency/lambda"
	"github.com/stretchr/testify/require"
)

// fake is a queue that keeps what it is sent.
type fake struct {
	sent []*sqs.SendMessageInput
	err  error
}

func (f *fake) SendMessage(_ context.Context, in *sqs.SendMessageInput,
	_ ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	if f.err != nil {
		return nil, f.err
	}
	f.sent = append(f.sent, in)
	return &sqs.SendMessageOutput{}, nil
}

const source = "arn:aws:sqs:eu-central-1:111122223333:orders"

func text(s string) types.MessageAttributeValue {
	return types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &s}
}

func message() *events.SQSMessage {
	return &events.SQSMessage{
		MessageId: "m1", Body: `{"id":"o1"}`, EventSourceARN: source,
		Attributes: map[string]string{"MessageGroupId": "customer-17"},
		MessageAttributes: map[string]events.SQSMessageAttribute{
			"idempotency-key":    {DataType: "String", StringValue: aws.String("k1")},
			"priority":           {DataType: "Number.int", StringValue: aws.String("5")},
			"trace":              {DataType: "Binary", BinaryValue: []byte{1, 2}},
			FailureAttribute:     {DataType: "String", StringValue: aws.String("of an earlier forwarding")},
			FailureCodeAttribute: {DataType: "String", StringValue: aws.String("old")},
			"lists":              {DataType: "String"},
		},
	}
}

// The message's own attributes come first.
func TestNoMoreAttributesThanSQSTakes(t *testing.T) {
	for n := range 11 {
		m := &events.SQSMessage{MessageId: "m1", EventSourceARN: source,
			MessageAttributes: map[string]events.SQSMessageAttribute{}}
		for i := range n {
			m.MessageAttributes[fmt.Sprint("own-", i)] = events.SQSMessageAttribute{DataType: "String",
				StringValue: aws.String("v")}
		}
		got := attributes(&idemlambda.SQSDelivery{Event: m, RecordID: "id",
			Failure: &idem.Failure{Message: "m", Type: "t", Code: "c"}}, maxMessage)
		require.Len(t, got, min(n+6, 10))
		for i := range n {
			require.Contains(t, got, fmt.Sprint("own-", i))
		}
		for i, name := range []string{FailureAttribute, FailureTypeAttribute, FailureCodeAttribute, RecordAttribute,
			QueueAttribute, MessageAttribute} {
			require.Equal(t, n+i < 10, got[name].StringValue != nil, name)
		}
	}
}

func TestFIFO(t *testing.T) {
	f := &fake{}
	forward := New(f, "https://sqs/1/failures.fifo")
	out := func(id, group, key string) idemlambda.SQSDelivery {
		m := message()
		m.MessageId, m.Attributes = id, map[string]string{"MessageGroupId": group}
		return idemlambda.SQSDelivery{Event: m, RecordID: key}
	}
	for _, o := range []idemlambda.SQSDelivery{out("m1", "g1", "k1"), out("m1", "g1", "k1"), out("m2", "", "k2"),
		out("m3", "", "k3")} {
		require.NoError(t, forward(t.Context(), o))
	}
	require.Equal(t, "g1", *f.sent[0].MessageGroupId)
	require.Equal(t, *f.sent[0].MessageDeduplicationId, *f.sent[1].MessageDeduplicationId, "the same message again")
	require.NotEqual(t, *f.sent[1].MessageDeduplicationId, *f.sent[2].MessageDeduplicationId)
	require.NotEqual(t, *f.sent[2].MessageGroupId, *f.sent[3].MessageGroupId)
	for _, in := range f.sent {
		require.Regexp(t, `^[0-9a-zA-Z]{1,128}$`, *in.MessageGroupId)
		require.Regexp(t, `^[0-9a-f]{64}$`, *in.MessageDeduplicationId)
	}
}

func TestMistakes(t *testing.T) {
	require.PanicsWithError(t, "idem: sqsfailures.New: the client is nil: make one with sqs.NewFromConfig", func() {
		New(nil, "u")
	})
	require.PanicsWithError(t, "idem: sqsfailures.New: the failure queue's URL is empty", func() { New(&fake{}, "") })
}

// Through the wrapper: the message is deleted only once it is forwarded, and says the
// same whichever delivery forwards it.
func TestNothingIsLostWhereForwardingFails(t *testing.T) {
	engine, err := idem.New(memstore.New(), nil)
	require.NoError(t, err)
	f := &fake{err: errors.New("throttled")}
	var reasons []idemlambda.Reason
	h := idemlambda.SQS(engine, idem.Operation{Name: "fulfil", Repeat: idem.NotRepeatable},
		idemlambda.SQSPointer(idem.SingleTenant, "/id"), &idemlambda.SQSOptions{
			OnFailed: New(f, "https://sqs/1/failures"),
			OnOutcome: func(_ context.Context, out idemlambda.SQSDelivery) {
				reasons = append(reasons, out.Reason)
				if out.Reason == idemlambda.ReasonFailureNotForwarded {
					require.ErrorContains(t, out.Err, "throttled")
				}
			},
			Logger: slog.New(slog.DiscardHandler),
		}, func(context.Context, struct{ ID string }) error { return idem.Permanent(errors.New("no such article")) })
	event := events.SQSEvent{Records: []events.SQSMessage{*message()}}

	res, err := h(t.Context(), event)
	require.NoError(t, err)
	require.Len(t, res.BatchItemFailures, 1)
	f.err = nil
	res, err = h(t.Context(), event)
	require.NoError(t, err)
	require.Empty(t, res.BatchItemFailures)
	require.Equal(t, []idemlambda.Reason{idemlambda.ReasonFailureNotForwarded, idemlambda.ReasonFailed}, reasons)
	require.Len(t, f.sent, 1)
	require.Equal(t, "no such article", *f.sent[0].MessageAttributes[FailureAttribute].StringValue)
	require.Equal(t, "errorString", *f.sent[0].MessageAttributes[FailureTypeAttribute].StringValue)
}

// limited is a queue with a MaximumMessageSize, which refuses as SQS does.
type limited struct {
	fake
	limit, calls int
}

func (l *limited) SendMessage(ctx context.Context, in *sqs.SendMessageInput,
	o ...func(*sqs.Options)) (*sqs.SendMessageOutput, error) {
	l.calls++
	n := len(*in.MessageBody)
	for name, v := range in.MessageAttributes {
		n += lengthOf(name, v)
	}
	if n > l.limit {
		return nil, &smithy.GenericAPIError{Code: "InvalidParameterValue",
			Message: fmt.Sprintf("One or more parameters are invalid. Reason: Message must be shorter than %d bytes.", l.limit)}
	}
	return l.fake.SendMessage(ctx, in, o...)
}

// Whatever a queue has taken its failure queue takes, with as much of the reason as fits.
func TestMessagesAtTheSizeLimit(t *testing.T) {
	failure := &idem.Failure{Message: strings.Repeat("no such article ", 128), Type: "MissingError"}
	length := 0
	for name, a := range message().MessageAttributes {
		if v, ok := own(a); ok && name != FailureAttribute && name != FailureCodeAttribute {
			length += lengthOf(name, v)
		}
	}
	for _, limit := range []int{1 << 20, 1 << 18, 1 << 14} {
		for _, c := range []struct {
			name  string
			room  int // in addition to body and own attributes
			calls int
			has   []string
		}{
			{"none", 0, 2, nil},
			{"a little", 100, 2, []string{FailureTypeAttribute, RecordAttribute}},
			{"enough", 4096, 1, []string{FailureAttribute, FailureTypeAttribute, RecordAttribute, QueueAttribute,
				MessageAttribute}},
		} {
			q := &limited{limit: limit}
			m := message()
			m.Body = strings.Repeat("x", limit-length-c.room)
			forward := New(q, "https://sqs/1/failures")
			require.NoError(t, forward(t.Context(), idemlambda.SQSDelivery{Event: m, RecordID: "#fulfil#abc", Failure: failure}),
				c.name)
			in := q.sent[0]
			require.Equal(t, m.Body, *in.MessageBody)
			require.Equal(t, text("k1"), in.MessageAttributes["idempotency-key"], c.name)
			for _, name := range []string{FailureAttribute, FailureTypeAttribute, RecordAttribute, QueueAttribute,
				MessageAttribute} {
				_, has := in.MessageAttributes[name]
				require.Equal(t, slices.Contains(c.has, name), has, "%d, %s: %s", limit, c.name, name)
			}
			if limit == maxMessage { // known beforehand
				c.calls = 1
			}
			require.Equal(t, c.calls, q.calls, "%d, %s", limit, c.name)
		}
	}
}

// A failure queue that takes less than its source says so.
func TestFailureQueueThatTakesLess(t *testing.T) {
	m := message()
	m.Body = strings.Repeat("x", 2000)
	err := New(&limited{limit: 1024}, "https://sqs/1/failures")(t.Context(), idemlambda.SQSDelivery{Event: m})
	require.ErrorContains(t, err, "MaximumMessageSize")
	require.ErrorAs(t, err, new(smithy.APIError))
}

// On real queues: the message arrives as it was, with the reason, and on a FIFO queue once.
func TestForwardsOnAServer(t *testing.T) {
	for _, fifo := range []bool{false, true} {
		q := queuetest.New(t, queuetest.Spec{FIFO: fifo})
		forward := New(q.Client, q.URL)
		out := idemlambda.SQSDelivery{Event: message(), RecordID: "#fulfil#abc", Reason: idemlambda.ReasonFailed,
			Failure: &idem.Failure{Message: "no such article\x1b[0m \xff", Type: "MissingError"}}
		require.NoError(t, forward(t.Context(), out))
		if fifo {
			require.NoError(t, forward(t.Context(), out))
		}
		all := queuetest.Drain(t, q.Client, q.URL)
		require.Len(t, all, 1)
		m := all[0]
		require.Equal(t, out.Event.Body, *m.Body)
		require.Equal(t, map[string]types.MessageAttributeValue{
			"idempotency-key":    text("k1"),
			"priority":           {DataType: aws.String("Number.int"), StringValue: aws.String("5")},
			"trace":              {DataType: aws.String("Binary"), BinaryValue: []byte{1, 2}},
			FailureAttribute:     text("no such article\uFFFD[0m \uFFFD"),
			FailureTypeAttribute: text("MissingError"),
			RecordAttribute:      text("#fulfil#abc"),
			QueueAttribute:       text(source),
			MessageAttribute:     text("m1"),
		}, m.MessageAttributes)
		require.Equal(t, map[bool]string{true: "customer-17"}[fifo], m.Attributes["MessageGroupId"])
	}
}

// A failure queue that is not there is an error: the message is not lost.
func TestFailureQueueThatIsNotThere(t *testing.T) {
	q := queuetest.New(t, queuetest.Spec{})
	forward := New(q.Client, q.URL+"-none")
	err := forward(t.Context(), idemlambda.SQSDelivery{Event: message()})
	require.ErrorAs(t, err, new(*types.QueueDoesNotExist))
}
