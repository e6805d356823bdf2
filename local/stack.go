package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/local/dynamodblocal"
	"github.com/idem-go/idempotency/local/front"
	"github.com/idem-go/idempotency/local/runtime"
)

const (
	table = "idem"
	// functionTimeout is short, so that the tour need not wait long for the lease
	// of a killed function: inside Lambda the lease ends when the time-out does.
	functionTimeout = 5 * time.Second
	maxInstances    = 8
)

// stack is everything that runs.
type stack struct {
	url      string
	wire     *wire
	provider *provider
	pool     *runtime.Pool
	closers  []func()
}

// close ends everything, the latest first.
func (s *stack) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
	s.closers = nil
}

func start(ctx context.Context, o options, say func(string, ...any)) (s *stack, err error) {
	s = &stack{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	dir, err := os.MkdirTemp("", "idem-local-")
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = os.RemoveAll(dir) })

	built := make(chan error, 1)
	bin := filepath.Join(dir, "payments")
	go func() { built <- buildFunction(ctx, bin) }()

	say("starting DynamoDB Local ...")
	db, err := dynamodblocal.Start(ctx, &dynamodblocal.Options{
		Endpoint: o.endpoint, JarDir: o.jarDir, CacheDir: o.cacheDir,
		Log: func(format string, args ...any) { say("  "+format, args...) },
	})
	if err != nil {
		<-built
		return nil, err
	}
	s.closers = append(s.closers, func() { _ = db.Close() })
	say("DynamoDB Local at %s (%s)", db.Endpoint(), db.Source())
	if err := createTable(ctx, db.Endpoint()); err != nil {
		<-built
		return nil, err
	}
	say("table %q is there; compiling the payments function ...", table)
	if err := <-built; err != nil {
		return nil, err
	}
	if s.wire, err = newWire(db.Endpoint()); err != nil {
		return nil, err
	}
	if s.provider, err = newProvider(); err != nil {
		return nil, err
	}
	wireURL, err := s.listen(0, s.wire)
	if err != nil {
		return nil, err
	}
	providerURL, err := s.listen(0, s.provider)
	if err != nil {
		return nil, err
	}
	s.pool, err = runtime.Start(ctx, runtime.Function{
		Path: bin, Name: "payments", Timeout: functionTimeout, MaxInstances: maxInstances,
		Env: []string{
			schema.EnvTable + "=" + table, schema.EnvEndpoint + "=" + wireURL, "PROVIDER_URL=" + providerURL,
			"AWS_ACCESS_KEY_ID=local", "AWS_SECRET_ACCESS_KEY=local",
		},
	}, nil)
	if err != nil {
		return nil, err
	}
	s.closers = append(s.closers, s.pool.Close)

	routes := map[string]front.Invoke{}
	for _, route := range []string{"POST /payments", "POST /refunds", "POST /statements"} {
		routes[route] = s.pool.Call
	}
	// A token is not checked here: whoever calls is the tenant that it says it is.
	api, err := front.New(routes, &front.Options{Claims: func(r *http.Request) (map[string]string, bool) {
		tenant := r.Header.Get("X-Tenant")
		if tenant == "" {
			tenant = "acme"
		}
		return map[string]string{"sub": tenant}, true
	}})
	if err != nil {
		return nil, err
	}
	s.url, err = s.listen(o.port, api)
	return s, err
}

// listen serves on 127.0.0.1 until the stack is closed.
func (s *stack) listen(port int, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "", fmt.Errorf("cannot listen: %w; choose another -port", err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }()
	s.closers = append(s.closers, func() { _ = srv.Close() })
	return "http://" + l.Addr().String(), nil
}

func createTable(ctx context.Context, endpoint string) error {
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: endpoint})
	if err != nil {
		return err
	}
	if err := dynamostore.Check(ctx, client, table); err == nil {
		return nil // an endpoint that was given and has the table already
	}
	if err := dynamostore.CreateTable(ctx, client, table); err != nil {
		return fmt.Errorf("cannot create the table: %w", err)
	}
	return nil
}

// buildFunction compiles the example as it is deployed, but for this machine.
func buildFunction(ctx context.Context, out string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("cannot find the module: run this inside the repository: %w", err)
	}
	cmd := exec.CommandContext(ctx, "go", "build", "-tags", "lambda.norpc", "-o", out, "./lambda/functions/payments")
	cmd.Dir = strings.TrimSpace(string(root))
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if msg, err := cmd.CombinedOutput(); err != nil {
		return errors.Join(fmt.Errorf("cannot compile the payments function: %w", err), errors.New(string(msg)))
	}
	return nil
}
