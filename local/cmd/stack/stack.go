package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/console"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

// stack is everything that runs.
type stack struct {
	folder      folder
	logs        *os.File // of the functions
	db          *child.Server
	dynamodb    *dynamodb.Client // of db
	sqs         *child.Server
	orders      *mapping
	statements  *mapping
	events      queue.Queue // what the orders function publishes
	escalations queue.Queue // the questions that a sweep escalates
	store       *dynamostore.AdminStore
	provider    *provider
	wire        *wire
	issuer      *gateway.Issuer
	pools       map[string]*runtime.Pool
	relaying    sync.RWMutex // locked while the tour keeps the relay from sending
	url         string       // of the HTTP API
	console     string       // URL of the operators' pages
	closers     []func()
}

func (s *stack) onClose(f func()) { s.closers = append(s.closers, f) }

// close ends everything, the latest first.
func (s *stack) close() {
	for _, closes := range slices.Backward(s.closers) {
		closes()
	}
}

// start brings everything up. What it has started is closed, also after an error.
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
	// Several functions write, a line at a time.
	if s.logs, err = os.OpenFile(s.folder.path("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	s.onClose(func() { _ = s.logs.Close() })
	if err := s.startServers(ctx, o, say); err != nil {
		return err
	}
	if err := s.startFunctions(ctx); err != nil {
		return err
	}
	if err := s.startSources(ctx); err != nil {
		return err
	}
	if err := s.startAPI(o.port); err != nil {
		return err
	}
	return s.startConsole()
}

// startServers compiles the functions and starts the servers, at the same time. The first error
// stops the others.
func (s *stack) startServers(ctx context.Context, o options, say func(string, ...any)) error {
	board := progress.Open(say)
	defer board.Close()
	log := func(format string, args ...any) { say("  "+format, args...) }
	g, ctx := errgroup.WithContext(ctx)
	begin := func(what string, do func() error) {
		say("%s ...", what)
		step := board.Begin(what)
		g.Go(func() error {
			defer step.End()
			return do()
		})
	}
	begin("fetching modules and compiling the functions "+strings.Join(functions, ", "), func() error {
		begun := time.Now()
		err := buildFunctions(ctx, s.folder.path("bin"))
		if err == nil {
			say("compiled after %v", time.Since(begun).Round(100*time.Millisecond))
		}
		return err
	})
	begin("fetching and starting DynamoDB Local", func() (err error) {
		s.db, err = dynamodblocal.Start(ctx, &dynamodblocal.Options{Endpoint: o.endpoint, CacheDir: o.cacheDir, Log: log})
		if err == nil {
			s.dynamodb, err = newDynamoDB(s.db.Endpoint())
		}
		if err == nil {
			err = createTables(ctx, s.dynamodb)
		}
		if err == nil {
			say("DynamoDB Local at %s, with the tables %s and %s", s.db.Endpoint(), recordsTable, ordersTable)
		}
		return err
	})
	begin("fetching and starting the queue server", func() (err error) {
		s.sqs, err = queue.Start(ctx, o.cacheDir, log)
		if err == nil {
			err = s.createQueues(ctx)
		}
		if err == nil {
			say("queue server at %s, with the queues orders, statements and their dead-letter queues", s.sqs.Endpoint())
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

// startAPI runs an HTTP API in front of the payments function. Its callers have tokens.
func (s *stack) startAPI(port int) error {
	s.issuer = gateway.NewIssuer()
	routes := map[string]gateway.Invoke{}
	for _, route := range []string{
		"POST /payments", "POST /refunds", "POST /statements",
		"GET /statements/{id}", "HEAD /statements/{id}", "DELETE /statements/{id}",
	} {
		routes[route] = s.pools[payments].Call
	}
	api, err := gateway.New(routes, &gateway.Options{Claims: s.issuer.Claims, Report: func(id string, err error) {
		fmt.Fprintf(s.logs, "http request %s: %v\n", id, err)
	}})
	if err != nil {
		return err
	}
	s.url, err = s.listen(port, api)
	return err
}

// startConsole serves the operators' pages of the records' table.
func (s *stack) startConsole() (err error) {
	if s.store, err = dynamostore.NewAdminStore(s.dynamodb, recordsTable, nil); err != nil {
		return err
	}
	r, err := reconcile.New(s.store, nil)
	if err != nil {
		return err
	}
	operator, err := user.Current()
	if err != nil {
		return err
	}
	pages, err := console.New(r, &console.Options{Who: console.ThisMachine(operator.Username)})
	if err != nil {
		return err
	}
	s.console, err = s.listen(0, pages)
	return err
}

// listen serves on 127.0.0.1 until the stack is closed.
func (s *stack) listen(port int, h http.Handler) (string, error) {
	l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return "", fmt.Errorf("cannot listen: %w; choose another -port", err)
	}
	srv := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }()
	s.onClose(func() { _ = srv.Close() })
	return "http://" + l.Addr().String(), nil
}

// whileComplete ends the context when a server that was started here has ended.
func (s *stack) whileComplete(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	ctx, cancel := context.WithCancelCause(ctx)
	for server, ended := range map[string]<-chan struct{}{
		"DynamoDB Local": s.db.Ended(), "the queue server": s.sqs.Ended(),
	} {
		go func() {
			select {
			case <-ended:
				cancel(errors.New(server + " has ended unexpectedly, so everything else was stopped too; " +
					"start again with `go run ./local` (data was in memory)"))
			case <-ctx.Done():
			}
		}()
	}
	return ctx, cancel
}
