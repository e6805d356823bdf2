package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/cmd/gorun"
)

const (
	payments      = "payments"
	orders        = "orders"
	refundSweeper = "refundsweeper"

	// functionTimeout is short, so that the tour need not wait long for the lease
	// of a killed function: inside Lambda the lease ends when the time-out does.
	functionTimeout = 5 * time.Second
	maxInstances    = 8
)

func functionNames() string { return payments + ", " + orders + ", " + refundSweeper }

// buildFunctions compiles the examples as they are deployed, but for this machine.
func buildFunctions(ctx context.Context, dir string) error {
	const folder = "github.com/idem-go/idempotency/lambda/functions/"
	err := gorun.Build(ctx, []string{"CGO_ENABLED=0"}, "-tags", "lambda.norpc", "-o", dir+string(os.PathSeparator),
		folder+payments, folder+orders, folder+refundSweeper)
	if err != nil && ctx.Err() == nil {
		return fmt.Errorf("cannot compile the functions: %w", err)
	}
	return err
}

// startFunction runs a compiled example.
func (s *stack) startFunction(ctx context.Context, name string, env ...string) error {
	pool, err := runtime.Start(ctx, runtime.Function{
		Path: s.folder.path("bin", name), Name: name, Timeout: functionTimeout, MaxInstances: maxInstances,
		Env: append([]string{
			schema.EnvTable + "=" + recordsTable, schema.EnvEndpoint + "=" + s.wireURL,
			// So that the summary of every answer can tell: which attempt, replayed or not.
			"AWS_LAMBDA_LOG_FORMAT=JSON", "AWS_LAMBDA_LOG_LEVEL=DEBUG",
		}, env...),
	}, &runtime.Options{Output: page{s.logs, name}})
	if err != nil {
		return err
	}
	s.pools[name] = pool
	s.onClose(pool.Close)
	return nil
}
