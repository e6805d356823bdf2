package deliveries

import (
	"fmt"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/aws/runtime"
	"github.com/idem-go/idempotency/local/proof/faultnet"
	"github.com/idem-go/idempotency/local/proof/rig"
	"github.com/stretchr/testify/require"
)

const (
	// timeout of the function: short, since the lease of a killed attempt runs
	// until then; and long, since a quarter of it is all that a claim may take.
	timeout = 3 * time.Second
	// visibility of the queues: the lease of a killed attempt is over when its messages are redelivered.
	visibility = 4 * time.Second
	// margin and lease as the function has them.
	margin, lease = 250 * time.Millisecond, time.Second
)

func TestMain(m *testing.M) {
	if !rig.Long() {
		testmain.Parallel(8) // they wait for time-outs most of the time
	}
	testmain.Run(m)
}

// setup is the function, its table, what lies between them, and the recorder.
type setup struct {
	t        *testing.T
	pool     *runtime.Pool
	store    *dynamostore.Store
	network  *faultnet.Network
	kills    *faultnet.Random
	recorder *rig.Recorder
}

func newSetup(t *testing.T, fn runtime.Function, fate func(n, run int) string, env ...string) *setup {
	records := rig.Table(t)
	s := &setup{t: t, network: faultnet.New(), recorder: rig.NewRecorder(t, fate),
		store: rig.Store(t, dynamotest.Client(t), records)}
	fn.Path = testmain.Program(t, "./internal/orders")
	if fn.Timeout == 0 {
		fn.Timeout = timeout
	}
	fn.Env = append([]string{"ORDERS_RECORDER=" + s.recorder.URL, "ORDERS_SOURCE=sqs"}, env...)
	s.pool = rig.Start(t, records, s.network.Serve(t, dynamotest.Endpoint(t)), fn, nil)
	return s
}

// killOneIn has one call in so many kill its instance.
func (s *setup) killOneIn(odds int) {
	s.kills = faultnet.NewRandom(1, faultnet.Caller(s.pool), func(string) (float64, []string) {
		return 100 / float64(odds), []string{faultnet.KilledBefore, faultnet.KilledAfter, faultnet.KilledWith}
	})
	s.network.Set(s.kills.Rule)
}

func fulfil(repeat idem.Repeat) idem.Operation { return idem.Operation{Name: "fulfil", Repeat: repeat} }

// value is what a message's key is made of.
func value(n int) string { return fmt.Sprint("order-", n) }

func body(n int) string { return fmt.Sprintf(`{"n":%d}`, n) }

// record is a message's, nil if none of its deliveries had a claim.
func (s *setup) record(n int) *idem.Record {
	rec, err := s.store.Get(s.t.Context(), fulfil(idem.NotRepeatable).Key(idem.SingleTenant, value(n)).ID())
	require.NoError(s.t, err)
	return rec
}

// effects counts those of each message.
func (s *setup) effects() map[int]int {
	all := map[int]int{}
	for _, e := range s.recorder.Effects() {
		all[e.N]++
	}
	return all
}
