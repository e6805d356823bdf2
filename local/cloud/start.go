package cloud

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/aws-sdk-go-v2/service/dynamodbstreams"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	smithytime "github.com/aws/smithy-go/time"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/child"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal"
	"github.com/idem-go/idempotency/idem/testenv/queue"
	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
	"github.com/idem-go/idempotency/local/aws/runtime"
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
	*Plan
	// DynamoDB is a client of the tables.
	DynamoDB *dynamodb.Client
	// Endpoints are where the parts listen.
	Endpoints Endpoints
	// Pools are the functions, by their name.
	Pools map[string]*runtime.Pool
	// Issuer makes the tokens of APIs with an authorizer.
	Issuer *gateway.Issuer

	options Options
	tables  *child.Server
	queues  *child.Server
	mu      sync.Mutex // serialises Output
	closers []func()
}

// Start runs what the templates at a path describe. What it has started is closed after an error.
func Start(ctx context.Context, path string, o *Options) (_ *Running, err error) {
	r := &Running{Pools: map[string]*runtime.Pool{}, Issuer: gateway.NewIssuer(), Endpoints: Endpoints{APIs: map[string]string{}}}
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
	if r.Plan, err = Read(path, &r.options.ReadOptions); err != nil {
		return nil, err
	}
	bins, err := r.startServers(ctx)
	if err != nil {
		return nil, err
	}
	listeners, err := r.listen()
	if err != nil {
		return nil, err
	}
	// Again, now that it is known where everything is.
	read := r.options.ReadOptions
	read.Endpoints = r.Endpoints
	if r.Plan, err = Read(path, &read); err != nil {
		return nil, err
	}
	for _, step := range []func(context.Context) error{r.createTables, r.createQueues,
		func(ctx context.Context) error { return r.startFunctions(ctx, bins) }, r.startMappings} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	r.startSchedules(ctx)
	return r, r.serve(listeners)
}

// Close ends everything, the latest first. It may be called more than once.
func (r *Running) Close() {
	for _, closes := range slices.Backward(r.closers) {
		closes()
	}
	r.closers = nil
}

func (r *Running) onClose(f func()) { r.closers = append(r.closers, f) }

// Write writes to the output, for several functions at once.
func (r *Running) Write(p []byte) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.options.Output.Write(p)
}

func (r *Running) report(format string, args ...any) { fmt.Fprintf(r, format+"\n", args...) }

// startServers starts the servers that are needed and compiles the functions, at the same time.
func (r *Running) startServers(ctx context.Context) (bins map[string]string, err error) {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() (err error) { bins, err = r.build(ctx); return err })
	if len(r.Tables) > 0 {
		g.Go(func() (err error) {
			r.tables, err = dynamodblocal.Start(ctx, &dynamodblocal.Options{CacheDir: r.options.CacheDir,
				DataDir: r.options.DataDir, Log: r.options.Log})
			return err
		})
	}
	if len(r.Queues)+len(r.Topics) > 0 {
		g.Go(func() (err error) {
			r.queues, err = queue.Start(ctx, r.options.CacheDir, r.options.Log)
			return err
		})
	}
	err = g.Wait()
	for _, s := range []*child.Server{r.tables, r.queues} {
		if s != nil {
			r.onClose(func() { _ = s.Close() })
		}
	}
	if err != nil {
		return nil, err
	}
	if r.tables != nil {
		r.Endpoints.DynamoDB = r.tables.Endpoint()
		r.DynamoDB = dynamodb.New(dynamodb.Options{BaseEndpoint: &r.Endpoints.DynamoDB, Region: region, Credentials: own})
	}
	if r.queues != nil {
		r.Endpoints.Queues = r.queues.Endpoint()
	}
	return bins, nil
}

var own = credentials.NewStaticCredentialsProvider(AccessKey, SecretKey, "")

