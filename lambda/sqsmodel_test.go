package idemlambda

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/fingerprint"
	"github.com/idem-go/idempotency/idem/idemtest"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/stretchr/testify/require"
)

// What the record of a key says before the batch, and what the handler does with it.
var (
	priors = []string{"", "", "", "completed", "failed", "released", "unknown", "in flight", "damaged", "down"}
	deeds  = []string{"", "", "", "", "fail", "permanent", "not executed", "success not executed", "panic", "goexit"}
)

// trial is a batch and the store under it.
type trial struct {
	op          idem.Operation
	fifo        bool
	concurrency int
	time        time.Duration // for handlers; each takes a second, zero is no limit
	onFailed    bool
	keys        []trialKey
	messages    []trialMessage
}

type trialKey struct {
	prior, deed  string
	forwardFails bool
}

type trialMessage struct {
	id, group       string
	key, variant    int
	badKey, badBody bool
	panicsInKey     bool
}

func randomTrial(random *rand.Rand) trial {
	tr := trial{op: fulfil, fifo: random.IntN(2) == 0, concurrency: []int{1, 3, 20}[random.IntN(3)],
		onFailed: random.IntN(3) == 0}
	tr.op.Repeat = idem.Repeat(random.IntN(2))
	if tr.concurrency == 1 && random.IntN(2) == 0 {
		// What is left after so many handlers is less than MinTime.
		tr.time = time.Duration(3+random.IntN(3))*time.Second + idem.DefaultMinTime/2
	}
	known := random.IntN(3) > 0
	for range 1 + random.IntN(12) {
		k := trialKey{priors[random.IntN(len(priors))], deeds[random.IntN(len(deeds))], random.IntN(2) == 0}
		if !known {
			k.prior = ""
		}
		tr.keys = append(tr.keys, k)
	}
	for i := range random.IntN(14) {
		if i > 0 && random.IntN(10) == 0 {
			tr.messages = append(tr.messages, tr.messages[random.IntN(i)]) // delivered twice in a batch
			continue
		}
		m := trialMessage{id: fmt.Sprint("m", i), group: fmt.Sprint("g", random.IntN(3)), key: random.IntN(len(tr.keys))}
		m.badKey, m.badBody, m.panicsInKey = random.IntN(20) == 0, random.IntN(20) == 0, random.IntN(30) == 0
		// Two inputs race for a key that is new or free, unless messages come one after the other.
		prior := tr.keys[m.key].prior
		if (tr.concurrency == 1 || prior != "" && prior != "released") && random.IntN(4) == 0 {
			m.variant = 1
		}
		tr.messages = append(tr.messages, m)
	}
	return tr
}

// expected is the model: what becomes of each message, how often each key's handler runs, and how
// many messages share an outcome. It knows nothing of the engine.
func (tr *trial) expected() (reasons []Reason, runs []int, duplicates int) {
	type record struct {
		state   string
		variant int
		free    bool // nothing was executed: it belongs to no input
	}
	records := make([]*record, len(tr.keys))
	for i, k := range tr.keys {
		if k.prior != "" {
			records[i] = &record{state: k.prior, free: k.prior == "released"}
		}
	}
	runs = make([]int, len(tr.keys))
	elapsed := time.Duration(0)
	settled := map[[2]int]Reason{}
	run := func(m trialMessage) Reason {
		k := tr.keys[m.key]
		// Without time for the handler a message still gets what is recorded.
		late := tr.time > 0 && tr.time-elapsed < idem.DefaultMinTime
		switch rec := records[m.key]; {
		case k.prior == "down" && late:
			return ReasonOutOfTime
		case k.prior == "down":
			return ReasonStoreUnavailable
		case k.prior == "damaged":
			return ReasonRecordUnreadable
		case rec != nil && rec.variant != m.variant && !rec.free:
			return ReasonKeyReused
		case rec != nil && rec.state == "completed":
			return ReasonReplayed
		case rec != nil && rec.state == "failed":
			return ReasonFailed
		case rec != nil && rec.state == "unknown":
			return ReasonUnknown
		case rec != nil && rec.state == "in flight":
			return ReasonInFlight
		case late:
			return ReasonOutOfTime
		}
		runs[m.key]++
		elapsed += time.Second
		records[m.key] = &record{state: "released", variant: m.variant}
		uncertain := func(r Reason) Reason {
			if tr.op.Repeat == idem.NotRepeatable {
				records[m.key].state = "unknown"
				if r == ReasonReleased {
					return ReasonUnknown
				}
			}
			return r
		}
		switch k.deed {
		case "fail":
			return uncertain(ReasonReleased)
		case "panic", "goexit":
			return uncertain(ReasonPanicked)
		case "not executed", "success not executed":
			records[m.key].free = true
			return ReasonReleased
		case "permanent":
			records[m.key].state = "failed"
			return ReasonFailed
		}
		records[m.key].state = "completed"
		return ReasonExecuted
	}
	settle := func(m trialMessage) Reason {
		switch {
		case m.badBody:
			return ReasonBodyUnreadable
		case m.panicsInKey:
			return ReasonPanicked
		case m.badKey:
			return ReasonKeyInvalid
		}
		id := [2]int{m.key, m.variant}
		r, known := settled[id]
		if !known {
			r = run(m)
			settled[id] = r
		} else if duplicates++; r == ReasonExecuted {
			r = ReasonReplayed
		}
		if r == ReasonFailed && tr.onFailed && tr.keys[m.key].forwardFails {
			return ReasonFailureNotForwarded
		}
		return r
	}
	reasons = make([]Reason, len(tr.messages))
	if !tr.fifo {
		for i, m := range tr.messages {
			reasons[i] = settle(m)
		}
		return reasons, runs, duplicates
	}
	var groups []string
	for _, m := range tr.messages {
		if !slices.Contains(groups, m.group) {
			groups = append(groups, m.group)
		}
	}
	for _, group := range groups {
		stopped := false
		for i, m := range tr.messages {
			switch {
			case m.group != group:
			case stopped:
				reasons[i] = ReasonBlocked
			default:
				reasons[i] = settle(m)
				stopped = !slices.Contains([]Reason{ReasonExecuted, ReasonReplayed, ReasonFailed}, reasons[i])
			}
		}
	}
	return reasons, runs, duplicates
}

