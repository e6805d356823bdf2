// Package comparing is the program of a ledger function: each day it compares what your provider did on the last day
// with the records of that day. Package idem/reconcile/ledger says what it finds.
//
//	func main() {
//		comparing.Main(func(aws.Config) (comparing.Options, error) {
//			return comparing.Options{Options: ledger.Options{
//				Operation: "refund", Entries: refundsOfTheProvider, Expect: amountOf,
//			}}, nil
//		})
//	}
//
// infra.NewLedger deploys it.
package comparing

import (
	"context"
	"io"
	"log"
	"log/slog"
	"os"
	"time"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/reconcile/ledger"
	"github.com/idem-go/idempotency/idem/schema"
)

// Options of a ledger function. Those of the ledger are required as its doc says.
type Options struct {
	ledger.Options
	// Location is where the provider's days begin. Nil means UTC. A name such as Europe/Berlin is read by
	// time.LoadLocation, for which the program imports time/tzdata.
	Location *time.Location
	// Report opens what the findings of a day are written to, as lines of JSON, such as an upload to a bucket. It is
	// closed at the end: an error of that is one of the invocation. A report without its last line, whose kind is
	// complete, is of a comparison that has failed. Nil means the function's log.
	Report func(ctx context.Context, day time.Time) (io.WriteCloser, error)
	// Sealer reads results that are encrypted (dynamostore.Options.Sealer), if Expect reads results.
	Sealer dynamostore.Sealer
}

// Main runs a ledger function. It does not return. options is called once, at the start.
//
// Each invocation compares one day: the last one that has been over for an hour, without summer time, at the event's
// time, which a schedule sets, or now without it. So a daily schedule compares each day once. The event {"day":
// "2026-03-01"} names another one, to compare a day again. A difference is a line of the log with the level WARN,
// and counts in the metrics by which the alarms of infra.NewMonitoring are raised. An invocation fails if the day
// could not be compared, and Lambda invokes it twice more then.
//
// To try it before the schedule does, invoke it with the last day that has been over for an hour. An effect from before
// the operation had records is then missing here, and if the table has no record of it yet the invocation fails.
//
// The environment is what infra.NewLedger sets: IDEM_TABLE names the table. IDEM_DYNAMODB_ENDPOINT is a local
// DynamoDB. What is missing or malformed there, and an error of options, end the process with a line that says what
// to set.
func Main(options func(aws.Config) (Options, error)) {
	slog.SetDefault(lambdacontext.NewLogger())
	metrics, err := emf.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	f, err := open(context.Background(), options, metrics)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(metrics.Wrap(lambda.NewHandler(f.handle)))
}

// pageTime is for a page of 1 MB, which a busy table may throttle for a while.
const pageTime = 5 * time.Second

func open(ctx context.Context, options func(aws.Config) (Options, error), metrics *emf.Metrics) (*function, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	client, err := dynamostore.NewClient(cfg, &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint)})
	if err != nil {
		return nil, err
	}
	o, err := options(cfg)
	if err != nil {
		return nil, err
	}
	scanner, err := dynamostore.NewScanner(client, os.Getenv(schema.EnvTable),
		&dynamostore.Options{AttemptTimeout: pageTime, Budget: 12 * pageTime, Sealer: o.Sealer})
	if err != nil {
		return nil, err
	}
	l, err := ledger.New(scanner, o.Options)
	if err != nil {
		return nil, err
	}
	if o.Location == nil {
		o.Location = time.UTC
	}
	if o.Report == nil {
		o.Report = toLog
	}
	return &function{ledger: l, opts: o, metrics: metrics}, nil
}
