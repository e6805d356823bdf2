package later

import (
	"context"
	"net/http/httptest"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/gateway"
	"github.com/idem-go/idempotency/local/aws/queuepoller"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
)

const (
	// timeout of the functions: short, since the lease of a killed attempt runs until then;
	// and long, since a quarter of it is all that a claim may take.
	timeout = 4 * time.Second
	// visibility of the queues: the lease of a killed attempt is over when its messages are redelivered.
	visibility = 5 * time.Second
	workers    = 3 // processes of each operation
)

func TestMain(m *testing.M) { testmain.Run(m) }

// The operations of the functions, by the collections that they are requested in.
var operations = map[string]idem.Operation{
	"statements": {Name: "statement"},
	"reports":    {Name: "report", Repeat: idem.Repeatable},
	// No worker comes for these in time: audits are given up, drafts are all cancelled.
	"audits": {Name: "audit"},
	"drafts": {Name: "draft"},
}

// setup is all of it.
type setup struct {
	t        *testing.T
	records  string
	store    *dynamostore.Store
	queues   map[string]queuetest.Queue
	relay    *runtime.Pool
	recorder *rig.Recorder
	url      string // of the gateway
	issuer   *gateway.Issuer
	clients  *faultnet.Network // between the clients and the gateway
	networks []*faultnet.Network
	faults   map[string]*faultnet.Random
	seed     uint64
}

// anyFault strikes most where something is written.
var anyFault = rig.AnyFault(20, 6, 2)

// newSetup starts all but the workers.
func newSetup(t *testing.T) *setup {
	s := &setup{
		t: t, records: rig.StreamTable(t), queues: map[string]queuetest.Queue{}, recorder: rig.NewRecorder(t, rig.AnyFate(3)),
		clients: faultnet.New(), faults: map[string]*faultnet.Random{}, seed: 1,
	}
	s.store = rig.Store(t, dynamotest.Client(t), s.records)
	routes := map[string]string{}
	for name := range operations {
		s.queues[name] = queuetest.New(t, queuetest.Spec{MaxReceives: 1000, Attributes: map[types.QueueAttributeName]string{
			types.QueueAttributeNameVisibilityTimeout: strconv.Itoa(int(visibility.Seconds())),
		}})
		routes[name] = s.queues[name].URL
	}
	front := s.start("front", runtime.Function{Path: testmain.Program(t, "./internal/statements"), MaxInstances: 4},
		anyFault)
	s.serve(front)

	db, out := s.network("relay's table"), s.network("relay's queues")
	s.relay = rig.Relay(t, s.records, db.Serve(t, dynamotest.Endpoint(t)), out.Serve(t, queuetest.Endpoint(t)), routes,
		schema.EnvOutboxGrace+"=500ms", schema.EnvOutboxMaxTries+"=1000")
	lost := []string{faultnet.CallLost, faultnet.ReplyLost, faultnet.CutLate}
	if rig.Long() {
		// A relay that dies in a sweep leaves its message for 12 seconds.
		lost = append(lost, faultnet.KilledBefore, faultnet.KilledAfter)
	}
	for name, network := range map[string]*faultnet.Network{"relay's table": db, "relay's queues": out} {
		s.throw(name, network, s.relay, func(string) (float64, []string) { return 8, lost })
	}
	out.Set(twice(s.faults["relay's queues"].Rule))
	rig.Feed(t, s.relay, s.records)
	s.throw("clients", s.clients, nil, func(string) (float64, []string) {
		return 12, []string{faultnet.CallLost, faultnet.ReplyLost, faultnet.CutLate, faultnet.SilentLate}
	})
	s.networks = append(s.networks, s.clients)
	return s
}

func (s *setup) network(name string) *faultnet.Network {
	n := faultnet.New()
	s.networks = append(s.networks, n)
	return n
}

func (s *setup) throw(name string, n *faultnet.Network, pool *runtime.Pool, odds func(string) (float64, []string)) {
	s.seed++
	s.faults[name] = faultnet.NewRandom(s.seed, faultnet.Caller(pool), odds)
	n.Set(s.faults[name].Rule)
}

// start starts a function that reaches the table over a network of its own.
func (s *setup) start(name string, fn runtime.Function, odds func(string) (float64, []string),
	env ...string) *runtime.Pool {
	s.t.Helper()
	network := s.network(name)
	fn.Timeout, fn.Env = timeout, env
	pool := rig.Start(s.t, s.records, network.Serve(s.t, dynamotest.Endpoint(s.t)), fn, nil)
	s.throw(name, network, pool, odds)
	return pool
}

// serve puts a REST API before the front. It says 502 of a function that fails, which clients may send again after.
func (s *setup) serve(front *runtime.Pool) {
	t := s.t
	s.issuer = gateway.NewIssuer()
	routes := map[string]gateway.Invoke{}
	for name := range operations {
		for _, route := range []string{"POST /" + name, "GET /" + name + "/{id}", "DELETE /" + name + "/{id}"} {
			routes[route] = front.Call
		}
	}
	handler, err := gateway.New(routes, &gateway.Options{Flavour: gateway.RESTAPI, Stage: "v1",
		Authorize: gateway.Tokens(s.issuer.Claims)})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	s.url = server.URL + "/v1/"
}

// work starts the workers of a queue.
func (s *setup) work(name string) {
	t := s.t
	t.Helper()
	pool := s.start(name, runtime.Function{Path: testmain.Program(t, "./internal/statements"), MaxInstances: workers},
		anyFault, "LATER_WORKER="+name, "LATER_RECORDER="+s.recorder.URL)
	p, err := queuepoller.Start(t.Context(), s.queues[name].Client, s.queues[name].URL, pool, &queuepoller.Options{
		MaxConcurrency: workers, FunctionTimeout: timeout,
	})
	require.NoError(t, err)
	t.Cleanup(p.Close)
}

// sweep invokes the sweeper and the relay as their schedules do, but more often, until the test ends.
func (s *setup) sweep() {
	t := s.t
	t.Helper()
	escalations := queuetest.New(t, queuetest.Spec{})
	pool := s.start("sweeper",
		runtime.Function{Path: testmain.Program(t, "../../../lambda/functions/sweeper"), MaxInstances: 1},
		func(string) (float64, []string) {
			return 3, []string{faultnet.KilledBefore, faultnet.KilledAfter, faultnet.CallLost, faultnet.ReplyLost}
		}, "AWS_ENDPOINT_URL_SQS="+queuetest.Endpoint(t), schema.EnvSweepEscalations+"="+escalations.URL)
	ctx, cancel := context.WithCancel(context.Background())
	var g sync.WaitGroup
	for _, of := range []*runtime.Pool{pool, s.relay} {
		g.Go(func() {
			for ctx.Err() == nil {
				// the next one does what this one could not
				_, _ = of.Call(ctx, []byte(`{"detail-type":"Scheduled Event","source":"aws.events"}`))
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
				}
			}
		})
	}
	t.Cleanup(func() { cancel(); g.Wait() })
}

// calm ends all faults, and waits for what is late.
func (s *setup) calm() {
	for _, network := range s.networks {
		network.Calm()
	}
}
