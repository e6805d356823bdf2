package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem/emf"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/schema"
)

// notingStore is a store whose every message is new, and which notes what was loaded and sent.
type notingStore struct {
	outbox.Store            // for what no test calls
	mu           sync.Mutex // destinations are swept side by side
	loaded       []outbox.Ref
	dispatched   []string
	swept        int
	down         error
}

func (s *notingStore) Load(_ context.Context, refs []outbox.Ref, _ int) (map[outbox.Ref]*outbox.Entry, int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.loaded = append(s.loaded, refs...)
	found := map[outbox.Ref]*outbox.Entry{}
	for _, ref := range refs {
		found[ref] = &outbox.Entry{
			Record: ref.Record, State: outbox.New, Created: time.Now(),
			Message: outbox.Message{ID: ref.ID, Destination: "orders", OrderingKey: "k"},
		}
	}
	return found, len(refs), s.down
}

func (s *notingStore) Waiting(context.Context, int, string, time.Time, string) ([]outbox.Ref, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swept++
	return nil, "", s.down
}

func (s *notingStore) Strays(context.Context, int, []string, time.Time, string) ([]outbox.Ref, string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.swept++
	return nil, "", s.down
}

func (s *notingStore) Held(context.Context, []outbox.Lane) (map[outbox.Lane][]outbox.Ref, error) {
	return nil, s.down
}

func (s *notingStore) Retry(context.Context, *outbox.Entry, int, time.Time, string) (bool, error) {
	return false, errors.New("no reply")
}

func (s *notingStore) Dispatch(_ context.Context, _ time.Time, e *outbox.Entry, _ string, _ time.Time) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dispatched = append(s.dispatched, e.ID)
	return true, nil
}

type sender func(outbox.Message) error

func (f sender) Send(_ context.Context, messages []outbox.Message) (all []outbox.Sent) {
	for _, m := range messages {
		all = append(all, outbox.Sent{Err: f(m)})
	}
	return all
}

// served is the function, and the metrics that it writes.
func served(t *testing.T, s *notingStore, send sender) (*function, *bytes.Buffer) {
	relay, err := outbox.NewRelay(s, map[string]outbox.Sender{"orders": send}, nil)
	require.NoError(t, err)
	var out bytes.Buffer
	metrics, err := emf.New(&emf.Options{Service: "relay", Out: &out})
	require.NoError(t, err)
	return &function{relay, metrics}, &out
}

func serve(t *testing.T, s *notingStore, send sender) func(raw string) (string, error) {
	f, _ := served(t, s, send)
	return func(raw string) (string, error) {
		answer, err := f.handle(t.Context(), parsed(t, raw))
		b, merr := json.Marshal(answer)
		require.NoError(t, merr)
		return string(b), err
	}
}

func parsed(t *testing.T, raw string) (e event) {
	require.NoError(t, json.Unmarshal([]byte(raw), &e))
	return e
}

func change(name, sequence, sk, state string) string {
	image := ""
	if state != "" {
		image = `,"NewImage":{"in_state":{"S":"` + state + `"}}`
	}
	return `{"eventName":"` + name + `","dynamodb":{"SequenceNumber":"` + sequence +
		`","Keys":{"pk":{"S":"r"},"sk":{"S":"` + sk + `"}}` + image + `}}`
}

func TestStreamEvents(t *testing.T) {
	s := &notingStore{}
	call := serve(t, s, func(m outbox.Message) error {
		if m.ID == "m2" {
			return errors.New("down")
		}
		return nil
	})
	answer, err := call(`{"Records":[` +
		change("INSERT", "1", "#", "completed") + "," +
		change("INSERT", "2", "outbox#m1", "new") + "," +
		change("MODIFY", "3", "outbox#m9", "retrying") + "," +
		change("MODIFY", "4", "outbox#m8", "dispatched") + "," +
		change("REMOVE", "5", "outbox#m7", "") + "," +
		change("MODIFY", "6", "outbox#m2", "new") + "," +
		change("INSERT", "7", "outbox#m3", "") + `]}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"batchItemFailures":[{"itemIdentifier":"6"}]}`, answer)
	require.Equal(t, []outbox.Ref{{Record: "r", ID: "m1"}, {Record: "r", ID: "m2"}, {Record: "r", ID: "m3"}}, s.loaded)
	require.Equal(t, []string{"m1"}, s.dispatched)

	answer, err = call(`{"Records":[` + change("INSERT", "8", "outbox#m4", "new") + `]}`)
	require.NoError(t, err)
	require.JSONEq(t, `{"batchItemFailures":[]}`, answer)

	sample, err := samples.Get("dynamodb-stream")
	require.NoError(t, err)
	answer, err = call(string(sample))
	require.NoError(t, err)
	require.JSONEq(t, `{"batchItemFailures":[]}`, answer, "other items are nothing to it")

	s.down = errors.New("store down")
	_, err = call(`{"Records":[` + change("INSERT", "9", "outbox#m5", "new") + `]}`)
	require.ErrorContains(t, err, "store down")
}

