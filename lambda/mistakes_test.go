package idemlambda

import (
	"bytes"
	"context"
	"io"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

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

// returning is a handler of payments whose result is of that type.
func returning[Out any](context.Context, payment) (out Out, err error) { return out, nil }

// lossy is a store that may lose what it has confirmed.
type lossy struct{ idem.Store }

func (lossy) Traits() protocol.Traits {
	return protocol.Traits{Lossy: &idem.ConfigError{Problem: "it is lossy"}}
}

// Mistakes in the set-up are found when the handler, or its key function, is made.
func TestMistakesInTheSetUp(t *testing.T) {
	e, none := newEngine(t, memory()), idem.SingleTenant
	unnamed, anyRoute := idem.Operation{}, idemhttp.AnyRoute(charge)
	selection := fingerprint.Select{Only: []string{"id"}}
	type says = []string
	for _, m := range []struct {
		says says
		make func()
	}{
		{nil, func() { Pointer(none) }},
		{nil, func() { Pointer("", "/id") }},
		{nil, func() { Pointer("tenant", "/id") }},
		{nil, func() { Pointer(none, "") }},
		{nil, func() { Pointer(none, "id") }},
		{nil, func() { Pointer(none, "$.id") }},
		{nil, func() { Pointer(none, "/a~2") }},
		{nil, func() { Pointer(none, "/a~") }},
		{nil, func() { KeyFrom[payment](nil) }},
		{says{"SQSAttribute", "name is empty"}, func() { SQSAttribute(none, "") }},
		{says{"SQSAttribute", "tenant is empty", "idem.SingleTenant"}, func() { SQSAttribute("", "k") }},
		{says{"SQSMessageID", "tenant is empty"}, func() { SQSMessageID("") }},
		{says{"SQSDeduplicationID", "tenant is empty"}, func() { SQSDeduplicationID("") }},
		{says{"idemlambda.SQSPointer", "no pointer"}, func() { SQSPointer(none) }},
		{says{"idemlambda.SQSPointer: tenant pointer"}, func() { SQSPointer("tenant", "/a") }},
		{says{"idemlambda.SQSPointer: value pointer"}, func() { SQSPointer(none, "a~2") }},
		{says{"idemlambda.SNSPointer"}, func() { SNSPointer(none) }},
		{nil, func() { SNSAttribute("", "x") }},
		{nil, func() { SNSAttribute(none, "") }},
		{nil, func() { KafkaHeader("", "x") }},

		{says{"engine is nil"}, func() { Wrap(nil, charge, byPaymentID, returning[receipt]) }},
		{says{"Name is empty"}, func() { Wrap(e, unnamed, byPaymentID, returning[receipt]) }},
		{says{`operation "charge"`, "it is lossy"}, func() {
			Wrap(newEngine(t, lossy{memory()}), charge, byPaymentID, returning[receipt])
		}},
		{says{"key function is nil"}, func() { Wrap(e, charge, nil, returning[receipt]) }},
		{says{"handler is nil"}, func() { Wrap[payment, receipt](e, charge, byPaymentID, nil) }},
		{says{"no JSON pointer"}, func() { Wrap(e, charge, byPaymentID, returning[receipt], WithSelect(selection)) }},
		{says{"sent as a stream", "idemlambda.FunctionURL"}, func() {
			Wrap(e, charge, byPaymentID, returning[*events.LambdaFunctionURLStreamingResponse])
		}},
		{says{"sent as a stream", "idemlambda.FunctionURL"}, func() {
			Wrap(e, inShadow(charge), byPaymentID, returning[*events.LambdaFunctionURLStreamingResponse])
		}},
		{says{"chan int", "cannot be encoded"}, func() { Wrap(e, charge, byPaymentID, returning[chan int]) }},
		{says{"of what io.Reader reads JSON sees nothing", "read it first"}, func() {
			Wrap(e, charge, byPaymentID, returning[io.Reader])
		}},
		{says{"of what bytes.Buffer reads"}, func() { Wrap(e, charge, byPaymentID, returning[*bytes.Buffer]) }},
		{nil, func() { Wrap(e, charge, byPaymentID, returning[struct{ number string }]) }},

		{says{"engine is nil"}, func() { SNS(nil, fulfil, nil, nil, work) }},
		{says{"Name is empty"}, func() { S3(e, unnamed, nil, nil, new(deed).s3) }},
		{says{"key function is nil"}, func() { SQS(e, fulfil, nil, nil, work) }},
		{says{"no JSON pointer"}, func() { SQS(e, fulfil, byAttribute, &SQSOptions{Select: &selection}, work) }},
		{says{"handler is nil"}, func() { Kinesis[order](e, fulfil, nil, nil, nil) }},
		{says{"Concurrency is"}, func() {
			DynamoDBStream(e, fulfil, nil, &Options[events.DynamoDBEventRecord]{Concurrency: -1}, new(deed).change)
		}},
		{says{"Select is set"}, func() {
			EventBridge(e, fulfil, nil, &Options[events.EventBridgeEvent]{Select: &fingerprint.Select{Only: []string{"/id"}}},
				ignore)
		}},
		{says{"idemlambda.StepFunctions"}, func() { StepFunctions[order, string](e, fulfil, nil, nil) }},
		{says{"idemlambda.Kafka"}, func() { Kafka[order](e, fulfil, nil, nil, nil) }},

		{says{"idemlambda.HTTPAPI", "handler is nil"}, func() { HTTPAPI(e, anyRoute, idemhttp.SingleTenant, nil, nil) }},
		{says{"idemlambda.RESTAPI", "handler is nil"}, func() { RESTAPI(e, anyRoute, idemhttp.SingleTenant, nil, nil) }},
		{says{"idemlambda.FunctionURL", "handler is nil"}, func() {
			FunctionURL(e, anyRoute, idemhttp.SingleTenant, nil, nil)
		}},
		{says{"idemlambda.ALB", "handler is nil"}, func() { ALB(e, anyRoute, idemhttp.SingleTenant, nil, nil) }},
	} {
		requireConfigPanic(t, m.make, m.says...)
	}
	for _, f := range functions {
		n := 0
		requireConfigPanic(t, func() { f(nil, anyRoute, idemhttp.SingleTenant, nil, &n) }, "engine is nil")
		requireConfigPanic(t, func() { f(e, nil, idemhttp.SingleTenant, nil, &n) }, "no routes")
		requireConfigPanic(t, func() { f(e, idemhttp.AnyRoute(unnamed), idemhttp.SingleTenant, nil, &n) }, "Name is empty")
		requireConfigPanic(t, func() { f(e, anyRoute, nil, nil, &n) }, "SingleTenant")
	}
	require.NotPanics(t, func() { Wrap(e, charge, byPaymentID, returning[receipt], nil) }, "as nil options elsewhere")
}
