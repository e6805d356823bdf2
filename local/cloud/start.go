package cloud

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	sqstypes "github.com/aws/aws-sdk-go-v2/service/sqs/types"
	smithytime "github.com/aws/smithy-go/time"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
	"github.com/idem-go/idempotency/local/aws/streampoller"
)

// Options say how a plan is run. Nil means the defaults.
type Options struct {
	ReadOptions
	// Dir is where the functions' packages are built. Default: the working directory.
	Dir string
	// BinDir gets the compiled functions. Required if the plan has a function that is built.
	BinDir string
	// DataDir keeps the tables. Default: they are in memory.
	DataDir string
	// CacheDir is where the servers are kept.
	CacheDir string
	// Port of the first API; those after it have the next ones. Default: free ports.
	Port int
	// Output gets what functions write, and errors of what runs. Default: nowhere.
	Output io.Writer
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
	elsewhere string // in place of all other services
	builds    int
	closers   []func()

	updating  sync.Mutex // one update at a time
	mu        sync.Mutex // of what follows
	plan      *Plan
	functions map[string]*function
	apis      map[string]*api
	mappings  map[string]func() // by their description: what ends them
	schedules map[string]func()
	output    sync.Mutex
}

// Start runs what the templates at a path describe. What it has started is closed after an error.
func Start(ctx context.Context, path string, o *Options) (_ *Running, err error) {
	r := &Running{path: path, Issuer: gateway.NewIssuer(), Endpoints: Endpoints{APIs: map[string]string{}},
		functions: map[string]*function{}, apis: map[string]*api{}, mappings: map[string]func(){},
		schedules: map[string]func(){}}
	if o != nil {
		r.options = *o
	}
	if r.options.Log == nil {
		r.options.Log = func(string, ...any) {}
	}
	if r.options.Output == nil {
		r.options.Output = io.Discard
	}
	defer func() {
		if err != nil {
			r.Close()
		}
	}()
	if r.elsewhere, err = r.Serve(http.HandlerFunc(r.notHere)); err != nil {
		return nil, err
	}
	return r, r.Update(ctx)
}

// Plan is what runs.
func (r *Running) Plan() *Plan {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.plan
}

// Update reads the templates and the functions' sources again, and starts only what has changed. Tables and queues
// keep their content. After an error everything runs on as it was, as far as the change had not begun.
func (r *Running) Update(ctx context.Context) error {
	r.updating.Lock()
	defer r.updating.Unlock()
	read := r.options.ReadOptions
	read.Endpoints = r.Endpoints
	p, err := Read(r.path, &read)
	if err != nil {
		return err
	}
	bins, err := r.prepare(ctx, p)
	if err != nil {
		return err
	}
	read.Endpoints = r.Endpoints // it is known now where everything is
	if p, err = Read(r.path, &read); err != nil {
		return err
	}
	for _, step := range []func(context.Context, *Plan) error{r.createTables, r.createQueues,
		func(ctx context.Context, p *Plan) error { return r.startFunctions(ctx, p, bins) }, r.startMappings, r.serve,
	} {
		if err := step(ctx, p); err != nil {
			return err
		}
	}
	r.startSchedules(ctx, p)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.plan = p
	return nil
}

// Close ends everything, the latest first. It may be called more than once.
func (r *Running) Close() {
	for _, all := range []map[string]func(){r.schedules, r.mappings} {
		for _, end := range all {
			end()
		}
		clear(all)
	}
	for _, f := range r.functions {
		f.end()
	}
	clear(r.functions)
	for _, closes := range slices.Backward(r.closers) {
		closes()
	}
	r.closers = nil
}

func (r *Running) onClose(f func()) { r.closers = append(r.closers, f) }

// Write writes to the output, for several functions at once.
func (r *Running) Write(p []byte) (int, error) {
	r.output.Lock()
	defer r.output.Unlock()
	return r.options.Output.Write(p)
}