func (tr *trial) value(key int) string { return fmt.Sprint("key-", key) }

func (tr *trial) body(key, variant int) string {
	return fmt.Sprintf(`{"key":%d,"variant":%d}`, key, variant)
}

// prepared is the store before the batch.
func (tr *trial) prepared(t *testing.T) idem.Store {
	store, damaged, down := memory(), map[string]bool{}, map[string]bool{}
	engine := realTime(t, store)
	for i, k := range tr.keys {
		op, deed := tr.op, map[string]error{
			"completed": nil, "failed": idem.Permanent(errDeclined), "released": idem.NotExecuted(errDown), "unknown": errDown,
		}
		if k.prior == "unknown" {
			op.Repeat = idem.NotRepeatable
		}
		key := op.Key(idem.SingleTenant, tr.value(i))
		switch k.prior {
		case "":
		case "damaged":
			damaged[key.ID()] = true
		case "down":
			down[key.ID()] = true
		case "in flight":
			fp, err := fingerprint.JSON([]byte(tr.body(i, 0)), nil)
			require.NoError(t, err)
			now := time.Now()
			require.NoError(t, store.Acquire(t.Context(), now, protocol.Claim{Record: idem.Record{
				ID: key.ID(), State: idem.InProgress, Repeat: op.Repeat, Fingerprint: fp, Owner: "other",
				Write: "other.0", Attempt: 1,
				LeaseUntil: now.Add(time.Hour), Retention: time.Hour, CreatedAt: now, UpdatedAt: now,
			}}))
		default:
			_, _ = idem.Do(t.Context(), engine, key, json.RawMessage(tr.body(i, 0)),
				func(context.Context, json.RawMessage) (any, error) {
					return nil, deed[k.prior]
				})
		}
	}
	return broken(store, func(ctx context.Context, c *idemtest.Call) error {
		switch {
		case down[c.ID] && c.Method == idemtest.Acquire:
			return idemtest.Deny(ctx, c)
		case damaged[c.ID]:
			return idemtest.Unreadable(ctx, c)
		}
		return c.Do(ctx)
	}, idemtest.Acquire, idemtest.Get)
}

func (tr *trial) event() (event events.SQSEvent) {
	for _, m := range tr.messages {
		msg := messageOf(m.id, tr.value(m.key), tr.body(m.key, m.variant))
		if m.badBody {
			msg.Body = msg.Body[:len(msg.Body)-1]
		}
		if m.badKey {
			delete(msg.MessageAttributes, SQSKeyAttribute)
		}
		if m.panicsInKey {
			msg.Attributes["panic"] = "yes"
		}
		if tr.fifo {
			msg = inGroup(msg, m.group)
		}
		event.Records = append(event.Records, msg)
	}
	return event
}

