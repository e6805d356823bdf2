package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/stretchr/testify/require"
)

// What each key function makes of an event, and what it refuses: what is not there must not become everybody's key.
func TestKeyFunctions(t *testing.T) {
	const none = idem.SingleTenant
	type found func() (tenant, value string, err error)
	in := func(key KeyFunc, event string) found {
		return func() (string, string, error) { return key(t.Context(), json.RawMessage(event)) }
	}
	const nested = `{"id":"a","n":42,"nested":{"id":"b","list":["c",{"id":"d"}]}}`

	str := func(s string) events.SQSMessageAttribute {
		return events.SQSMessageAttribute{DataType: "String", StringValue: &s}
	}
	message := events.SQSMessage{
		MessageId: "m1", Body: `{"order":{"id":"o1","line":7},"tenant":"acme"}`,
		EventSourceARN: "arn:aws:sqs:eu-central-1:111122223333:orders.fifo",
		Attributes:     map[string]string{"MessageDeduplicationId": "d1", sqsGroup: "customer 17"},
		MessageAttributes: map[string]events.SQSMessageAttribute{
			SQSKeyAttribute: str("k1"), SQSTenantAttribute: str("acme"), "empty": str(""), "none": str(none),
			"number": {DataType: "Number", StringValue: str("42").StringValue},
			"binary": {DataType: "Binary", BinaryValue: []byte("k")},
		},
	}
	alone := message // of no tenant
	alone.MessageAttributes = maps.Clone(message.MessageAttributes)
	delete(alone.MessageAttributes, SQSTenantAttribute)
	bare := events.SQSMessage{Body: "plain text"}
	groupless := events.SQSMessage{EventSourceARN: message.EventSourceARN,
		Attributes: map[string]string{"MessageDeduplicationId": "d1"}}
	of := func(key SQSKeyFunc, m events.SQSMessage) found {
		return func() (string, string, error) { return key(t.Context(), &m) }
	}
	const deduplicated = "arn%3Aaws%3Asqs%3Aeu-central-1%3A111122223333%3Aorders.fifo/customer%2017/d1"

	notification := &decoded[events.SNSEvent](t, "sns").Records[0]
	notification.SNS.MessageAttributes["empty"] = map[string]any{"Type": "String", "Value": ""}
	notification.SNS.MessageAttributes["nul"] = map[string]any{"Type": "String", "Value": none}
	sns := func(tenant, name string) found {
		return func() (string, string, error) { return SNSAttribute(tenant, name)(t.Context(), notification) }
	}
	record := &events.KafkaRecord{Headers: []map[string]events.JSONNumberBytes{
		{"key": []byte("k1")}, {"tenant": []byte("acme")}, {"twice": []byte("1")}, {"twice": []byte("2")}, {"empty": nil},
		{"nul": []byte(none)},
	}}
	kafka := func(tenant, name string) found {
		return func() (string, string, error) { return KafkaHeader(tenant, name)(t.Context(), record) }
	}
	// A version is no identity of a change: its tags may change twice, and the second change must not be swallowed as a
	// repeat of the first.
	tagged := events.S3EventRecord{EventName: "ObjectTagging:Put"}
	tagged.S3.Bucket.Name, tagged.S3.Object.Key, tagged.S3.Object.VersionID = "b", "k", "v1"

	type row struct {
		find          found
		tenant, value string
		err           string
	}
	rows := []row{
		{in(Pointer(none, "/id"), nested), none, "a", ""},
		{in(Pointer(none, "/n"), nested), none, "42", ""},
		{in(Pointer(none, "/nested/list/1/id"), nested), none, "d", ""},
		{in(Pointer("/nested/id", "/id"), nested), "b", "a", ""},
		// A tenant in the event cannot say that there is none.
		{in(Pointer("/tenant", "/id"), `{"tenant":"\u0000","id":"a"}`), "", "", "tenant"},
		{in(KeyFrom(func(p payment) (string, string) { return p.Merchant, p.ID }),
			`{"merchant":"m1","paymentId":"p1"}`), "m1", "p1", ""},

		{of(SQSAttribute(none, SQSKeyAttribute), alone), none, "k1", ""},
		{of(SQSAttribute(SQSTenantAttribute, SQSKeyAttribute), message), "acme", "k1", ""},
		{of(SQSAttribute(none, "number"), alone), none, "42", ""},
		{of(SQSAttribute(none, "absent"), alone), "", "", `no attribute "absent"`},
		{of(SQSAttribute(none, "empty"), alone), "", "", `"empty" is empty`},
		{of(SQSAttribute(none, "binary"), alone), "", "", `"binary" is of type Binary: send it as String`},
		// Who passes the tenant itself learns that the argument names where it is found.
		{of(SQSAttribute("absent", SQSKeyAttribute), message), "", "",
			`no attribute "absent" (the first argument of idemlambda.SQSAttribute names the tenant's attribute)`},
		{of(SQSAttribute("empty", SQSKeyAttribute), message), "", "", `"empty" is empty (the first argument of`},
		{of(SQSAttribute("none", SQSKeyAttribute), message), "", "", "cannot be used as a tenant"},
		{of(SQSAttribute(none, SQSKeyAttribute), bare), "", "", "no attribute"},
		{of(SQSAttribute(none, SQSKeyAttribute), message), "", "", "names a tenant"},
		{of(SQSDeduplicationID(none), message), "", "", "names a tenant"},
		{of(SQSPointer(none, "/order/id"), message), "", "", "names a tenant"},
		{of(SQSPointer(none, "/order/id"), alone), none, "o1", ""},
		{of(SQSPointer("/tenant", "/order/id", "/order/line"), message), "acme", "o1/7", ""},
		{of(SQSPointer(none, "/order"), alone), "", "",
			`the value at "/order" of the body is neither a string nor an integer`},
		{of(SQSPointer(none, "/order/id"), bare), "", "", `at "/order/id" of the body`},
		{of(SQSDeduplicationID(none), alone), none, deduplicated, ""},
		{of(SQSDeduplicationID(SQSTenantAttribute), message), "acme", deduplicated, ""},
		{of(SQSDeduplicationID(none), bare), "", "", "no deduplication id"},
		{of(SQSDeduplicationID(none), groupless), "", "", "no MessageGroupId"},
		{of(SQSMessageID(none), alone), none, "m1", ""},
		{of(SQSMessageID(SQSTenantAttribute), message), "acme", "m1", ""},
		{of(SQSMessageID(none), bare), "", "", "has no id"},

		{sns(none, "idempotency-key"), none, "8e03978e-40d5-43e8-bc93-6894a57f9324", ""},
		{sns(none, "none"), "", "", "no attribute"},
		{sns(none, "digest"), "", "", "of type"},
		{sns(none, "empty"), "", "", "empty"},
		{sns("nul", "idempotency-key"), "", "", "cannot be used as a tenant"},

		{kafka("tenant", "key"), "acme", "k1", ""},
		{kafka(none, "none"), "", "", `"none"`},
		{kafka(none, "twice"), "", "", `"twice"`},
		{kafka(none, "empty"), "", "", `"empty"`},
		{kafka("nul", "key"), "", "", "cannot be used as a tenant"},
		{kafka("acme", "key"), "", "", "the first argument of idemlambda.KafkaHeader names the tenant's header"},

		{func() (string, string, error) { return S3ObjectVersion(t.Context(), &tagged) }, "", "",
			"ObjectTagging:Put has no sequencer"},
	}
	for _, event := range []string{
		`{}`, `{"id":null}`, `{"id":""}`, `{"id":["a"]}`, `{"id":1.5}`, `{"ID":"a"}`, `{"id":"a","ID":"b"}`,
		`{"id":"a","id":"a"}`, `{"id":`,
	} {
		for _, key := range []KeyFunc{Pointer(none, "/id"), Pointer("/id", "/id"), Pointer(none, "/id", "/id")} {
			rows = append(rows, row{in(key, event), "", "", `"/id"`})
		}
	}
	for _, r := range rows {
		tenant, value, err := r.find()
		if r.err == "" {
			require.NoError(t, err)
			require.Equal(t, []string{r.tenant, r.value}, []string{tenant, value})
			continue
		}
		require.ErrorIs(t, err, idem.ErrKeyInvalid, r.err)
		require.ErrorContains(t, err, r.err)
		require.Equal(t, strings.Contains(r.err, "first argument"), strings.Contains(err.Error(), "first argument"))
	}
	_, _, err := KeyFrom(func(payment) (string, string) { return "", "" })(t.Context(), json.RawMessage(`{"merchant":1}`))
	require.Error(t, err)
}

