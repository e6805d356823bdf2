package paths_test

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/local/aws/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/measure/paths"
)

// wire counts what really goes to DynamoDB, retries included.
type wire struct {
	mu    sync.Mutex
	calls map[string]int
}

func (w *wire) RoundTrip(r *http.Request) (*http.Response, error) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	w.mu.Lock()
	w.calls[op]++
	w.mu.Unlock()
	return http.DefaultTransport.RoundTrip(r)
}

func (w *wire) take() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	calls := w.calls
	w.calls = map[string]int{}
	return calls
}

// TestCallsPerPath holds every path to the design's number of calls, at the wire.
func TestCallsPerPath(t *testing.T) {
	w := &wire{calls: map[string]int{}}
	client, err := dynamostore.NewClient(aws.Config{}, &dynamostore.ClientOptions{Endpoint: dynamotest.Endpoint(t), Transport: w})
	require.NoError(t, err)
	table := fmt.Sprintf("paths%d", time.Now().UnixNano())
	require.NoError(t, dynamostore.CreateTable(t.Context(), client, table))
	meter := &paths.Meter{Client: client}
	store, err := dynamostore.NewQuestions(meter, table, nil)
	require.NoError(t, err)
	got := measured{Paths: map[string]units{}}
	for i, p := range paths.All() {
		t.Run(p.Name, func(t *testing.T) {
			stage, err := paths.NewStage(store, table, fmt.Sprint("value", i))
			require.NoError(t, err)
			if p.Before != nil {
				require.NoError(t, p.Before(t.Context(), stage))
			}
			w.take()
			meter.Take()
			require.NoError(t, p.Play(t.Context(), stage))
			require.Equal(t, p.Calls, w.take(), "at the wire")
			u := meter.Take()
			require.Equal(t, p.Calls, u.Calls, "as metered")
			require.Positive(t, u.Write+u.Read, "the units are known")
			got.Paths[p.Name] = units{u.Calls, u.Write, u.Read, u.Computed}
			if i == 0 {
				got.Record = bytesOf(t, client, table, stage)
			}
		})
	}
	compare(t, got)
}
