package emf_test

import (
	"context"
	"log"
	"os"

	"github.com/aws/aws-lambda-go/lambda"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/memstore"
)

func Example() {
	metrics, err := emf.New(nil) // the service is the function
	if err != nil {
		log.Fatal(err)
	}
	engine, err := idem.New(memstore.New(), &idem.Options{
		Observer: idem.Observers(metrics.Observe, nil), // nil is the default log: without it, no warnings
	})
	if err != nil {
		log.Fatal(err)
	}
	handler := func(ctx context.Context, payment string) (string, error) {
		return idem.Do(ctx, engine, charge.Key("acme", payment), payment, func(context.Context, string) (string, error) {
			return "receipt for " + payment, nil
		})
	}
	wrapped := metrics.Wrap(lambda.NewHandler(handler))
	if os.Getenv("AWS_LAMBDA_RUNTIME_API") != "" {
		lambda.Start(wrapped)
	}
}