func (r *Running) report(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// prepare starts the servers that a plan needs, opens the ports of its APIs and compiles its functions.
func (r *Running) prepare(ctx context.Context, p *Plan) (bins map[string]string, err error) {
	g, within := errgroup.WithContext(ctx)
	g.Go(func() (err error) { bins, err = r.build(within, p); return err })
	if len(p.Tables) > 0 && r.tables == nil {
		g.Go(func() (err error) {
			r.tables, err = dynamodblocal.Start(within, &dynamodblocal.Options{CacheDir: r.options.CacheDir,
				DataDir: r.options.DataDir, Log: r.options.Log})
			return err
		})
	}
	if len(p.Queues)+len(p.Topics) > 0 && r.queues == nil {
		g.Go(func() (err error) {
			r.queues, err = queue.Start(within, r.options.CacheDir, r.options.Log)
			return err
		})
	}
	err = g.Wait()
	if r.tables != nil && r.DynamoDB == nil {
		r.onClose(func() { _ = r.tables.Close() })
		r.Endpoints.DynamoDB = r.tables.Endpoint()
		r.DynamoDB = dynamodb.New(dynamodb.Options{BaseEndpoint: &r.Endpoints.DynamoDB, Region: region, Credentials: own})
	}
	if r.queues != nil && r.Endpoints.Queues == "" {
		r.onClose(func() { _ = r.queues.Close() })
		r.Endpoints.Queues = r.queues.Endpoint()
	}
	if err != nil {
		return nil, err
	}
	for i, a := range p.APIs {
		if r.apis[a.Key] != nil {
			continue
		}
		port := 0
		if r.options.Port > 0 {
			port = r.options.Port + i
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, fmt.Errorf("cannot listen for %s: %w; choose another -port", a.of, err)
		}
		r.apis[a.Key] = &api{}
		r.serveOn(l, r.apis[a.Key])
		r.Endpoints.APIs[a.Key] = "http://" + l.Addr().String()
	}
	return bins, nil
}

// api is the handler of an API, which an update may replace.
type api struct {
	atomic.Pointer[gateway.Handler]
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if h := a.Load(); h != nil {
		h.ServeHTTP(w, r)
		return
	}
	http.Error(w, "it starts, or is not part of the template any more", http.StatusServiceUnavailable)
}

var own = credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, "")

// createTables makes the tables that are not there yet.
func (r *Running) createTables(ctx context.Context, p *Plan) error {
	for _, t := range p.Tables {
		_, err := r.DynamoDB.CreateTable(ctx, &t.Create)
		if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
			return fmt.Errorf("cannot create the table %s: %w", t.Name, err)
		}
		name := &dynamodb.DescribeTableInput{TableName: &t.Name}
		if err := dynamodb.NewTableExistsWaiter(r.DynamoDB).Wait(ctx, name, time.Minute); err != nil {
			return fmt.Errorf("the table %s: %w", t.Name, err)
		}
		has, err := r.DynamoDB.DescribeTable(ctx, name)
		if err != nil {
			return fmt.Errorf("the table %s: %w", t.Name, err)
		}
		if !t.is(has.Table) {
			return fmt.Errorf("the table %s is there with other keys, indexes or another stream: "+
				"-fresh begins with empty tables", t.Name)
		}
		if t.Expiry == "" {
			continue
		}
		lives, err := r.DynamoDB.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &t.Name})
		if err == nil && lives.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusEnabled {
			_, err = r.DynamoDB.UpdateTimeToLive(ctx, &dynamodb.UpdateTimeToLiveInput{TableName: &t.Name,
				TimeToLiveSpecification: &types.TimeToLiveSpecification{AttributeName: &t.Expiry, Enabled: aws.Bool(true)}})
		}
		if err != nil {
			return fmt.Errorf("the time to live of the table %s: %w", t.Name, err)
		}
	}
	return nil
}

func arnOf(service, name string) string {
	return fmt.Sprintf("arn:aws:%s:%s:%s:%s", service, region, account, name)
}

