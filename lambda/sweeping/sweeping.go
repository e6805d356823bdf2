// Package sweeping is the program of a sweeper function, for a sweeper that asks your providers.
//
//	func main() {
//		sweeping.Main(func(idem.Store) ([]reconcile.Operation, error) {
//			return []reconcile.Operation{{Operation: refund, Probe: askProvider}}, nil
//		})
//	}
//
// lambda/functions/sweeper is the ready function, which knows no operation. infra.NewSweeper
// deploys either.
package sweeping

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"strconv"

	"github.com/aws/aws-lambda-go/lambda"
	"github.com/aws/aws-lambda-go/lambdacontext"
	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/outbox/sqssender"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// Main runs a sweeper function. It does not return. operations says what the sweep knows of the
// operations in the store; nil knows none, and asks no provider.
//
// Each invocation sweeps once and fails only if nothing could be done. Logs, metrics and the
// escalation queue are those that the alarms of infra.NewMonitoring use. The environment is
// what infra.NewSweeper sets: IDEM_TABLE names the table, IDEM_SWEEP_ESCALATIONS is the URL of the
// queue for questions that are escalated. IDEM_SWEEP_CONCURRENCY is how many records of a provider are
// handled at once. IDEM_WITHOUT_TRANSACTIONS is true for a table
// that has none: it has no TTL either, and the sweep removes what has expired. IDEM_DYNAMODB_ENDPOINT
// is a local DynamoDB. What is missing or malformed there, and an error of operations, end the process
// with a line that says what to set.
func Main(operations func(idem.Store) ([]reconcile.Operation, error)) { MainSealed(nil, operations) }

// MainSealed is Main for a table whose results are encrypted (dynamostore.Options.Sealer), if a
// probe reads a step's result or gives one to record: seal returns the sealer, such as one of
// package kmsseal. Without it such a result is unreadable to a probe, and one that a probe gives is
// escalated. All else a sweep does without it.
func MainSealed(seal func(aws.Config) (dynamostore.Sealer, error),
	operations func(idem.Store) ([]reconcile.Operation, error)) {
	slog.SetDefault(lambdacontext.NewLogger())
	metrics, err := emf.New(nil)
	if err != nil {
		log.Fatal(err)
	}
	f, err := open(context.Background(), seal, operations, metrics)
	if err != nil {
		log.Fatal(err)
	}
	lambda.Start(metrics.Wrap(lambda.NewHandler(f.handle)))
}

func open(ctx context.Context, seal func(aws.Config) (dynamostore.Sealer, error),
	operations func(idem.Store) ([]reconcile.Operation, error), metrics *emf.Metrics) (*function, error) {
	cfg, err := config.LoadDefaultConfig(ctx)
	if err != nil {
		return nil, err
	}
	concurrency := 0
	if v := os.Getenv(schema.EnvSweepConcurrency); v != "" {
		if concurrency, err = strconv.Atoi(v); err != nil || concurrency < 1 || concurrency > schema.MaxSweepConcurrency {
			return nil, fmt.Errorf("%s is %q: use a whole number from 1 to %d", schema.EnvSweepConcurrency, v,
				schema.MaxSweepConcurrency)
		}
	}
	connect := &dynamostore.ClientOptions{Endpoint: os.Getenv(schema.EnvEndpoint)}
	if concurrency > dynamostore.DefaultMaxIdleConns {
		connect.MaxIdleConns = concurrency
	}
	client, err := dynamostore.NewClient(cfg, connect)
	if err != nil {
		return nil, err
	}
	kind := &dynamostore.Options{WithoutTransactions: os.Getenv(schema.EnvWithoutTransactions) == "true"}
	if seal != nil {
		if kind.Sealer, err = seal(cfg); err != nil {
			return nil, err
		}
	}
	store, err := dynamostore.NewAdminStore(client, os.Getenv(schema.EnvTable), kind)
	if err != nil {
		return nil, err
	}
	reconciler, err := reconcile.New(store, nil)
	if err != nil {
		return nil, err
	}
	var known []reconcile.Operation
	if operations != nil {
		if known, err = operations(store); err != nil {
			return nil, err
		}
	}
	escalations, err := sqssender.New(sqs.NewFromConfig(cfg), os.Getenv(schema.EnvSweepEscalations))
	if err != nil {
		return nil, err
	}
	o := &reconcile.SweepOptions{Operations: known, Escalate: reconcile.SendTo(escalations),
		Who: lambdacontext.FunctionName, Observer: metrics.Observe, Concurrency: concurrency}
	if kind.WithoutTransactions { // such a table is without TTL too
		if o.Expired, err = dynamostore.NewRemover(client, os.Getenv(schema.EnvTable), kind); err != nil {
			return nil, err
		}
	}
	sweeper, err := reconcile.NewSweeper(reconciler, o)
	return &function{reconciler, sweeper, metrics}, err
}
