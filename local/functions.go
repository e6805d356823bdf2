package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	goruntime "runtime"
	"strings"
	"time"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/runtime"
)

const (
	payments = "payments"
	orders   = "orders"

	// functionTimeout is short, so that the tour need not wait long for the lease
	// of a killed function: inside Lambda the lease ends when the time-out does.
	functionTimeout = 5 * time.Second
	maxInstances    = 8
)

func functionNames() string { return payments + ", " + orders }

// buildFunctions compiles the examples as they are deployed, but for this
// machine.
func buildFunctions(ctx context.Context, dir string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if errors.Is(err, exec.ErrNotFound) {
		return errors.New("the go command is not on PATH; install Go 1.26 or newer from https://go.dev/dl")
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err != nil {
		return fmt.Errorf("cannot find the module: run this inside the repository: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "lambda.norpc", "-o", dir+string(os.PathSeparator),
		"./lambda/functions/"+payments, "./lambda/functions/"+orders)
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		return fmt.Errorf("cannot compile the functions: %w\n%s", err, msg)
	}
	return nil
}

// startFunction runs a compiled example.
func (s *stack) startFunction(ctx context.Context, name string, env ...string) error {
	logs, err := s.openLog(name)
	if err != nil {
		return err
	}
	path := s.folder.path("bin", name)
	if goruntime.GOOS == "windows" {
		path += ".exe"
	}
	pool, err := runtime.Start(ctx, runtime.Function{
		Path: path, Name: name, Timeout: functionTimeout, MaxInstances: maxInstances,
		Env: append([]string{
			schema.EnvTable + "=" + recordsTable, schema.EnvEndpoint + "=" + s.wireURL,
			// So that every answer's story can be told: which attempt, replayed or not.
			"AWS_LAMBDA_LOG_FORMAT=JSON", "AWS_LAMBDA_LOG_LEVEL=DEBUG",
		}, env...),
	}, &runtime.Options{Output: logs})
	if err != nil {
		return err
	}
	s.pools[name] = pool
	s.onClose(pool.Close)
	return nil
}