// Several values never run together.
func TestPointerJoinsSeveralValues(t *testing.T) {
	seen := map[string]string{}
	for _, event := range []string{`{"a":"x","b":"yz"}`, `{"a":"xy","b":"z"}`, `{"a":"x/y","b":"z"}`,
		`{"a":"x","b":"y/z"}`} {
		_, value, err := Pointer(idem.SingleTenant, "/a", "/b")(t.Context(), json.RawMessage(event))
		require.NoError(t, err)
		require.NotContains(t, seen, value, "%s and %s", seen[value], event)
		seen[value] = event
	}
}

// Other services' envelopes around the message: the key is in reach, and a second
// publication of the same thing is the same where the key is its own.
func TestSQSEnvelopes(t *testing.T) {
	inBody := func(name string) string { return string(sourceSample(t, name)) }
	// What SNS sends to a queue is what it gives a function, without the frame.
	notification := decoded[struct {
		Records []struct{ Sns json.RawMessage }
	}](t, "sns")
	sns := string(notification.Records[0].Sns)
	changed := func(body string, starts ...string) string {
		for _, start := range starts {
			require.Contains(t, body, start)
			body = strings.Replace(body, start, start+"x", 1)
		}
		return body
	}
	byObject := SQSPointer(idem.SingleTenant, "/Records/0/eventName", "/Records/0/s3/bucket/name",
		"/Records/0/s3/object/key", "/Records/0/s3/object/sequencer")
	const object = "ObjectCreated%3APut/example-settlements/" +
		"in%2F2026-11-21%2Fbatch%2B007%2B%2528final%2529.csv/006A1F2C0D9B1E4F7A"
	for _, c := range []struct {
		name, body, again string
		key               SQSKeyFunc
		sel               *fingerprint.Select
		value             string
		reused            bool
	}{
		{
			name: "SNS, signed again", body: sns, again: changed(sns, `"Signature": "`, `"SigningCertUrl": "https://sns.`),
			key: SQSPointer(idem.SingleTenant, "/MessageId"), value: "95df01b4-1c2d-5e3f-8a4b-5c6d7e8f9a0b",
			// in a queue: …URL
			sel: &fingerprint.Select{Without: []string{"/SignatureVersion", "/Signature", "/SigningCertUrl", "/UnsubscribeUrl"}},
		},
		{
			name: "EventBridge, published twice", body: inBody("eventbridge-custom"),
			again: strings.Replace(inBody("eventbridge-custom"), "17793124", "27793124", 1),
			key:   SQSPointer("/detail/metadata/tenantId", "/detail/paymentId"),
			sel:   &fingerprint.Select{Only: []string{"/detail"}}, value: "pay_7Q2M9X4K",
		},
		{
			name: "EventBridge, published twice, all of it selected", body: inBody("eventbridge-custom"),
			again: strings.Replace(inBody("eventbridge-custom"), "17793124", "27793124", 1),
			key:   SQSPointer(idem.SingleTenant, "/detail/paymentId"), value: "pay_7Q2M9X4K", reused: true,
		},
		{
			name: "S3, of another request", body: inBody("s3"), again: changed(inBody("s3"), `"x-amz-request-id": "`),
			key:   byObject,
			value: object,
			sel:   &fingerprint.Select{Only: []string{"/Records/0/eventName", "/Records/0/s3/bucket", "/Records/0/s3/object"}},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			var seen reports
			h := SQS(newEngine(t, memory()), fulfil, c.key, &SQSOptions{OnOutcome: seen.hook, Select: c.sel},
				func(_ context.Context, in map[string]any) error {
					require.NotEmpty(t, in)
					return nil
				})
			want := ReasonReplayed
			if c.reused {
				want = ReasonKeyReused
			}
			for i, body := range []string{c.body, c.again} {
				deliver(t, h, messageOf(fmt.Sprint("m", i), "", body))
			}
			require.Equal(t, map[string]Reason{"m0": ReasonExecuted, "m1": want}, seen.reasons(), "%v", seen.outcomes)
			_, value, err := c.key(t.Context(), &events.SQSMessage{Body: c.body})
			require.NoError(t, err)
			require.Equal(t, c.value, value)
		})
	}
}