// Any mix of outcomes gives a response that names exactly the messages to be returned, as an independent model says.
func TestSQSNamesExactlyWhatGoesBack(t *testing.T) {
	trials := 1500
	if os.Getenv("IDEM_LONG") == "1" {
		trials = 10_000
	}
	random := rand.New(rand.NewPCG(5, 7))
	seen := map[Reason]int{}
	for i := range trials {
		tr := randomTrial(random)
		synctest.Test(t, func(t *testing.T) { tr.check(t, i, seen) })
	}
	for _, r := range []Reason{
		ReasonExecuted, ReasonReplayed, ReasonFailed, ReasonReleased, ReasonUnknown, ReasonPanicked,
		ReasonFailureNotForwarded, ReasonInFlight, ReasonKeyReused,
		ReasonKeyInvalid, ReasonBodyUnreadable, ReasonRecordUnreadable, ReasonStoreUnavailable,
		ReasonOutOfTime, ReasonBlocked,
	} {
		require.Greater(t, seen[r], trials/100, "too few trials give %s", r)
	}
}

func (tr *trial) check(t *testing.T, i int, seen map[Reason]int) {
	w := tr.prepared(t)
	engine := realTime(t, w)
	var mu sync.Mutex
	runs, reasons, duplicates := make([]int, len(tr.keys)), map[*events.SQSMessage]Reason{}, 0
	o := &SQSOptions{Concurrency: tr.concurrency, OnOutcome: func(_ context.Context, out SQSDelivery) {
		mu.Lock()
		defer mu.Unlock()
		_, again := reasons[out.Event]
		require.False(t, again, "reported twice")
		reasons[out.Event] = out.Reason
		if out.Duplicate {
			duplicates++
		}
		if !out.Reason.Acknowledges() {
			require.Error(t, out.Err)
		}
	}}
	var back []SQSDelivery
	o.OnRedelivery = func(_ context.Context, b []SQSDelivery) { back = b }
	if tr.onFailed {
		o.OnFailed = func(ctx context.Context, out SQSDelivery) error {
			require.Equal(t, ReasonFailed, out.Reason)
			require.NotNil(t, out.Failure)
			if b := (trialBody{}); json.Unmarshal([]byte(out.Event.Body), &b) == nil && tr.keys[b.Key].forwardFails {
				return errDown
			}
			return nil
		}
	}
	key := func(ctx context.Context, m *events.SQSMessage) (string, string, error) {
		if m.Attributes["panic"] != "" {
			panic("in the key function")
		}
		return byAttribute(ctx, m)
	}
	h := SQS(engine, tr.op, key, o, func(ctx context.Context, b trialBody) error {
		mu.Lock()
		runs[b.Key]++
		mu.Unlock()
		time.Sleep(time.Second)
		return work(ctx, order{Do: tr.keys[b.Key].deed})
	})
	ctx, cancel := context.WithCancel(t.Context())
	if tr.time > 0 {
		ctx, cancel = context.WithTimeout(t.Context(), tr.time+idem.DefaultGuard)
	}
	defer cancel()
	event := tr.event()
	res, err := h(ctx, event)
	require.NoError(t, err)

	want, wantRuns, wantDuplicates := tr.expected()
	wantBack, wantNames := 0, []string{}
	for j, m := range tr.messages {
		got := reasons[&event.Records[j]]
		seen[got]++
		// Of duplicates side by side any may be the first.
		if tr.concurrency > 1 && slices.Contains([]Reason{ReasonExecuted, ReasonReplayed}, want[j]) {
			require.Contains(t, []Reason{ReasonExecuted, ReasonReplayed}, got, "trial %d, message %d of %+v", i, j, tr)
		} else {
			require.Equal(t, want[j], got, "trial %d, message %d of %+v", i, j, tr)
		}
		if want[j] == ReasonExecuted || want[j] == ReasonReplayed || want[j] == ReasonFailed {
			continue
		}
		wantBack++
		if !slices.Contains(wantNames, m.id) {
			wantNames = append(wantNames, m.id)
		}
	}
	require.Equal(t, wantNames, named(res), "trial %d of %+v", i, tr)
	require.Len(t, back, wantBack)
	require.Equal(t, wantDuplicates, duplicates, "trial %d of %+v", i, tr)
	require.Equal(t, wantRuns, runs, "trial %d of %+v", i, tr)

	// Whatever the model says: an open question is never acknowledged.
	for j, m := range tr.messages {
		id := tr.op.Key(idem.SingleTenant, tr.value(m.key)).ID()
		if rec, err := w.Get(t.Context(), id); err == nil && rec != nil && rec.State == idem.Unknown {
			require.Contains(t, named(res), m.id, "trial %d, message %d of %+v", i, j, tr)
		}
	}
}

type trialBody struct{ Key, Variant int }
