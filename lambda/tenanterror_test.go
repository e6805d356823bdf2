package idemlambda

import (
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
)

// TestTenantThatIsNotThere: who passes the tenant itself is told that the argument
// names where it is found; a missing key says nothing of the tenant.
func TestTenantThatIsNotThere(t *testing.T) {
	text := "v"
	sqs := &events.SQSMessage{MessageId: "1", MessageAttributes: map[string]events.SQSMessageAttribute{"tenant": {StringValue: &text, DataType: "String"}}}
	sns := &events.SNSEventRecord{SNS: events.SNSEntity{MessageAttributes: map[string]any{"tenant": map[string]any{"Type": "String", "Value": text}}}}
	kafka := &events.KafkaRecord{Headers: []map[string]events.JSONNumberBytes{{"tenant": events.JSONNumberBytes(text)}}}
	attribute := func(maker string) string {
		return "the first argument of idemlambda." + maker + " names the tenant's attribute"
	}
	for name, c := range map[string]struct {
		find func(tenant string) error
		want string
	}{
		"SQSAttribute": {func(tenant string) error {
			_, _, err := SQSAttribute(tenant, "key")(t.Context(), sqs)
			return err
		}, attribute("SQSAttribute")},
		"SQSMessageID": {func(tenant string) error {
			_, _, err := SQSMessageID(tenant)(t.Context(), sqs)
			return err
		}, attribute("SQSMessageID")},
		"SNSAttribute": {func(tenant string) error {
			_, _, err := SNSAttribute(tenant, "key")(t.Context(), sns)
			return err
		}, attribute("SNSAttribute")},
		"KafkaHeader": {func(tenant string) error {
			_, _, err := KafkaHeader(tenant, "key")(t.Context(), kafka)
			return err
		}, "the first argument of idemlambda.KafkaHeader names the tenant's header"},
	} {
		t.Run(name, func(t *testing.T) {
			err := c.find("acme")
			require.ErrorIs(t, err, idem.ErrKeyInvalid)
			require.ErrorContains(t, err, c.want)
			if err := c.find("tenant"); err != nil {
				require.NotContains(t, err.Error(), "first argument")
			}
		})
	}
}
