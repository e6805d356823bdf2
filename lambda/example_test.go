package idemlambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/memstore"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

type Payment struct {
	ID     string `json:"paymentId"`
	Amount int    `json:"amount"`
}

type Receipt struct {
	Charge string `json:"charge"`
}

var Charge = idem.Operation{Name: "charge", Repeat: idem.Repeatable}

var byPaymentID = idemlambda.Pointer(idem.SingleTenant, "/paymentId")

func charge(ctx context.Context, p Payment) (Receipt, error) {
	fmt.Println("charging", p.Amount)
	return Receipt{Charge: "ch_" + p.ID}, nil
}

func ExampleWrap() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	handler := idemlambda.Wrap(engine, Charge, byPaymentID, charge) // for lambda.Start

	for range 2 {
		out, err := handler.Invoke(context.Background(), []byte(`{"paymentId":"p1","amount":4999}`))
		fmt.Println(string(out), err)
	}
	// Output:
	// charging 4999
	// {"charge":"ch_p1"} <nil>
	// {"charge":"ch_p1"} <nil>
}

func ExampleKeyFrom() {
	key := idemlambda.KeyFrom(func(p Payment) (tenant, value string) { return idem.SingleTenant, p.ID })
	_, value, err := key(context.Background(), []byte(`{"paymentId":"p1"}`))
	fmt.Println(value, err)
	// Output: p1 <nil>
}

func ExampleHTTPAPI() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	post := func(ctx context.Context, e events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
		fmt.Println("charging")
		return events.APIGatewayV2HTTPResponse{StatusCode: 201, Body: `{"charge":"ch_1"}`}, nil
	}
	handler := idemlambda.HTTPAPI(engine, idemhttp.Routes{"POST /payments": Charge},
		idemhttp.Claim("sub"), nil, post) // for lambda.Start

	event := events.APIGatewayV2HTTPRequest{
		RouteKey: "POST /payments",
		Headers:  map[string]string{"idempotency-key": "8e03978e-40d5-43e8-bc93-6894a57f9324"},
		RequestContext: events.APIGatewayV2HTTPRequestContext{
			HTTP: events.APIGatewayV2HTTPRequestContextHTTPDescription{Method: "POST"},
			Authorizer: &events.APIGatewayV2HTTPRequestContextAuthorizerDescription{
				JWT: &events.APIGatewayV2HTTPRequestContextAuthorizerJWTDescription{Claims: map[string]string{"sub": "alice"}},
			},
		},
	}
	for range 2 {
		res, _ := handler(context.Background(), event)
		fmt.Printf("%d %s %q\n", res.StatusCode, res.Body, res.Headers[idemhttp.HeaderReplayed])
	}
	// Output:
	// charging
	// 201 {"charge":"ch_1"} ""
	// 201 {"charge":"ch_1"} "true"
}

// Fulfil may run again: the service takes an order's id as its idempotency key.
var Fulfil = idem.Operation{Name: "fulfil", Repeat: idem.Repeatable}

type Order struct {
	ID      string `json:"id"`
	Article string `json:"article"`
}

func received(id, body string) events.SQSMessage {
	return events.SQSMessage{MessageId: id, Body: body, EventSourceARN: "arn:aws:sqs:eu-central-1:111122223333:orders"}
}

func ExampleSQS() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	byOrder := idemlambda.SQSPointer(idem.SingleTenant, "/id")
	fulfil := func(ctx context.Context, o Order) error {
		m, _ := idemlambda.SQSMessageOf(ctx)
		switch o.Article {
		case "none":
			return idem.Permanent(errors.New("no such article"))
		case "later":
			return errors.New("the service is down")
		}
		fmt.Println("fulfilling", o.ID, "of message", m.MessageId)
		return nil
	}
	handler := idemlambda.SQS(engine, Fulfil, byOrder, &idemlambda.SQSOptions{
		Concurrency: 1,
		OnOutcome: func(_ context.Context, out idemlambda.SQSDelivery) {
			fmt.Println(out.Event.MessageId, out.Reason, out.Err)
		},
		Logger: slog.New(slog.DiscardHandler),
	}, fulfil) // for lambda.Start

	res, err := handler(context.Background(), events.SQSEvent{Records: []events.SQSMessage{
		received("m1", `{"id":"o1","article":"book"}`),
		received("m2", `{"id":"o1","article":"book"}`),
		received("m3", `{"id":"o2","article":"none"}`),
		received("m4", `{"id":"o3","article":"later"}`),
		received("m5", `{"article":"book"}`),
	}})
	out, _ := json.Marshal(res)
	fmt.Println(string(out), err)
	// Output:
	// fulfilling o1 of message m1
	// m1 executed <nil>
	// m2 replayed <nil>
	// m3 failed no such article
	// m4 released the service is down
	// m5 key_invalid idem: the key is invalid: there is no value at "/id" of the body
	// {"batchItemFailures":[{"itemIdentifier":"m4"},{"itemIdentifier":"m5"}]} <nil>
}