// sending is what a producer sets for a key that can be sent.
func sending(t *testing.T, op idem.Operation, tenant, value string) SQSAttributes {
	t.Helper()
	s, err := SQSAttributesFor(op, tenant, value)
	require.NoError(t, err)
	return s
}

// What the producer sets is what the consumer finds.
func TestSQSSendingIsFound(t *testing.T) {
	for _, c := range []struct {
		tenant, value string
		key           SQSKeyFunc
	}{
		{idem.SingleTenant, "order-1", SQSAttribute(idem.SingleTenant, SQSKeyAttribute)},
		{"acme", "order-1", SQSAttribute(SQSTenantAttribute, SQSKeyAttribute)},
		{"acme & söhne", "a/b c\té\U0001F600", SQSAttribute(SQSTenantAttribute, SQSKeyAttribute)},
		{strings.Repeat("t", 64), strings.Repeat("v", 1024), SQSAttribute(SQSTenantAttribute, SQSKeyAttribute)},
	} {
		s := sending(t, fulfil, c.tenant, c.value)
		m := events.SQSMessage{MessageAttributes: map[string]events.SQSMessageAttribute{}}
		for name, text := range s.Attributes {
			// https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-message-metadata.html
			require.Regexp(t, `^[A-Za-z0-9_.-]{1,256}$`, name)
			require.NotEmpty(t, text)
			m.MessageAttributes[name] = events.SQSMessageAttribute{DataType: "String", StringValue: &text}
		}
		tenant, value, err := c.key(t.Context(), &m)
		require.NoError(t, err)
		require.Equal(t, fulfil.Key(c.tenant, c.value).ID(), fulfil.Key(tenant, value).ID())
		require.Regexp(t, `^[0-9a-f]{64}$`, s.DeduplicationID)
	}
}

