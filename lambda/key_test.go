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

func TestPointer(t *testing.T) {
	const event = `{"id":"a","n":42,"nested":{"id":"b","list":["c",{"id":"d"}]}}`
	for pointer, want := range map[string]string{"/id": "a", "/n": "42", "/nested/list/1/id": "d"} {
		tenant, value, err := Pointer(idem.SingleTenant, pointer)(t.Context(), json.RawMessage(event))
		require.NoError(t, err, pointer)
		require.Equal(t, want, value, pointer)
		require.Equal(t, idem.SingleTenant, tenant)
	}
	tenant, value, err := Pointer("/nested/id", "/id")(t.Context(), json.RawMessage(event))
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a"}, []string{tenant, value})
}

// What is not there must not become everybody's key.
func TestPointerRefusesWhatIsNoValue(t *testing.T) {
	for name, event := range map[string]string{
		"absent": `{}`, "null": `{"id":null}`, "empty": `{"id":""}`, "list": `{"id":["a"]}`, "fraction": `{"id":1.5}`,
		"other case": `{"ID":"a"}`, "both cases": `{"id":"a","ID":"b"}`, "twice": `{"id":"a","id":"a"}`, "no JSON": `{"id":`,
	} {
		for _, keys := range []KeyFunc{Pointer(idem.SingleTenant, "/id"), Pointer("/id", "/id"),
			Pointer(idem.SingleTenant, "/id", "/id")} {
			_, value, err := keys(t.Context(), json.RawMessage(event))
			require.ErrorIs(t, err, idem.ErrKeyInvalid, name)
			require.ErrorContains(t, err, `"/id"`, name)
			require.Empty(t, value)
		}
	}
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

// A tenant in the event cannot say that there is none.
func TestTenantOfTheEventCannotOptOut(t *testing.T) {
	_, _, err := Pointer("/tenant", "/id")(t.Context(), json.RawMessage(`{"tenant":"\u0000","id":"a"}`))
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
}

func TestBadPointersPanic(t *testing.T) {
	for _, f := range []func(){
		func() { Pointer(idem.SingleTenant) },
		func() { Pointer("", "/id") },
		func() { Pointer("tenant", "/id") },
		func() { Pointer(idem.SingleTenant, "") },
		func() { Pointer(idem.SingleTenant, "id") },
		func() { Pointer(idem.SingleTenant, "$.id") },
		func() { Pointer(idem.SingleTenant, "/a~2") },
		func() { Pointer(idem.SingleTenant, "/a~") },
		func() { KeyFrom[payment](nil) },
	} {
		requireConfigPanic(t, f)
	}
}

func requireConfigPanic(t *testing.T, f func(), text ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		err, ok := recover().(error)
		require.True(t, ok, "no panic with an error")
		require.ErrorAs(t, err, new(*idem.ConfigError))
		for _, s := range text {
			require.ErrorContains(t, err, s)
		}
	}()
	f()
}

