package main

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/cloud"
)

const (
	// functionTimeout is short, so that the tour need not wait long for the lease
	// of a killed function: inside Lambda the lease ends when the time-out does.
	functionTimeout = 5 * time.Second
	maxInstances    = 8
	// queueVisibility is six times the function's time-out, as Lambda's guide advises.
	queueVisibility = 6 * functionTimeout

	// maxReceives of a message, as the templates have it.
	maxReceives = 5

	// sweepEvery is a minute on AWS.
	sweepEvery = time.Second
	// escalateAfter is the age at which a refund is escalated that the provider does not answer
	// about. It is hours on AWS.
	escalateAfter = 3 * time.Second
)

// The packages of the examples' functions.
const (
	payments      = "payments"
	orders        = "orders"
	statements    = "statements"
	refundSweeper = "refundsweeper"
)

// templates are the examples', as they are synthesized, in the repository.
const templates = "template-tests/testdata/snapshots"

// stack is the examples, as their templates describe them, and a payment provider.
type stack struct {
	*cloud.Running
	folder      folder
	logs        *os.File // of the functions
	provider    *provider
	providerURL string
	orders      *mapping
	statements  *mapping
	escalations string            // URL of the queue of questions that a sweep escalates
	names       map[string]string // of functions, by their package; of several the first
	relay       string            // name of the function that sends what payments has accepted
	records     string            // the table of the records of payments
	orderRows   string            // the table of orders
	store       *dynamostore.AdminStore
	api, url    string       // key and URL of the HTTP API
	console     string       // URL of the operators' pages
	calls       atomic.Int64 // to DynamoDB, of what requests and messages invoke
	orderWrites atomic.Int64 // those that are about the orders' table
	closers     []func()
}

// close ends everything, the latest first.
func (s *stack) close() {
	for _, closes := range slices.Backward(s.closers) {
		closes()
	}
}

func (s *stack) onClose(f func()) { s.closers = append(s.closers, f) }

// start brings everything up. What it has started is closed, also after an error.
func (s *stack) start(ctx context.Context, o options, say func(string, ...any)) (err error) {
	root, err := repository()
	if err != nil {
		return err
	}
	if s.folder, err = newFolder(o.cacheDir); err != nil {
		return err
	}
	s.onClose(s.folder.remove)
	// Several functions write, a line at a time.
	if s.logs, err = os.OpenFile(s.folder.path("log"), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600); err != nil {
		return err
	}
	s.onClose(func() { _ = s.logs.Close() })
	if err := s.startProvider(); err != nil {
		return err
	}
	s.Running, err = cloud.Start(ctx, filepath.Join(root, templates), &cloud.Options{
		Dir: root, RunDir: string(s.folder), CacheDir: o.cacheDir, Port: o.port, Output: s.logs, Adjust: s.adjust,
		Called: s.called, Delivered: s.delivered, Log: func(format string, args ...any) { say("  "+format, args...) },
	})
	if err != nil {
		return err
	}
	s.onClose(s.Running.Close)
	s.url = s.Endpoints.APIs[s.api]
	if s.store, err = dynamostore.NewAdminStore(s.DynamoDB, s.records, nil); err != nil {
		return err
	}
	say("DynamoDB Local at %s, with the tables %s and %s", s.Endpoints.DynamoDB, s.records, s.orderRows)
	say("queue server at %s", s.Endpoints.Queues)
	client := queue.NewClient(s.Endpoints.Queues)
	s.orders.Client, s.statements.Client = client, client
	if s.console, err = consoleOf(s.Running, s.store); err != nil {
		return err
	}
	return serveControl(s.Running, s.folder)
}

// repository is the folder of the repository, in which the command runs.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for ; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, templates)); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", errors.New("the examples are not here: run this inside the repository, or `up` with your own template")
		}
	}
}

// startProvider serves the provider until the stack is closed.
func (s *stack) startProvider() error {
	s.provider = &provider{
		asked: map[string]int{}, made: map[string]made{}, held: map[string]chan struct{}{}, silent: map[string]bool{},
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	srv := &http.Server{Handler: s.provider, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = srv.Serve(l) }()
	s.onClose(func() { _ = srv.Close() })
	s.providerURL = "http://" + l.Addr().String()
	return nil
}

// adjust changes what the tour cannot wait for, and finds what it needs. The API's callers have tokens instead of
// credentials of AWS, so that they have tenants.
func (s *stack) adjust(p *cloud.Plan) {
	s.names = map[string]string{}
	env := map[string]map[string]string{} // of functions, by their package
	for i := range p.Functions {
		f := &p.Functions[i]
		of := path.Base(f.Package)
		s.names[of], env[of] = f.Name, f.Env
		f.Timeout, f.MaxInstances = functionTimeout, maxInstances
		f.Env[schema.EnvFunctionTimeout] = seconds(functionTimeout)
		if of == payments || of == orders || of == statements {
			f.Env["AWS_LAMBDA_LOG_LEVEL"] = "DEBUG"
		}
		if f.Env["PROVIDER_URL"] != "" {
			f.Env["PROVIDER_URL"] = s.providerURL
		}
	}
	env[payments]["PAYMENTS_TENANT"] = "jwt:sub"
	env[refundSweeper]["ESCALATE_AFTER"] = escalateAfter.String()
	s.records, s.orderRows = env[payments][schema.EnvTable], env[orders]["ORDERS_TABLE"]
	s.escalations = env[refundSweeper][schema.EnvSweepEscalations]
	for _, a := range p.APIs {
		for route, to := range a.Routes {
			to.Auth = cloud.JWT
			a.Routes[route] = to
		}
		s.api = a.Key
	}
	deadLetters := map[string]string{}
	for i := range p.Queues {
		q := &p.Queues[i]
		if q.DeadLetters != "" {
			q.Attributes["VisibilityTimeout"] = seconds(queueVisibility)
			deadLetters[q.Name] = p.QueueURL(q.DeadLetters)
		}
	}
	for _, m := range p.Mappings {
		switch m.Function {
		case s.names[orders]:
			s.orders.name, s.orders.url, s.orders.deadURL = m.Queue, p.QueueURL(m.Queue), deadLetters[m.Queue]
		case s.names[statements]:
			s.statements.name, s.statements.url = m.Queue, p.QueueURL(m.Queue)
		}
		if m.Table == s.records {
			s.relay = m.Function
		}
	}
	for i := range p.Schedules {
		if p.Schedules[i].Function == s.names[refundSweeper] {
			p.Schedules[i].Every = sweepEvery
		}
	}
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// called counts the calls of functions that requests and messages invoke.
func (s *stack) called(c cloud.Call) {
	if c.Service != "dynamodb" || !slices.Contains([]string{s.names[payments], s.names[orders], s.names[statements]},
		c.Function) {
		return
	}
	s.calls.Add(1)
	if bytes.Contains(c.Body, []byte(`"`+s.orderRows+`"`)) {
		s.orderWrites.Add(1)
	}
}
