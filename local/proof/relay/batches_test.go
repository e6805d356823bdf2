package relay

import (
	"encoding/json"
	"maps"
	"net/http"
	"sync"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// batches are the calls by which the relay gives messages to the queue.
type batches struct {
	mu sync.Mutex
	// refuse picks the entries of a batch, by message id, that the queue does not get and
	// that fail for the relay.
	refuse func(id string) bool
	// taken is called when the queue has taken a batch, before the relay hears of it.
	taken func()
	// before is called before the queue gets a batch; where it returns false, the queue
	// does not, and the relay is answered 503.
	before func() bool
	// sent counts what the queue was given, by message id.
	sent map[string]int
}

// set changes the faults.
func (b *batches) set(f func(*batches)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.refuse, b.taken, b.before = nil, nil, nil
	f(b)
}

// deliveries are the ids that the queue was given, and how often.
func (b *batches) deliveries() map[string]int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return maps.Clone(b.sent)
}

// send is a [faultnet.Fault]: it passes on what is not refused, and answers for both.
func (b *batches) send(c *faultnet.Call) (*faultnet.Reply, error) {
	var in struct {
		QueueURL string           `json:"QueueUrl"`
		Entries  []map[string]any `json:"Entries"`
	}
	if err := c.Read(&in); err != nil {
		return nil, err
	}
	b.mu.Lock()
	refuse, taken, before := b.refuse, b.taken, b.before
	b.mu.Unlock()
	if before != nil && !before() {
		return &faultnet.Reply{Status: http.StatusServiceUnavailable}, nil
	}
	var failed, passed []map[string]any
	for _, e := range in.Entries {
		if refuse != nil && refuse(idOf(e)) {
			failed = append(failed, map[string]any{"Id": e["Id"], "SenderFault": false, "Code": "InternalError",
				"Message": "not now"})
		} else {
			passed = append(passed, e)
		}
	}
	reply := &faultnet.Reply{Status: http.StatusOK, Header: http.Header{"Content-Type": {"application/x-amz-json-1.0"}}}
	answer := map[string]any{"Successful": []any{}}
	if len(passed) > 0 {
		in.Entries = passed
		var err error
		if c.Body, err = json.Marshal(in); err != nil {
			return nil, err
		}
		if reply, err = c.Pass(); err != nil || reply.Status != http.StatusOK {
			return reply, err
		}
		if err := json.Unmarshal(reply.Body, &answer); err != nil {
			return nil, err
		}
		b.mu.Lock()
		for _, e := range passed {
			b.sent[idOf(e)]++
		}
		b.mu.Unlock()
		if taken != nil {
			taken()
		}
	}
	more, _ := answer["Failed"].([]any)
	for _, f := range failed {
		more = append(more, f)
	}
	answer["Failed"] = more
	var err error
	reply.Body, err = json.Marshal(answer)
	reply.Header.Del("Content-Length")
	return reply, err
}

func idOf(entry map[string]any) string {
	attributes, _ := entry["MessageAttributes"].(map[string]any)
	id, _ := attributes[outbox.AttributeID].(map[string]any)
	s, _ := id["StringValue"].(string)
	return s
}
