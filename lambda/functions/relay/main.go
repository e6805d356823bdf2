// Command relay sends the messages that operations have published in their
// transactions. README.md has how to deploy and operate it.
//
// Environment: IDEM_TABLE names the table, IDEM_OUTBOX_ROUTES says where messages
// go, IDEM_OUTBOX_SOURCE is the source of events on EventBridge (only with a route to a
// bus). IDEM_OUTBOX_MAX_TRIES, IDEM_OUTBOX_BACKOFF and IDEM_OUTBOX_GRACE
// replace the defaults of package outbox. IDEM_DYNAMODB_ENDPOINT is a local
// DynamoDB (unset on AWS).
package main

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
)

const (
	// sendTimeout bounds one request to a destination. An SDK makes at most two, and both
	// are over within the relay's own time for a send.
	sendTimeout  = 4 * time.Second
	sendAttempts = 2
)

func main() {
	slog.SetDefault(lambdacontext.NewLogger())
	opts := must(options(os.Getenv))
	cfg := must(config.LoadDefaultConfig(context.Background(),
		config.WithHTTPClient(http.NewBuildableClient().WithTimeout(sendTimeout)), config.WithRetryMaxAttempts(sendAttempts)))
	senders := must(sendersOf(cfg, os.Getenv(schema.EnvOutboxRoutes), os.Getenv(schema.EnvOutboxSource)))
	client := must(dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint)}))
	store := must(dynamostore.NewOutbox(client, os.Getenv(schema.EnvTable), nil))
	relay := must(outbox.NewRelay(store, senders, opts))
	metrics := must(emf.New(nil))
	lambda.Start(metrics.Wrap(lambda.NewHandler((&function{relay, metrics}).handle)))
}

// must returns the value. An error ends the process.
func must[T any](value T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return value
}

// options reads the options from the environment.
func options(env func(string) string) (*outbox.Options, error) {
	o := &outbox.Options{}
	if v := env(schema.EnvOutboxMaxTries); v != "" {
		n, err := strconv.Atoi(v)
		if err != nil || n < 1 {
			return nil, fmt.Errorf("%s is %q: use a whole number from 1", schema.EnvOutboxMaxTries, v)
		}
		o.MaxTries = n
	}
	for name, d := range map[string]*time.Duration{schema.EnvOutboxBackoff: &o.Backoff, schema.EnvOutboxGrace: &o.Grace} {
		v := env(name)
		if v == "" {
			continue
		}
		var err error
		if *d, err = time.ParseDuration(v); err != nil || *d <= 0 {
			return nil, fmt.Errorf("%s is %q: use a duration such as 90s or 2m", name, v)
		}
	}
	return o, nil
}