func TestSchedule(t *testing.T) {
	s := &notingStore{}
	call := serve(t, s, func(outbox.Message) error { return nil })
	sample, err := samples.Get("eventbridge-scheduled")
	require.NoError(t, err)
	for i, raw := range []string{string(sample), `{"sweep":true}`} {
		_, err := call(raw)
		require.NoError(t, err)
		require.Equal(t, (i+1)*2*outbox.Shards, s.swept, "for the destination, and for those without a route")
	}
	_, err = call(`{"detail-type":"Order Placed"}`)
	require.ErrorContains(t, err, "none of a schedule")
	s.down = errors.New("store down")
	_, err = call(`{"sweep":true}`)
	require.ErrorContains(t, err, "store down")
}

func TestRoutes(t *testing.T) {
	cfg := aws.Config{Region: "eu-central-1"}
	senders, err := sendersOf(cfg, `{"orders":"https://sqs.eu-central-1.amazonaws.com/1/orders.fifo",`+
		`"prices":"arn:aws:sns:eu-central-1:1:prices","audit":"arn:aws:events:eu-central-1:1:event-bus/audit"}`,
		"com.example")
	require.NoError(t, err)
	require.Len(t, senders, 3)
	for routes, says := range map[string]string{
		``:                                     "use a JSON object",
		`{}`:                                   "use a JSON object",
		`{"a":1}`:                              "use a JSON object",
		`{"a":"orders"}`:                       `destination "a": "orders" is not a queue URL, topic ARN or event bus ARN`,
		`{"a":"arn:aws:sqs:eu-central-1:1:q"}`: "is not a queue URL",
		`{"a":"arn:aws:events:eu-central-1:1:event-bus/bus"}`: "set " + schema.EnvOutboxSource,
	} {
		_, err := sendersOf(cfg, routes, "")
		require.ErrorContains(t, err, says)
	}
}

func TestOptions(t *testing.T) {
	env := map[string]string{schema.EnvOutboxMaxTries: "3", schema.EnvOutboxBackoff: "5s", schema.EnvOutboxGrace: "90s"}
	o, err := options(func(name string) string { return env[name] })
	require.NoError(t, err)
	require.Equal(t, &outbox.Options{MaxTries: 3, Backoff: 5 * time.Second, Grace: 90 * time.Second}, o)
	for name, bad := range map[string]string{schema.EnvOutboxMaxTries: "0", schema.EnvOutboxBackoff: "5",
		schema.EnvOutboxGrace: "-1s"} {
		_, err := options(func(n string) string { return map[string]string{name: bad}[n] })
		require.ErrorContains(t, err, name+" is")
	}
}

// The alarms go by these. A sweep that could not read, or had no time, has found nothing out: a 0
// would end the alarm on old messages in the middle of an outage.
func TestMetrics(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	const sweep, oldest = `{"sweep":true}`, `"service":"relay","outbox_missed":0,"outbox_oldest":0}`
	for name, tc := range map[string]struct {
		ctx   context.Context
		down  error
		event string
		says  string
	}{
		"a message": {t.Context(), nil, `{"Records":[` + change("INSERT", "2", "outbox#m1", "new") + `]}`,
			`"service":"relay","outbox_relayed":1}`},
		"nothing waits":        {t.Context(), nil, sweep, oldest},
		"no shard can be read": {t.Context(), errors.New("throttled"), sweep, ""},
		"time is over":         {over, nil, sweep, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f, out := served(t, &notingStore{down: tc.down}, func(outbox.Message) error { return nil })
			_, err := f.handle(tc.ctx, parsed(t, tc.event))
			require.ErrorIs(t, err, tc.down)
			require.NoError(t, f.metrics.Flush(t.Context()))
			require.Contains(t, out.String(), tc.says)
			require.Equal(t, tc.says == oldest, strings.Contains(out.String(), `"outbox_oldest":0`), out)
		})
	}
}