func TestBy(t *testing.T) {
	key := KeyFrom(func(p payment) (string, string) { return p.Merchant, p.ID })
	tenant, value, err := key(context.Background(), json.RawMessage(`{"merchant":"m1","paymentId":"p1"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"m1", "p1"}, []string{tenant, value})
	_, _, err = key(context.Background(), json.RawMessage(`{"merchant":1}`))
	require.Error(t, err)
}

func TestSQSKeyFunctions(t *testing.T) {
	str := func(s string) events.SQSMessageAttribute {
		return events.SQSMessageAttribute{DataType: "String", StringValue: &s}
	}
	m := events.SQSMessage{
		MessageId: "m1", Body: `{"order":{"id":"o1","line":7},"tenant":"acme"}`,
		EventSourceARN: "arn:aws:sqs:eu-central-1:111122223333:orders.fifo",
		Attributes:     map[string]string{"MessageDeduplicationId": "d1", sqsGroup: "customer 17"},
		MessageAttributes: map[string]events.SQSMessageAttribute{
			SQSKeyAttribute: str("k1"), SQSTenantAttribute: str("acme"), "empty": str(""), "none": str(idem.SingleTenant),
			"number": {DataType: "Number", StringValue: str("42").StringValue},
			"binary": {DataType: "Binary", BinaryValue: []byte("k")},
		},
	}
	alone := m // of no tenant
	alone.MessageAttributes = maps.Clone(m.MessageAttributes)
	delete(alone.MessageAttributes, SQSTenantAttribute)
	const deduplicated = "arn%3Aaws%3Asqs%3Aeu-central-1%3A111122223333%3Aorders.fifo/customer%2017/d1"
	bare := events.SQSMessage{Body: "plain text"}
	groupless := events.SQSMessage{EventSourceARN: m.EventSourceARN,
		Attributes: map[string]string{"MessageDeduplicationId": "d1"}}
	for _, c := range []struct {
		key           SQSKeyFunc
		m             *events.SQSMessage
		tenant, value string
		err           string
	}{
		{key: SQSAttribute(idem.SingleTenant, SQSKeyAttribute), m: &alone, tenant: idem.SingleTenant, value: "k1"},
		{key: SQSAttribute(SQSTenantAttribute, SQSKeyAttribute), tenant: "acme", value: "k1"},
		{key: SQSAttribute(idem.SingleTenant, "number"), m: &alone, tenant: idem.SingleTenant, value: "42"},
		{key: SQSAttribute(idem.SingleTenant, "absent"), m: &alone, err: `no attribute "absent"`},
		{key: SQSAttribute(idem.SingleTenant, "empty"), m: &alone, err: `"empty" is empty`},
		{key: SQSAttribute(idem.SingleTenant, "binary"), m: &alone, err: `"binary" is of type Binary: send it as String`},
		// Who passes the tenant itself learns that the argument names where it is found.
		{key: SQSAttribute("absent", SQSKeyAttribute), err: `no attribute "absent" (the first argument of ` +
			"idemlambda.SQSAttribute names the tenant's attribute)"},
		{key: SQSAttribute("empty", SQSKeyAttribute), err: `"empty" is empty (the first argument of`},
		{key: SQSAttribute("none", SQSKeyAttribute), err: "cannot be used as a tenant"},
		{key: SQSAttribute(idem.SingleTenant, SQSKeyAttribute), m: &bare, err: "no attribute"},

		{key: SQSAttribute(idem.SingleTenant, SQSKeyAttribute), err: "names a tenant"},
		{key: SQSDeduplicationID(idem.SingleTenant), err: "names a tenant"},
		{key: SQSPointer(idem.SingleTenant, "/order/id"), err: "names a tenant"},

		{key: SQSPointer(idem.SingleTenant, "/order/id"), m: &alone, tenant: idem.SingleTenant, value: "o1"},
		{key: SQSPointer("/tenant", "/order/id", "/order/line"), tenant: "acme", value: "o1/7"},
		{key: SQSPointer(idem.SingleTenant, "/order"), m: &alone,
			err: `the value at "/order" of the body is neither a string nor an integer`},
		{key: SQSPointer(idem.SingleTenant, "/order/id"), m: &bare, err: `at "/order/id" of the body`},

		{key: SQSDeduplicationID(idem.SingleTenant), m: &alone, tenant: idem.SingleTenant, value: deduplicated},
		{key: SQSDeduplicationID(SQSTenantAttribute), tenant: "acme", value: deduplicated},
		{key: SQSDeduplicationID(idem.SingleTenant), m: &bare, err: "no deduplication id"},
		{key: SQSDeduplicationID(idem.SingleTenant), m: &groupless, err: "no MessageGroupId"},

		{key: SQSMessageID(idem.SingleTenant), m: &alone, tenant: idem.SingleTenant, value: "m1"},
		{key: SQSMessageID(SQSTenantAttribute), tenant: "acme", value: "m1"},
		{key: SQSMessageID(idem.SingleTenant), m: &bare, err: "has no id"},
	} {
		if c.m == nil {
			c.m = &m
		}
		tenant, value, err := c.key(t.Context(), c.m)
		if c.err != "" {
			require.ErrorIs(t, err, idem.ErrKeyInvalid)
			require.ErrorContains(t, err, c.err)
			require.Equal(t, strings.Contains(c.err, "first argument"), strings.Contains(err.Error(), "first argument"))
			continue
		}
		require.NoError(t, err)
		require.Equal(t, c.tenant, tenant)
		require.Equal(t, c.value, value)
	}
}

func TestSQSKeyFunctionsThatAreNone(t *testing.T) {
	requireConfigPanic(t, func() { SQSAttribute(idem.SingleTenant, "") }, "SQSAttribute", "name is empty")
	requireConfigPanic(t, func() { SQSAttribute("", "k") }, "SQSAttribute", "tenant is empty", "idem.SingleTenant")
	requireConfigPanic(t, func() { SQSMessageID("") }, "SQSMessageID", "tenant is empty")
	requireConfigPanic(t, func() { SQSDeduplicationID("") }, "SQSDeduplicationID", "tenant is empty")
	requireConfigPanic(t, func() { SQSPointer(idem.SingleTenant) }, "idemlambda.SQSPointer", "no pointer")
	requireConfigPanic(t, func() { SQSPointer("tenant", "/a") }, "idemlambda.SQSPointer: tenant pointer")
	requireConfigPanic(t, func() { SQSPointer(idem.SingleTenant, "a~2") }, "idemlambda.SQSPointer: value pointer")
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