// An EventBridge rule's target is a queue: the order's id is the key, and only the
// event's detail counts as its input, so that an event published twice runs once.
func ExampleSQS_eventBridge() {
	engine, err := idem.New(memstore.New(), nil)
	if err != nil {
		panic(err)
	}
	handler := idemlambda.SQS(engine, Fulfil, idemlambda.SQSPointer(idem.SingleTenant, "/detail/id"),
		&idemlambda.SQSOptions{Select: &fingerprint.Select{Only: []string{"/detail"}}},
		func(_ context.Context, e struct{ Detail Order }) error {
			fmt.Println("fulfilling", e.Detail.ID)
			return nil
		})
	for _, body := range []string{
		`{"id":"17793124-05d4-b198-2fde-7ededc63b103","detail-type":"OrderPlaced","detail":{"id":"o1","article":"book"}}`,
		`{"id":"8a1c6f0e-7d3b-4b69-9e0a-3c8d6f1b2a47","detail-type":"OrderPlaced","detail":{"id":"o1","article":"book"}}`,
	} {
		res, err := handler(context.Background(), events.SQSEvent{Records: []events.SQSMessage{received("m", body)}})
		fmt.Println(len(res.BatchItemFailures), err)
	}
	// Output:
	// fulfilling o1
	// 0 <nil>
	// 0 <nil>
}

func ExampleSQSPointer() {
	byObject := idemlambda.SQSPointer(idem.SingleTenant, "/Records/0/eventName",
		"/Records/0/s3/bucket/name", "/Records/0/s3/object/key", "/Records/0/s3/object/sequencer")
	_, value, err := byObject(context.Background(), &events.SQSMessage{
		Body: `{"Records":[{"eventName":"ObjectCreated:Put","s3":{"bucket":{"name":"settlements"},` +
			`"object":{"key":"in/7.csv","sequencer":"006A1F2C0D"}}}]}`,
	})
	fmt.Println(value, err)
	// Output: ObjectCreated%3APut/settlements/in%2F7.csv/006A1F2C0D <nil>
}

// A producer sends the key with the message.
func ExampleSQSAttributesFor() {
	sending, err := idemlambda.SQSAttributesFor(Fulfil, "acme", "order-1042")
	if err != nil {
		panic(err)
	}
	input := sqs.SendMessageInput{
		QueueUrl:          aws.String("https://sqs.eu-central-1.amazonaws.com/111122223333/orders"),
		MessageBody:       aws.String(`{"id":"order-1042"}`),
		MessageAttributes: map[string]types.MessageAttributeValue{},
	}
	if sending.GroupID != "" { // in a FIFO queue: a group of your own, and MessageDeduplicationId
		input.MessageGroupId = &sending.GroupID
	}
	for name, text := range sending.Attributes {
		input.MessageAttributes[name] = types.MessageAttributeValue{DataType: aws.String("String"), StringValue: &text}
	}
	fmt.Println(*input.MessageAttributes[idemlambda.SQSTenantAttribute].StringValue)
	fmt.Println(*input.MessageAttributes[idemlambda.SQSKeyAttribute].StringValue)
	fmt.Println(*input.MessageGroupId)
	fmt.Println(sending.DeduplicationID)
	// Output:
	// acme
	// order-1042
	// 822b33ad87c148a0a20a5ba7cd5ebcaa68d36a18e7aad165554903f52ca82757
	// 663a3696316c129fc5e71c7e214b0a2c0a4767ce406a16560998ad3bbe466e35
}

// A wrapped handler whose process dies after the effect. The next process has an engine of
// its own, and so a handler of its own.
func ExampleWrap_crash() {
	h := idemtest.New(nil, nil) // in a test: idemtest.New(t, nil)
	refund := idem.Operation{Name: "refund"}
	refunds, dies := 0, true
	event := []byte(`{"paymentId":"p1","amount":4999}`)
	invoke := func(ctx context.Context, e *idem.Engine) (string, error) {
		handler := idemlambda.Wrap(e, refund, byPaymentID, func(context.Context, Payment) (Receipt, error) {
			refunds++
			if dies {
				h.Crash()
			}
			return Receipt{Charge: "re_1"}, nil
		})
		out, err := handler.Invoke(ctx, event)
		return string(out), err
	}

	fmt.Println(idemtest.Deliver(h, 1, invoke)[0].Err)

	h.Restart()
	dies = false
	h.Clock.Advance(time.Minute) // the lease is over
	retry := idemtest.Deliver(h, 1, invoke)[0]
	fmt.Println("unknown:", errors.Is(retry.Err, idem.ErrOutcomeUnknown), "refunds:", refunds)
	// Output:
	// idemtest: the process crashed
	// unknown: true refunds: 1
}

// The same over HTTP, with the event that API Gateway sends for a request with a token.
func ExampleHTTPAPI_crash() {
	h := idemtest.New(nil, nil) // in a test: idemtest.New(t, nil)
	refund := idem.Operation{Name: "refund"}
	dies := true
	sample, err := samples.Get("apigw-v2-jwt") // POST /payments
	if err != nil {
		panic(err)
	}
	var event events.APIGatewayV2HTTPRequest
	if err := json.Unmarshal(sample, &event); err != nil {
		panic(err)
	}
	invoke := func(ctx context.Context, e *idem.Engine) (events.APIGatewayV2HTTPResponse, error) {
		handler := idemlambda.HTTPAPI(e, idemhttp.Routes{"POST /payments": refund}, idemhttp.Claim("sub"), nil,
			func(context.Context, events.APIGatewayV2HTTPRequest) (events.APIGatewayV2HTTPResponse, error) {
				if dies {
					h.Crash()
				}
				return events.APIGatewayV2HTTPResponse{StatusCode: 201}, nil
			})
		return handler(ctx, event)
	}

	fmt.Println(idemtest.Deliver(h, 1, invoke)[0].Err)

	h.Restart()
	dies = false
	h.Clock.Advance(time.Minute) // the lease is over
	retry := idemtest.Deliver(h, 1, invoke)[0].Value
	fmt.Println(retry.StatusCode, retry.Headers["Content-Type"])
	// Output:
	// idemtest: the process crashed
	// 409 application/problem+json
}