// A queue that operations and tenants share drops no message for another's sake.
func TestSQSSendingTellsMessagesApart(t *testing.T) {
	refund := idem.Operation{Name: "refund"}
	seen := map[string]bool{}
	for _, op := range []idem.Operation{fulfil, refund} {
		for _, tenant := range []string{idem.SingleTenant, "a", "b"} {
			for _, value := range []string{"1", "2"} {
				s := sending(t, op, tenant, value)
				require.False(t, seen[s.DeduplicationID])
				seen[s.DeduplicationID] = true
				require.Equal(t, s, sending(t, op, tenant, value))
			}
		}
	}
}

// Every tenant fits into what SQS takes as a group
// (https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessage.html),
// and the group does not name it.
func TestSQSSendingHasOneGroupForEachTenant(t *testing.T) {
	seen := map[string]string{}
	for _, tenant := range []string{
		"acme", "Acme", "acme ", "acme#fulfil", "söhne", "s%C3%B6hne", "\U0001F600", "*", "#", strings.Repeat("ü", 32),
		"822b33ad87c148a0a20a5ba7cd5ebcaa68d36a18e7aad165554903f52ca82757", // the group of acme
	} {
		s := sending(t, fulfil, tenant, "order-1")
		require.Regexp(t, `^[0-9a-f]{64}$`, s.GroupID)
		require.NotContains(t, s.GroupID, tenant)
		require.NotContains(t, seen, s.GroupID, tenant)
		seen[s.GroupID] = tenant
		require.Equal(t, s.GroupID, sending(t, idem.Operation{Name: "refund"}, tenant, "order-2").GroupID)
	}
	require.Empty(t, sending(t, fulfil, idem.SingleTenant, "order-1").GroupID,
		"SQS takes each message without a group for a tenant's own")
}

func TestSQSSendingRefusesWhatCannotBeSent(t *testing.T) {
	for _, c := range []struct{ tenant, value, err string }{
		{"", "v", "tenant is empty"},
		{"t", "", "value is empty"},
		{strings.Repeat("t", 65), "v", "65 bytes"},
		{"t", strings.Repeat("v", 1025), "1025 bytes"},
		{"t", "a\x00b", `attribute "idempotency-key"`},
		{"t", "a\x1bb", "control characters"},
		{"t", "a\xffb", "invalid UTF-8"},
		{"t", "\uFFFE", "encode it first"},
		{"t\x01", "v", `attribute "idempotency-tenant"`},
	} {
		_, err := SQSAttributesFor(fulfil, c.tenant, c.value)
		require.ErrorIs(t, err, idem.ErrKeyInvalid, "%q", c)
		require.ErrorContains(t, err, c.err)
	}
	_, err := SQSAttributesFor(idem.Operation{}, "t", "v")
	require.ErrorContains(t, err, "Name is empty")
}
