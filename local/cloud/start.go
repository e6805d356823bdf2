package cloud

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/iam"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

// Options say how a plan is run. Nil means the defaults.
type Options struct {
	ReadOptions
	// Dir is where the functions' packages are built. Default: the working directory.
	Dir string
	// RunDir gets the compiled functions, and the files that they write. Required if the plan has functions.
	RunDir string
	// DataDir keeps the tables, the messages of queues, and how far streams were delivered. Default: all is in memory.
	DataDir string
	// CacheDir is where the servers are kept.
	CacheDir string
	// Port of the first API; those after it have the next ones. Default: free ports.
	Port int
	// Output gets what functions write, and errors of what runs. Default: nowhere.
	Output io.Writer
	// Quiet leaves out what functions write.
	Quiet bool
	// Deny refuses calls that the policies of a function's role do not grant. Default: they are only reported.
	Deny bool
	// Debug is the name, or a part of the name, of a function that runs under a debugger: Delve, which must be on PATH.
	// Its process waits for a client, and no time-out ends it before 15 minutes.
	Debug string
	// Called, if set, gets each call of a function to a service, before it is made. Several goroutines call it at once.
	Called func(Call)
	// Invoked, if set, gets each request to an API, each batch of a queue or a stream, and each Invoke of Lambda, after
	// its end. Several goroutines call it at once.
	Invoked func(Invocation)
	// Delivered, if set, gets each batch of a queue's messages after a function was given it. Several goroutines call it
	// at once.
	Delivered func(queue string, d queuepoller.Delivery)
	// Adjust, if set, changes a plan before it runs.
	Adjust func(*Plan)
	// Log gets progress, one line a call. Default: nowhere.
	Log func(format string, args ...any)
}

// credentials that all clients here have. Those of the machine are never used.
const (
	AccessKey = "idemlocal"
	SecretKey = "idemlocal"
)

// Running is a plan that runs.
type Running struct {
	// DynamoDB is a client of the tables; nil if there are none.
	DynamoDB *dynamodb.Client
	// Endpoints are where the parts listen.
	Endpoints Endpoints
	// Issuer makes the tokens of APIs with an authorizer.
	Issuer *gateway.Issuer

	path      string
	options   Options
	tables    *child.Server
	queues    *child.Server
	front     *front
	granting  atomic.Pointer[Plan] // its roles grant calls
	positions *positions
	grants    *iam.Report
	builds    int
	folders   []string // of binaries
	closers   []func()

	alive       context.Context // ends with a server
	die         context.CancelCauseFunc
	reports     sync.WaitGroup // of invocations
	draining    sync.WaitGroup // of generations
	updating    sync.Mutex     // one update at a time
	mu          sync.Mutex     // of what follows
	closed      bool           // nothing is reported any more
	plan        *Plan
	functions   map[string]*function
	generations map[*generation]string // of all functions, also those that still work, with their binaries' folders
	apis        map[string]*api
	output      sync.Mutex

	// What ends a part, by its description.
	mappings, schedules, subscriptions map[string]func()
}

// Start runs what the templates at a path describe. What it has started is closed after an error.
func Start(ctx context.Context, path string, o *Options) (_ *Running, err error) {
	r := &Running{path: path, Issuer: gateway.NewIssuer(), Endpoints: Endpoints{APIs: map[string]string{}},
		functions: map[string]*function{}, generations: map[*generation]string{}, apis: map[string]*api{},
		mappings: map[string]func(){}, schedules: map[string]func(){}, subscriptions: map[string]func(){},
		grants: &iam.Report{}}
	if o != nil {
		r.options = *o
	}
	if r.options.Log == nil {
		r.options.Log = func(string, ...any) {}
	}
	if r.options.Output == nil {
		r.options.Output = io.Discard
	}
	r.alive, r.die = context.WithCancelCause(context.WithoutCancel(ctx))
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	r.front, r.positions = newFront(r), newPositions(r.data("streams.json"))
	if r.Endpoints.Functions, err = r.Serve(r.front); err != nil {
		return nil, err
	}
	return r, r.Update(ctx)
}

func (r *Running) Plan() *Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plan
}

