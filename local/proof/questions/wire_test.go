package questions

import (
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/proof/faultnet"
)

// wire is a network of one party's own, which loses one call in a few, and notes what a
// party outside the attempts has changed.
type wire struct {
	*faultnet.Network
	client *dynamodb.Client
	dead   atomic.Bool
	calm   atomic.Bool // it loses nothing
	// entry is the key of the audit entry that the party has written as unconfirmed.
	entry atomic.Value
}

// kill ends the process: nothing that it sends arrives any more.
func (w *wire) kill() { w.dead.Store(true) }

// settle waits for what is late. The dead stay dead.
func (w *wire) settle() {
	w.Calm()
	w.Set(func(*faultnet.Call) faultnet.Fault {
		if w.dead.Load() {
			return faultnet.AccessDenied
		}
		return nil
	})
}

func (s *schedule) wire(outside bool) *wire {
	w := &wire{Network: faultnet.New()}
	w.entry.Store("")
	var err error
	w.client, err = dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(s.t), Transport: w})
	require.NoError(s.t, err)
	w.Set(func(c *faultnet.Call) faultnet.Fault {
		if w.dead.Load() {
			return faultnet.AccessDenied // which nobody tries again
		}
		if outside {
			entry := w.planned(c)
			c.OnPass = func(r *faultnet.Reply) { s.note(c, r, entry) }
		}
		if w.calm.Load() {
			return nil
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		soon := time.Duration(s.rand.IntN(15)) * time.Millisecond
		name, fault := "", faultnet.Fault(nil)
		switch n := s.rand.IntN(100); {
		case n < 10:
			name, fault = "reply lost", faultnet.LoseReply
		case n < 16:
			name, fault = "request lost", faultnet.LoseRequest
		case n < 24:
			name, fault = "cut, arrives late", faultnet.LoseAndArrive(soon)
		case n < 28 && strings.HasPrefix(c.Operation, "Transact"):
			name, fault = "conflict", faultnet.Conflict
		case n < 50:
			return faultnet.Delay(soon / 5)
		}
		s.faults[name]++
		return fault
	})
	return w
}

// planned is the key of the unconfirmed entry of the change that the call is part of; empty if
// there is none.
func (w *wire) planned(c *faultnet.Call) string {
	var in struct {
		Item struct {
			SK          struct{ S string }   `json:"sk"`
			Unconfirmed *struct{ BOOL bool } `json:"unconfirmed"`
		}
	}
	if sk := &in.Item.SK; c.Read(&in) == nil && strings.HasPrefix(sk.S, "audit#") {
		entry := ""
		if in.Item.Unconfirmed != nil {
			entry = sk.S
		}
		w.entry.Store(entry)
	}
	return w.entry.Load().(string)
}

// note keeps what a party outside the attempts has changed. Without transactions planned is the
// change's entry.
func (s *schedule) note(c *faultnet.Call, r *faultnet.Reply, planned string) {
	if r.Status != http.StatusOK {
		return
	}
	var in struct {
		ClientRequestToken, UpdateExpression string
		Item, Key                            map[string]struct{ S string }
		TransactItems                        []struct {
			Put struct{ Item map[string]struct{ S string } }
		}
	}
	err := c.Read(&in)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err != nil:
		s.strange = append(s.strange, err.Error())
	case c.Operation == "TransactWriteItems" && len(in.TransactItems) == 2:
		s.changes[in.ClientRequestToken] = in.TransactItems[1].Put.Item["sk"].S
	case s.noTx && strings.HasPrefix(in.Item["sk"].S+in.Key["sk"].S, "audit#"): // planned, confirmed or deleted
	case s.noTx && c.Operation == "DeleteItem": // a removal: the record shows it
	case s.noTx && c.Operation == "UpdateItem" && planned != "":
		s.changes[planned] = planned
	case c.Operation == "UpdateItem" && strings.HasPrefix(in.UpdateExpression, "SET open_due"):
	case c.Operation == "GetItem", c.Operation == "Query":
	default:
		s.strange = append(s.strange, c.Operation+" "+string(c.Body))
	}
}
