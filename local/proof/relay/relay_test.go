package relay

import (
	"bytes"
	"context"
	cryptorand "crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/sns"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/idem/testenv/queue/queuetest"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// What is sent is not sent again when the stream begins again.
func TestStreamReplayedFromTheStart(t *testing.T) {
	t.Parallel()
	r := newSetup(t, false)
	for i := range 10 {
		r.publish(fmt.Sprintf("o-%d", i), []string{"", "k"}[i%2], 3)
	}
	p := r.poll()
	r.caughtUp(p, 30)
	p.Close()
	r.allDispatched()
	once := r.batches.deliveries()
	require.Len(t, once, 30)

	p = r.poll()
	r.caughtUp(p, 30)
	p.Close()
	require.Equal(t, once, r.batches.deliveries())
	_, ids := r.receive()
	r.nothingLost(ids)
	require.Len(t, ids, 30)
	for id, n := range ids {
		require.Equal(t, 1, n, id)
	}
}

// inOrder shows that the messages of each key came as they were published, and once:
// orders o-<i> have the key i modulo n, those before the first no key at all.
func inOrder(t *testing.T, bodies []string, first, n int) {
	t.Helper()
	for k := first; k < n; k++ {
		var got []string
		for _, b := range bodies {
			var order, part int
			_, err := fmt.Sscanf(b, "o-%d/%d", &order, &part)
			require.NoError(t, err)
			if order%n == k {
				got = append(got, fmt.Sprintf("%04d/%d", order, part))
			}
		}
		require.Equal(t, slices.Compact(slices.Sorted(slices.Values(got))), got, "key %d", k)
	}
}

// Killed when the queue has the messages and the relay does not know yet: they are sent again, under the same ids.
func TestKilledBetweenSendAndNote(t *testing.T) {
	t.Parallel()
	for _, fifo := range []bool{false, true} {
		t.Run(map[bool]string{false: "standard", true: "fifo"}[fifo], func(t *testing.T) {
			t.Parallel()
			r := newSetup(t, fifo)
			for i := range 10 {
				r.publish(fmt.Sprintf("o-%d", i), fmt.Sprintf("k-%d", i%2), 2)
			}
			var kills atomic.Int32
			r.batches.set(func(b *batches) {
				b.taken = func() {
					if kills.Add(1) > 3 {
						return
					}
					r.kill(func([]byte) bool { return true })
				}
			})
			p := r.poll()
			r.caughtUp(p, 20)
			r.allDispatched()
			require.GreaterOrEqual(t, kills.Load(), int32(3))
			bodies, ids := r.receive()
			r.nothingLost(ids)
			again := 0
			for _, n := range r.batches.deliveries() {
				again += n - 1
			}
			require.Positive(t, again, "it was killed over messages that were taken")
			if fifo {
				require.Len(t, bodies, 20, "the queue drops what it has seen")
				inOrder(t, bodies, 0, 2)
			}
		})
	}
}

// kill kills the relay wherever it is at work on an event that is picked.
func (r *setup) kill(picks func(event []byte) bool) {
	for _, f := range r.pool.InFlight() {
		if picks(f.Payload) {
			_ = r.pool.Kill(f.PID) // it may have ended on its own
		}
	}
}

// Messages that the stream never brings are found by the sweep; a poison one is
// made a dead letter with its reason and stays.
func TestSweepAlone(t *testing.T) {
	t.Parallel()
	r := newSetup(t, true, schema.EnvOutboxGrace+"=100ms", schema.EnvOutboxMaxTries+"=3")
	r.publish("o-0", "k-0", 3)
	r.publish("o-1", "", 1)
	r.publish("o-2", "k-0", 1)
	poison := r.want[1]
	r.batches.set(func(b *batches) { b.refuse = func(id string) bool { return id == poison } })
	r.sweepUntil(func(err error) bool {
		require.NoError(t, err)
		return r.in(schema.OutboxDispatched) == 4 && r.in(schema.OutboxDead) == 1
	})
	for _, it := range r.messages() {
		if rig.Text(it[schema.State]) == schema.OutboxDead {
			require.Equal(t, schema.OutboxSK+poison, rig.Text(it[schema.SK]))
			require.Contains(t, rig.Text(it[schema.Reason]), "InternalError: not now")
			require.NotContains(t, it, schema.ExpiresAt)
			require.Contains(t, it, schema.OpenShard)
		}
	}
	r.want = slices.Delete(r.want, 1, 2)
	bodies, ids := r.receive()
	r.nothingLost(ids)
	require.Less(t, slices.Index(bodies, "o-0/0"), slices.Index(bodies, "o-0/2"))
	require.Less(t, slices.Index(bodies, "o-0/2"), slices.Index(bodies, "o-2/0"))
}

// All of it at once, at random: refusals, lost requests, kills before and after the
// queue has taken a batch, the stream from the start again, sweeps in between.
func TestFaultsAtRandom(t *testing.T) {
	t.Parallel()
	r := newSetup(t, true, schema.EnvOutboxGrace+"=500ms", schema.EnvOutboxMaxTries+"=100")
	var mu sync.Mutex
	rng := rand.New(rand.NewPCG(1, 2))
	chance := func(n int) bool {
		mu.Lock()
		defer mu.Unlock()
		return rng.IntN(100) < n
	}
	// A try that a sweep has noted is no other relay's for 12 seconds.
	inSweeps := int32(1)
	if os.Getenv("IDEM_LONG") == "1" {
		inSweeps = 4
	}
	var kills, swept atomic.Int32
	kill := func(limit int32) {
		r.kill(func(event []byte) bool {
			if kills.Load() >= limit || bytes.Equal(event, sweep) && swept.Add(1) > inSweeps {
				return false
			}
			kills.Add(1)
			return true
		})
	}
	r.batches.set(func(b *batches) {
		b.refuse = func(string) bool { return chance(20) }
		b.before = func() bool {
			if chance(5) {
				kill(2)
			}
			return !chance(10)
		}
		b.taken = func() {
			if chance(10) {
				kill(5)
			}
		}
	})
	p := r.poll()
	const orders = 60
	for i := range orders {
		r.publish(fmt.Sprintf("o-%d", i), []string{"", "k-0", "k-1"}[i%3], 1+i%3)
		if i == orders/2 {
			p.Close()
			p = r.poll()
		}
	}
	// A sweep that is killed is one that its schedule repeats.
	r.sweepUntil(func(error) bool { return r.in(schema.OutboxDispatched) == len(r.want) })
	r.caughtUp(p, len(r.want))
	r.allDispatched()
	require.Positive(t, kills.Load())
	bodies, ids := r.receive()
	r.nothingLost(ids)
	inOrder(t, bodies, 1, 3)
}

// One transaction, three services: each message goes where its destination leads, under its id.
func TestDestinations(t *testing.T) {
	t.Parallel()
	asked := make(chan []byte, 10)
	bus := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- body
		w.Header().Set("Content-Type", "application/x-amz-json-1.1")
		_, _ = io.WriteString(w, `{"FailedEntryCount":0,"Entries":[{"EventId":"1"}]}`)
	}))
	t.Cleanup(bus.Close)
	topics := sns.New(sns.Options{
		BaseEndpoint: aws.String(queuetest.Endpoint(t)), Region: "us-east-1",
		Credentials: queuetest.Client(t).Options().Credentials,
	})
	topic, err := topics.CreateTopic(t.Context(), &sns.CreateTopicInput{Name: aws.String("t-" + cryptorand.Text())})
	require.NoError(t, err)
	behind := queuetest.New(t, queuetest.Spec{})
	_, err = topics.Subscribe(t.Context(), &sns.SubscribeInput{
		TopicArn: topic.TopicArn, Protocol: aws.String("sqs"), Endpoint: &behind.ARN,
		Attributes: map[string]string{"RawMessageDelivery": "true"},
	})
	require.NoError(t, err)
	direct := queuetest.New(t, queuetest.Spec{})
	routes, err := json.Marshal(map[string]string{
		"orders": direct.URL, "prices": *topic.TopicArn, "audit": "arn:aws:events:us-east-1:000000000000:event-bus/audit",
	})
	require.NoError(t, err)

	r := newSetup(t, false, schema.EnvOutboxRoutes+"="+string(routes), schema.EnvOutboxSource+"=com.example.shop",
		"AWS_ENDPOINT_URL_SNS="+queuetest.Endpoint(t), "AWS_ENDPOINT_URL_EVENTBRIDGE="+bus.URL)
	k, destinations := place.Key(idem.SingleTenant, "o-1"), []string{"orders", "prices", "audit"}
	out, err := idem.Run(t.Context(), r.engine, k, "o-1",
		dynamostore.Transact(func(_ context.Context, tx *dynamostore.Tx, in string) (string, error) {
			for _, d := range destinations {
				tx.Publish(d, outbox.Message{Destination: d, Body: []byte(`{"to":"` + d + `"}`)})
			}
			return in, nil
		}))
	require.NoError(t, err)
	for _, d := range destinations {
		r.want = append(r.want, outbox.MessageID(k.ID(), out.Outcome.CreatedAt, d))
	}
	p := r.poll()
	r.caughtUp(p, 3)
	r.allDispatched()

	for i, q := range []queuetest.Queue{direct, behind} {
		one := *r
		one.queue, one.want = q, r.want[i:i+1] // one of each
		bodies, ids := one.receive()
		one.nothingLost(ids)
		require.Equal(t, []string{`{"to":"` + []string{"orders", "prices"}[i] + `"}`}, bodies)
	}
	require.Len(t, asked, 1)
	var in struct{ Entries []struct{ Detail string } }
	require.NoError(t, json.Unmarshal(<-asked, &in))
	require.Len(t, in.Entries, 1)
	require.Equal(t, `{"id":"`+r.want[2]+`","data":{"to":"audit"}}`, in.Entries[0].Detail)
}
