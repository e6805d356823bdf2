package dynamostore

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

func TestOutboxItem(t *testing.T) {
	m := message{"placed", outbox.Message{
		Destination: "orders", OrderingKey: "o-1", Type: "order.placed", ContentType: "text/plain",
		Body: []byte("hello"), Attributes: map[string]string{"region": "eu"},
	}}
	it, err := outboxItem("acme#charge#abc", base, 0, m, nil, base)
	require.NoError(t, err)
	at := it["created_at"].(*types.AttributeValueMemberN).Value
	require.Equal(t, item{
		"pk": str("acme#charge#abc"), "sk": str("outbox#" + outbox.MessageID("acme#charge#abc", base, "placed")),
		"v": num("1"), "in_state": str("new"), "destination": str("orders"), "ordering_key": str("o-1"),
		"message_type": str("order.placed"), "content_type": str("text/plain"), "number": num("0"),
		"body":       &types.AttributeValueMemberB{Value: []byte("hello")},
		"tags":       &types.AttributeValueMemberM{Value: item{"region": str("eu")}},
		"created_at": num(at), "open_shard": it["open_shard"], "open_due": num(at),
	}, it)
	require.Regexp(t, `^outbox-(0\d|1[0-5])$`, text(it, "open_shard"))
	require.NotContains(t, it, "expires_at", "the table never forgets what is not sent")

	again, err := outboxItem("acme#charge#abc", base, 0, m, nil, base)
	require.NoError(t, err)
	require.Equal(t, it, again)

	other, err := outboxItem("acme#refund#xyz", base, 3, m, []string{"a", "b"}, base)
	require.NoError(t, err)
	require.Equal(t, it["open_shard"], other["open_shard"], "what is in order with each other lies in one shard")

	require.Equal(t, []string{"a", "b"}, decodeMessage(other).After)
	for _, damaged := range []types.AttributeValue{str("a"), &types.AttributeValueMemberL{Value: []types.AttributeValue{num("1")}}} {
		other["after"] = damaged
		require.ErrorContains(t, decodeMessage(other).Unreadable, "after")
	}

	m.Body = nil
	_, err = outboxItem("acme#charge#abc", base, 0, m, nil, base)
	require.ErrorContains(t, err, "Body is empty")
}
