package idemlambda_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/aws/aws-lambda-go/events"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemtest"
	idemlambda "github.com/idem-go/idempotency/lambda"
)

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
