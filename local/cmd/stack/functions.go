package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/cmd/gorun"
)

const (
	payments      = "payments"
	orders        = "orders"
	statements    = "statements"
	relay         = "relay"
	refundSweeper = "refundsweeper"

	// functionTimeout is short, so that the tour need not wait long for the lease
	// of a killed function: inside Lambda the lease ends when the time-out does.
	functionTimeout = 5 * time.Second
	maxInstances    = 8
)

// functions are the examples that run.
var functions = []string{payments, orders, statements, relay, refundSweeper}

func functionNames() string { return strings.Join(functions, ", ") }

// buildFunctions compiles the examples as they are deployed, but for this machine.
func buildFunctions(ctx context.Context, dir string) error {
	const folder = "github.com/idem-go/idempotency/lambda/functions/"
	args := []string{"-tags", "lambda.norpc", "-o", dir + string(os.PathSeparator)}
	for _, name := range functions {
		args = append(args, folder+name)
	}
	err := gorun.Build(ctx, []string{"CGO_ENABLED=0"}, args...)
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
			// So that the tour can tell of every message what became of it.
			"AWS_LAMBDA_LOG_FORMAT=JSON", "AWS_LAMBDA_LOG_LEVEL=DEBUG",
		}, env...),
	}, &runtime.Options{Output: s.logs})
	if err != nil {
		return err
	}
	s.pools[name] = pool
	s.onClose(pool.Close)
	return nil
}