// listen opens the ports of the APIs, whose URLs functions may have to know.
func (r *Running) listen() (map[string]net.Listener, error) {
	listeners := map[string]net.Listener{}
	for i, a := range r.APIs {
		port := 0
		if r.options.Port > 0 {
			port = r.options.Port + i
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			return nil, fmt.Errorf("cannot listen for %s: %w", a.of, err)
		}
		r.onClose(func() { _ = l.Close() })
		listeners[a.Key], r.Endpoints.APIs[a.Key] = l, "http://"+l.Addr().String()
	}
	return listeners, nil
}

// createTables makes the tables that are not there yet.
func (r *Running) createTables(ctx context.Context) error {
	for _, t := range r.Tables {
		_, err := r.DynamoDB.CreateTable(ctx, &t.Create)
		if _, exists := errors.AsType[*types.ResourceInUseException](err); err != nil && !exists {
			return fmt.Errorf("cannot create the table %s: %w", t.Name, err)
		}
		err = dynamodb.NewTableExistsWaiter(r.DynamoDB).Wait(ctx, &dynamodb.DescribeTableInput{TableName: &t.Name}, time.Minute)
		if err != nil {
			return fmt.Errorf("the table %s: %w", t.Name, err)
		}
		if t.Expiry == "" {
			continue
		}
		has, err := r.DynamoDB.DescribeTimeToLive(ctx, &dynamodb.DescribeTimeToLiveInput{TableName: &t.Name})
		if err == nil && has.TimeToLiveDescription.TimeToLiveStatus != types.TimeToLiveStatusEnabled {
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
func (r *Running) createQueues(ctx context.Context) error {
	client := queue.NewClient(r.Endpoints.Queues)
	for _, last := range []bool{false, true} {
		for _, q := range r.Queues {
			if (q.DeadLetters != "") != last {
				continue
			}
			attributes := maps.Clone(q.Attributes)
			if last {
				attributes["RedrivePolicy"] = fmt.Sprintf(`{"deadLetterTargetArn":%q,"maxReceiveCount":%d}`,
					arnOf("sqs", q.DeadLetters), q.redrive.MaxReceiveCount)
			}
			_, err := client.CreateQueue(ctx, &sqs.CreateQueueInput{QueueName: &q.Name, Attributes: attributes})
			if err != nil {
				return fmt.Errorf("cannot create the queue %s: %w", q.Name, err)
			}
		}
	}
	if len(r.Topics) == 0 {
		return nil
	}
	topics := sns.New(sns.Options{BaseEndpoint: &r.Endpoints.Queues, Region: region, Credentials: own})
	for _, t := range r.Topics {
		in := &sns.CreateTopicInput{Name: &t.Name}
		if t.FIFO {
			in.Attributes = map[string]string{"FifoTopic": "true"}
		}
		if _, err := topics.CreateTopic(ctx, in); err != nil {
			return fmt.Errorf("cannot create the topic %s: %w", t.Name, err)
		}
	}
	for _, s := range r.Subscriptions {
		_, err := topics.Subscribe(ctx, &sns.SubscribeInput{TopicArn: aws.String(arnOf("sns", s.Topic)), Protocol: aws.String("sqs"),
			Endpoint: aws.String(arnOf("sqs", s.Queue)), Attributes: s.Attributes})
		if err != nil {
			return fmt.Errorf("%s: %w", s.of, err)
		}
	}
	return nil
}

// startFunctions makes a pool of each function.
func (r *Running) startFunctions(ctx context.Context, bins map[string]string) error {
	elsewhere, err := r.elsewhere()
	if err != nil {
		return err
	}
	for _, f := range r.Functions {
		env := []string{
			"AWS_ENDPOINT_URL=" + elsewhere,
			"AWS_REGION=" + region, "AWS_DEFAULT_REGION=" + region,
			"AWS_ACCESS_KEY_ID=" + AccessKey, "AWS_SECRET_ACCESS_KEY=" + SecretKey,
		}
		if url := r.Endpoints.DynamoDB; url != "" {
			env = append(env, schema.EnvEndpoint+"="+url, "AWS_ENDPOINT_URL_DYNAMODB="+url, "AWS_ENDPOINT_URL_DYNAMODB_STREAMS="+url)
		}
		if url := r.Endpoints.Queues; url != "" {
			env = append(env, "AWS_ENDPOINT_URL_SQS="+url, "AWS_ENDPOINT_URL_SNS="+url)
		}
		for _, name := range slices.Sorted(maps.Keys(f.Env)) {
			env = append(env, name+"="+f.Env[name])
		}
		pool, err := runtime.Start(ctx, runtime.Function{Path: bins[f.Name], Name: f.Name, Timeout: f.Timeout,
			MaxInstances: f.MaxInstances, Env: env}, &runtime.Options{Output: r, Freeze: true})
		if err != nil {
			return fmt.Errorf("%s: %w", f.of, err)
		}
		r.Pools[f.Name] = pool
		r.onClose(pool.Close)
	}
	return nil
}

// elsewhere serves in place of the services that are not here, and says which one was asked.
func (r *Running) elsewhere() (string, error) {
	return r.Serve(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		service := serviceOf(req)
		r.report("a function asks %s, which is not here", service)
		w.Header().Set("X-Amzn-ErrorType", "NotHere")
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		w.WriteHeader(http.StatusNotImplemented)
		fmt.Fprintf(w, `{"__type":"NotHere","message":%q}`, service+" is not here: only DynamoDB, SQS and SNS are")
	}))
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

// startMappings starts what brings messages and records to functions.
func (r *Running) startMappings(ctx context.Context) error {
	client := queue.NewClient(r.Endpoints.Queues)
	timeouts := map[string]time.Duration{}
	for _, f := range r.Functions {
		timeouts[f.Name] = f.Timeout
	}
	for _, m := range r.Mappings {
		pool := r.Pools[m.Function]
		if m.Queue != "" {
			poller, err := queuepoller.Start(ctx, client, r.Endpoints.Queues+"/"+account+"/"+m.Queue, pool,
				&queuepoller.Options{BatchSize: m.BatchSize, MaxConcurrency: min(m.MaxConcurrency, 10),
					FunctionTimeout: timeouts[m.Function], Trouble: func(err error) { r.report("%s: %v", m.of, err) }})
			if err != nil {
				return fmt.Errorf("%s: %w", m.of, err)
			}
			r.onClose(poller.Close)
			continue
		}
		stream, err := streampoller.StreamOf(ctx, r.DynamoDB, m.Table)
		if err != nil {
			return fmt.Errorf("%s: %w", m.of, err)
		}
		reads := dynamodbstreams.New(dynamodbstreams.Options{BaseEndpoint: &r.Endpoints.DynamoDB, Region: region, Credentials: own})
		poller, err := streampoller.Start(ctx, reads, stream, pool.Call, &streampoller.Options{Filter: m.Filter,
			BatchSize: m.BatchSize, Logf: r.report})
		if err != nil {
			return fmt.Errorf("%s: %w", m.of, err)
		}
		r.onClose(poller.Close)
	}
	return nil
}

// startSchedules invokes functions every so often.
func (r *Running) startSchedules(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	var work sync.WaitGroup
	for _, s := range r.Schedules {
		work.Go(func() {
			for smithytime.SleepWithContext(ctx, s.Every) == nil {
				if _, err := r.Pools[s.Function].Call(ctx, s.Event); err != nil && ctx.Err() == nil {
					r.report("%s: %v", s.of, err)
				}
			}
		})
	}
	r.onClose(func() { cancel(); work.Wait() })
}

// serve serves the APIs.
func (r *Running) serve(listeners map[string]net.Listener) error {
	for _, a := range r.APIs {
		routes := map[string]gateway.Invoke{}
		auth, open := map[Auth]bool{}, []string{}
		for route, to := range a.Routes {
			routes[route] = r.Pools[to.Function].Call
			auth[to.Auth] = true
			if to.Auth == Open {
				open = append(open, route)
			}
		}
		o := &gateway.Options{Open: open, Flavour: a.Flavour, Stage: a.Stage, BinaryMediaTypes: a.BinaryMediaTypes,
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
		r.serveOn(listeners[a.Key], handler)
	}
	return nil
}
