package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"strconv"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

// defaultTenant is the tenant of the tour and of the printed token.
const defaultTenant = "acme"

// stack is everything that runs.
type stack struct {
	folder      folder
	url         string // of the HTTP API
	wire        *wire
	wireURL     string
	console     string // address of the operators' pages
	provider    *provider
	issuer      *gateway.Issuer
	db          *dynamodblocal.Server
	sqs         *queue.Server
	queue       mapped // of orders
	work        mapped // of statements
	events      queue.Queue
	relaying    gate
	escalations queue.Queue
	pools       map[string]*runtime.Pool
	logs        *logFile
	closers     []func()
}

func (s *stack) onClose(f func()) { s.closers = append(s.closers, f) }

// close ends everything, the latest first.
func (s *stack) close() {
	for i := len(s.closers) - 1; i >= 0; i-- {
		s.closers[i]()
	}
	s.closers = nil
}

// start brings everything up, or leaves nothing behind.
func start(ctx context.Context, o options, say func(string, ...any)) (*stack, error) {
	s := &stack{pools: map[string]*runtime.Pool{}}
	if err := s.start(ctx, o, say); err != nil {
		s.close()
		if ctx.Err() != nil {
			return nil, ctx.Err() // the reason for all other errors
		}
		return nil, err
	}
	return s, nil
}

func (s *stack) start(ctx context.Context, o options, say func(string, ...any)) (err error) {
	if s.folder, err = newFolder(o.cacheDir); err != nil {
		return err
	}
	s.onClose(s.folder.remove)
	for _, dir := range []string{"bin", "tmp"} {
		if err := os.Mkdir(s.folder.path(dir), 0o700); err != nil {
			return err
		}
	}
	// Files that instances leave are removed with the folder, even if this is killed.
	if err := os.Setenv("TMPDIR", s.folder.path("tmp")); err != nil {
		return err
	}
	if s.logs, err = newLog(s.folder.path("log")); err != nil {
		return err
	}
	s.onClose(func() { _ = s.logs.Close() })
	if err := s.startServers(ctx, o, say); err != nil {
		return err
	}
	if s.wire, err = newWire(s.db.Endpoint()); err != nil {
		return err
	}
	if s.wireURL, err = s.listen(0, s.wire); err != nil {
		return err
	}
	if err := s.startPayments(ctx, o); err != nil {
		return err
	}
	if err := s.startOrders(ctx); err != nil {
		return err
	}
	if err := s.startRelay(ctx); err != nil {
		return err
	}
	return s.startConsole()
}

// startServers compiles the functions and starts the servers, side by side. The first error
// stops the others.
func (s *stack) startServers(ctx context.Context, o options, say func(string, ...any)) error {
	board := progress.Open(say)
	defer board.Close()
	log := func(format string, args ...any) { say("  "+format, args...) }
	g, gctx := errgroup.WithContext(ctx)
	begin := func(what string, do func() error) {
		say("%s ...", what)
		step := board.Begin(what)
		g.Go(func() error {
			defer step.End()
			return do()
		})
	}
	begin("fetching modules and compiling the functions "+functionNames(), func() error {
		begun := time.Now()
		err := buildFunctions(gctx, s.folder.path("bin"))
		if err == nil {
			say("compiled after %v", time.Since(begun).Round(100*time.Millisecond))
		}
		return err
	})
	begin("fetching and starting DynamoDB Local", func() (err error) {
		s.db, err = dynamodblocal.Start(gctx, &dynamodblocal.Options{Endpoint: o.endpoint, CacheDir: o.cacheDir, Log: log})
		if err == nil {
			err = createTables(gctx, s.db.Endpoint())
		}
		if err == nil {
			say("DynamoDB Local at %s, with the tables %s and %s", s.db.Endpoint(), recordsTable, ordersTable)
		}
		return err
	})
	begin("fetching and starting the queue server", func() (err error) {
		if s.sqs, err = queue.Start(gctx, &queue.Options{CacheDir: o.cacheDir, Log: log}); err == nil {
			err = s.createQueues(gctx)
		}
		if err == nil {
			say("queue server at %s, with the queues %s, %s and their dead-letter queues", s.sqs.Endpoint(), ordersQueue, statementsQueue)
		}
		return err
	})
	err := g.Wait()
	if s.db != nil {
		s.onClose(func() { _ = s.db.Close() })
	}
	if s.sqs != nil {
		s.onClose(func() { _ = s.sqs.Close() })
	}
	return err
}

func (s *stack) createQueues(ctx context.Context) (err error) {
	if s.queue, err = createQueue(ctx, s.sqs.Endpoint(), ordersQueue, queuepoller.DefaultBatchSize); err != nil {
		return err
	}
	if s.work, err = createQueue(ctx, s.sqs.Endpoint(), statementsQueue, 1); err != nil {
		return err
	}
	s.events, err = queue.Create(ctx, queue.NewClient(s.sqs.Endpoint()), queue.Spec{Name: eventsQueue})
	return err
}

// startPayments runs the HTTP example behind an HTTP API whose callers have
// tokens, the worker of what it accepts, and its sweeper: the tenant is the token's subject.
func (s *stack) startPayments(ctx context.Context, o options) (err error) {
	s.provider = newProvider()
	providerURL, err := s.listen(0, s.provider)
	if err != nil {
		return err
	}
	if err := s.startFunction(ctx, payments, "PROVIDER_URL="+providerURL, "PAYMENTS_API=http", "PAYMENTS_TENANT=jwt:sub"); err != nil {
		return err
	}
	if err := s.startFunction(ctx, statements, append(s.work.settings(statement), "PROVIDER_URL="+providerURL)...); err != nil {
		return err
	}
	if err := s.startMapping(ctx, s.work, statements); err != nil {
		return err
	}
	if err := s.startSweeper(ctx, providerURL); err != nil {
		return err
	}
	if s.issuer, err = gateway.NewIssuer("https://issuer.local"); err != nil {
		return err
	}
	routes := map[string]gateway.Invoke{}
	for _, route := range []string{
		"POST /payments", "POST /refunds", "POST /statements", "GET /statements/{id}", "HEAD /statements/{id}", "DELETE /statements/{id}",
	} {
		routes[route] = s.pools[payments].Call
	}
	api, err := gateway.New(routes, &gateway.Options{Claims: s.issuer.Claims, Report: func(id string, err error) {
		fmt.Fprintf(s.logs, "http request %s: %v\n", id, err)
	}})
	if err != nil {
		return err
	}
	s.url, err = s.listen(o.port, api)
	return err
}

// startOrders runs the queue example behind its queue.
func (s *stack) startOrders(ctx context.Context) error {
	if err := s.startFunction(ctx, orders, append(s.queue.settings(fulfil), "ORDERS_TABLE="+ordersTable)...); err != nil {
		return err
	}
	return s.startMapping(ctx, s.queue, orders)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// listen serves on 127.0.0.1 until the stack is closed.
func (s *stack) listen(port int, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "", fmt.Errorf("cannot listen: %w; choose another -port", err)
	}
	s.serve(l, h)
	return "http://" + l.Addr().String(), nil
}

func (s *stack) serve(l net.Listener, h http.Handler) {
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }()
	s.onClose(func() { _ = srv.Close() })
}

// whileComplete ends the context when a server that was started here is gone.
func (s *stack) whileComplete(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	watch := func(server string, ended <-chan struct{}) {
		select {
		case <-ended:
			cancel(&endedError{server})
		case <-ctx.Done():
		}
	}
	go watch("DynamoDB Local", s.db.Ended())
	go watch("the queue server", s.sqs.Ended())
	return ctx, func() { cancel(nil) }
}