// Update reads the templates and the functions' sources again, and starts only what has changed. Tables and queues
// keep their content. The error says whether everything runs on as it was.
func (r *Running) Update(ctx context.Context) error {
	r.updating.Lock()
	defer r.updating.Unlock()
	before, begun := "", ""
	if r.plan != nil {
		before = "\nWhat ran before runs on."
		begun = "\nThe change had begun: until it is corrected, parts of it may not run."
	}
	p, err := r.read()
	var bins map[string]string
	if err == nil {
		bins, err = r.prepare(ctx, p)
	}
	if err == nil {
		p, err = r.read() // it is known now where everything is
	}
	if err != nil {
		return fmt.Errorf("%w%s", err, before)
	}
	for _, step := range []func(context.Context, *Plan) error{r.createTables, r.createQueues,
		func(ctx context.Context, p *Plan) error {
			r.granting.Store(p)
			return r.startFunctions(ctx, p, bins)
		}, r.startMappings, r.serve,
	} {
		if err := step(ctx, p); err != nil {
			return fmt.Errorf("%w%s", err, begun)
		}
	}
	r.startSchedules(ctx, p)
	r.endFunctions(p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan = p
	return nil
}

// read is what the templates describe now.
func (r *Running) read() (*Plan, error) {
	o := r.options.ReadOptions
	o.Endpoints = r.Endpoints
	p, err := Read(r.path, &o)
	if err == nil && r.options.Adjust != nil {
		r.options.Adjust(p)
	}
	if err == nil && r.options.Debug != "" {
		err = p.debug(r.options.Debug)
	}
	return p, err
}

// data is a file that the next start has too; empty if it is to have none.
func (r *Running) data(name string) string {
	if r.options.DataDir == "" {
		return ""
	}
	return filepath.Join(r.options.DataDir, name)
}

// Close ends everything, also functions that work: what they were given from queues and streams is delivered again
// after the next start, if DataDir keeps it. It may be called more than once.
func (r *Running) Close() {
	for _, end := range r.schedules {
		end()
	}
	var batches sync.WaitGroup
	for _, end := range r.mappings {
		batches.Go(end)
	}
	r.mu.Lock()
	generations := slices.Collect(maps.Keys(r.generations))
	r.mu.Unlock()
	for _, g := range generations {
		g.pool.Close()
	}
	batches.Wait()
	r.draining.Wait()
	r.mu.Lock()
	r.closed = true
	clear(r.functions)
	r.mu.Unlock()
	r.reports.Wait()
	for _, closes := range slices.Backward(r.closers) {
		closes()
	}
	r.closers = nil
}

// Alive is a context that ends with a server that was started here, or when cancel is called.
func (r *Running) Alive(ctx context.Context) (alive context.Context, cancel context.CancelCauseFunc) {
	alive, cancel = context.WithCancelCause(ctx)
	context.AfterFunc(r.alive, func() { cancel(context.Cause(r.alive)) })
	return alive, cancel
}

func (r *Running) onClose(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closers = append(r.closers, f)
}

// Write writes to the output, for several functions at once.
func (r *Running) Write(p []byte) (int, error) {
	r.output.Lock()
	defer r.output.Unlock()
	return r.options.Output.Write(p)
}

func (r *Running) report(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// prepare starts the servers that a plan needs, opens the ports of its APIs and compiles its functions.
func (r *Running) prepare(ctx context.Context, p *Plan) (bins map[string]string, err error) {
	if bins, err = r.fromAssets(p); err != nil {
		return nil, err
	}
	board := progress.Open(r.options.Log)
	defer board.Close()
	g, within := errgroup.WithContext(ctx)
	begin := func(what string, do func() error) {
		r.options.Log("%s ...", what)
		step := board.Begin(what)
		g.Go(func() error {
			defer step.End()
			return do()
		})
	}
	begin("fetching modules and compiling the functions", func() error {
		return r.build(within, p, bins)
	})
	if len(p.Tables) > 0 && r.tables == nil {
		begin("fetching and starting DynamoDB Local", func() error {
			return r.serverStarted("DynamoDB Local", &r.tables, func() (*child.Server, error) {
				return dynamodblocal.Start(within, &dynamodblocal.Options{CacheDir: r.options.CacheDir,
					DataDir: r.options.DataDir, Log: r.options.Log})
			})
		})
	}
	if len(p.Queues)+len(p.Topics) > 0 && r.queues == nil {
		begin("fetching and starting the queue server", func() error {
			return r.serverStarted("the queue server", &r.queues, func() (*child.Server, error) {
				return queue.Start(within, r.options.CacheDir, r.data("messages"), r.options.Log)
			})
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	if r.tables != nil && r.DynamoDB == nil {
		r.Endpoints.DynamoDB = r.tables.Endpoint()
		r.DynamoDB = dynamodb.New(dynamodb.Options{BaseEndpoint: &r.Endpoints.DynamoDB, Region: region, Credentials: own})
	}
	if r.queues != nil {
		r.Endpoints.Queues = r.queues.Endpoint()
	}
	for _, a := range p.APIs {
		if r.apis[a.Key] != nil {
			continue
		}
		if old := r.unused(p); old != "" {
			r.apis[a.Key], r.Endpoints.APIs[a.Key] = r.apis[old], r.Endpoints.APIs[old]
			delete(r.apis, old)
			delete(r.Endpoints.APIs, old)
			continue
		}
		port := 0
		if r.options.Port > 0 {
			port = r.options.Port + len(r.apis)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, fmt.Errorf("cannot listen for %s: %w; choose another -port", a.of, err)
		}
		r.apis[a.Key] = &api{}
		r.serveOn(l, r.observed(r.apis[a.Key]))
		r.Endpoints.APIs[a.Key] = "http://" + l.Addr().String()
	}
	return bins, nil
}

// unused is the key of the first API that a plan does not have any more: another one gets its port.
func (r *Running) unused(p *Plan) (first string) {
	for key := range r.apis {
		if !slices.ContainsFunc(p.APIs, func(a API) bool { return a.Key == key }) &&
			(first == "" || r.Endpoints.APIs[key] < r.Endpoints.APIs[first]) {
			first = key
		}
	}
	return first
}

// serverStarted keeps a server until the end.
func (r *Running) serverStarted(name string, as **child.Server, start func() (*child.Server, error)) error {
	server, err := start()
	if err != nil {
		return err
	}
	r.onClose(func() { _ = server.Close() })
	r.mu.Lock()
	defer r.mu.Unlock()
	*as = server
	go func() {
		<-server.Ended()
		r.die(fmt.Errorf("%s has ended unexpectedly, so everything else was stopped too; start again", name))
	}()
	return nil
}

var own = credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, "")

// notHere answers in place of the services that are not here, and says which one was asked.
func (r *Running) notHere(w http.ResponseWriter, req *http.Request, c Call) {
	name := c.Service
	if name == "" { // a web page can send such a request, and must not reach what is here
		what := cmp.Or(c.Header.Get("X-Amz-Target"), c.Operation, req.Method+" "+req.URL.Path)
		name = fmt.Sprintf("%q without a signature (Signature Version 4)", what)
	}
	why := name + " is not here: only DynamoDB, SQS, SNS and Invoke of Lambda are"
	if name == "sqs" || name == "sns" {
		why = name + " is not here: no queue or topic is declared"
	}
	r.report("%s: %s", cmp.Or(c.Function, "a call"), why)
	w.Header().Set("X-Amzn-ErrorType", "NotHere")
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(http.StatusNotImplemented)
	fmt.Fprintf(w, `{"__type":"NotHere","message":%q}`, why)
}

// Serve serves on a free port until the end.
func (r *Running) Serve(h http.Handler) (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	r.serveOn(l, h)
	return "http://" + l.Addr().String(), nil
}

func (r *Running) serveOn(l net.Listener, h http.Handler) {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = s.Serve(l) }()
	r.onClose(func() { _ = s.Close() })
}

// described is a part's description, by which an update finds what has changed.
func described(part any) string {
	text, _ := json.Marshal(part) // of plain fields
	return string(text)
}

// renew ends what is not described any more, and starts what was not before.
func renew[T any](running map[string]func(), wanted []T, start func(T) (end func(), err error)) error {
	keep := map[string]bool{}
	for _, w := range wanted {
		keep[described(w)] = true
	}
	for key, end := range running {
		if !keep[key] {
			end()
			delete(running, key)
		}
	}
	for _, w := range wanted {
		key := described(w)
		if running[key] != nil {
			continue
		}
		end, err := start(w)
		if err != nil {
			return err
		}
		running[key] = end
	}
	return nil
}
