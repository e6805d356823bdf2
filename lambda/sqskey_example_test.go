package idemlambda_test

import (
	"context"
	"fmt"

	"github.com/aws/aws-lambda-go/events"

	idemlambda "github.com/idem-go/idempotency/lambda"
)

// Where old producers set no attribute yet, their messages and those of new producers have the same keys.
func ExampleSQSKeyFunc() {
	byAttribute := idemlambda.SQSAttribute(idemlambda.SQSTenantAttribute, idemlambda.SQSKeyAttribute)
	byBody := idemlambda.SQSPointer("/customer", "/id")
	key := func(ctx context.Context, m *events.SQSMessage) (tenant, value string, err error) {
		if _, ok := m.MessageAttributes[idemlambda.SQSKeyAttribute]; ok {
			return byAttribute(ctx, m)
		}
		return byBody(ctx, m)
	}
	body := `{"customer": "acme", "id": "o-7"}`
	of := func(s string) events.SQSMessageAttribute {
		return events.SQSMessageAttribute{DataType: "String", StringValue: &s}
	}
	for name, attributes := range map[string]map[string]events.SQSMessageAttribute{
		"old":    nil,
		"new":    {idemlambda.SQSTenantAttribute: of("acme"), idemlambda.SQSKeyAttribute: of("o-7")},
		"broken": {idemlambda.SQSKeyAttribute: of("")},
	} {
		tenant, value, err := key(context.Background(), &events.SQSMessage{Body: body, MessageAttributes: attributes})
		fmt.Println(name, tenant, value, err != nil)
	}
	// Unordered output:
	// old acme o-7 false
	// new acme o-7 false
	// broken   true
}
