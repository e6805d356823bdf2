package idemlambda

import (
	"strings"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

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
		s, err := SQSAttributesFor(fulfil, c.tenant, c.value)
		require.NoError(t, err)
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
				s, err := SQSAttributesFor(op, tenant, value)
				require.NoError(t, err)
				require.False(t, seen[s.DeduplicationID])
				seen[s.DeduplicationID] = true
				again, err := SQSAttributesFor(op, tenant, value)
				require.NoError(t, err)
				require.Equal(t, s, again)
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
		s, err := SQSAttributesFor(fulfil, tenant, "order-1")
		require.NoError(t, err)
		require.Regexp(t, `^[0-9a-f]{64}$`, s.GroupID)
		require.NotContains(t, s.GroupID, tenant)
		require.NotContains(t, seen, s.GroupID, tenant)
		seen[s.GroupID] = tenant
		other, err := SQSAttributesFor(idem.Operation{Name: "refund"}, tenant, "order-2")
		require.NoError(t, err)
		require.Equal(t, s.GroupID, other.GroupID)
	}
	s, err := SQSAttributesFor(fulfil, idem.SingleTenant, "order-1")
	require.NoError(t, err)
	require.Empty(t, s.GroupID, "SQS takes each message without a group for a tenant's own")
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