// createQueues makes the queues, those for dead letters first, and the topics.
func (r *Running) createQueues(ctx context.Context, p *Plan) error {
	client := queue.NewClient(r.Endpoints.Queues)
	for _, last := range []bool{false, true} {
		for _, q := range p.Queues {
			if (q.DeadLetters != "") != last {
				continue
			}
			attributes := maps.Clone(q.Attributes)
			if last {
				attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`,
					arnOf("sqs", q.DeadLetters), q.redrive.MaxReceiveCount)
			}
			_, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &q.Name, Attributes: attributes})
			if _, exists := errors.AsType[*sqstypes.QueueNameExists](err); exists { // with other attributes
				_, err = client.SetQueueAttributes(ctx, &sqs.SetQueueAttributesInput{
					QueueUrl: aws.String(p.queueURL(q.Name)), Attributes: attributes,
				})
			}
			if err != nil {
				return fmt.Errorf("cannot create the queue %s: %w", q.Name, err)
			}
		}
	}
	if len(p.Topics) == 0 {
		return nil
	}
	topics := sns.New(sns.Options{BaseEndpoint: &r.Endpoints.Queues, Region: region, Credentials: own})
	for _, t := range p.Topics {
		in := &sns.CreateTopicInput{Name: &t.Name}
		if t.FIFO {
			in.Attributes = map[string]string{"FifoTopic": "true"}
		}
		if _, err := topics.CreateTopic(ctx, in); err != nil {
			return fmt.Errorf("cannot create the topic %s: %w", t.Name, err)
		}
	}
	for _, s := range p.Subscriptions {
		_, err := topics.Subscribe(ctx, &sns.SubscribeInput{
			TopicArn: aws.String(arnOf("sns", s.Topic)), Protocol: aws.String("sqs"),
			Endpoint: aws.String(arnOf("sqs", s.Queue)), Attributes: s.Attributes,
		})
		if err != nil {
			return fmt.Errorf("%s: %w", s.of, err)
		}
	}
	return nil
}

// notHere answers in place of the services that are not here, and says which one was asked.
func (r *Running) notHere(w http.ResponseWriter, req *http.Request) {
	service := serviceOf(req)
	r.report("a function asks %s, which is not here", service)
	w.Header().Set("X-Amzn-ErrorType", "NotHere")
	w.Header().Set("Content-Type", "application/x-amz-json-1.0")
	w.WriteHeader(http.StatusNotImplemented)
	fmt.Fprintf(w, `{"__type":"NotHere","message":%q}`, service+" is not here: only DynamoDB, SQS and SNS are")
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

// startMappings starts what brings messages and records to functions.
func (r *Running) startMappings(ctx context.Context, p *Plan) error {
	timeouts := map[string]time.Duration{}
	for _, f := range p.Functions {
		timeouts[f.Name] = f.Timeout
	}
	return renew(r.mappings, p.Mappings, func(m Mapping) (func(), error) {
		f := r.functions[m.Function]
		if m.Queue != "" {
			poller, err := queuepoller.Start(ctx, queue.NewClient(r.Endpoints.Queues), p.queueURL(m.Queue), f,
				&queuepoller.Options{BatchSize: m.BatchSize, MaxConcurrency: min(m.MaxConcurrency, 10),
					FunctionTimeout: timeouts[m.Function], Trouble: func(err error) { r.report("%s: %v", m.of, err) }})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", m.of, err)
			}
			return poller.Close, nil
		}
		stream, err := streampoller.StreamOf(ctx, r.DynamoDB, m.Table)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.of, err)
		}
		reads := dynamodbstreams.New(dynamodbstreams.Options{
			BaseEndpoint: &r.Endpoints.DynamoDB, Region: region, Credentials: own,
		})
		poller, err := streampoller.Start(ctx, reads, stream, f.Call, &streampoller.Options{Filter: m.Filter,
			BatchSize: m.BatchSize, Logf: r.report})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", m.of, err)
		}
		return poller.Close, nil
	})
}

// startSchedules invokes functions every so often.
func (r *Running) startSchedules(ctx context.Context, p *Plan) {
	_ = renew(r.schedules, p.Schedules, func(s Schedule) (func(), error) {
		ctx, cancel := context.WithCancel(ctx)
		f, done := r.functions[s.Function], make(chan struct{})
		go func() {
			defer close(done)
			for smithytime.SleepWithContext(ctx, s.Every) == nil {
				if _, err := f.Call(ctx, s.Event); err != nil && ctx.Err() == nil {
					r.report("%s: %v", s.of, err)
				}
			}
		}()
		return func() { cancel(); <-done }, nil
	}) // nothing in it fails
}

// serve gives the APIs their routes.
func (r *Running) serve(_ context.Context, p *Plan) error {
	for _, a := range p.APIs {
		routes := map[string]gateway.Invoke{}
		auth, open := map[Auth]bool{}, []string{}
		for route, to := range a.Routes {
			routes[route] = r.functions[to.Function].Call
			auth[to.Auth] = true
			if to.Auth == Open {
				open = append(open, route)
			}
		}
		o := &gateway.Options{Flavour: a.Flavour, Stage: a.Stage, BinaryMediaTypes: a.BinaryMediaTypes, Open: open,
			Report: func(id string, err error) { r.report("%s: request %s: %v", a.of, id, err) }}
		if auth[JWT] {
			o.Claims = r.Issuer.Claims
		}
		if auth[IAM] {
			o.IAM = signer
		}
		handler, err := gateway.New(routes, o)
		if err != nil {
			return fmt.Errorf("%s: %w", a.of, err)
		}
		r.apis[a.Key].Store(handler)
	}
	for key, a := range r.apis {
		if !slices.ContainsFunc(p.APIs, func(a API) bool { return a.Key == key }) {
			a.Store(nil)
		}
	}
	return nil
}
