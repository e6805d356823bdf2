//go:build !race

package dynamostore

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// The test runs a relay in a process of its own, with the memory limit of a function that has 256 MB, and
// messages of 250 KB. envRelay says which call it makes.
const (
	envRelay = "IDEM_TEST_RELAY"
	lanes    = 100 // of a stream's batch
)

// A relay's memory does not depend on how large messages are, how many wait, and for how many
// destinations. Half of the function's is enough.
func TestMemoryOfARelay(t *testing.T) {
	if os.Getenv(envRelay) != "" {
		relayAlone(t)
		return
	}
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("the peak of a process's memory is in /proc")
	}
	for _, call := range []string{"sweep 1", "sweep 4", "sweep 10", "deliver 1"} {
		t.Run(call, func(t *testing.T) {
			var destinations int
			_, err := fmt.Sscanf(call[strings.IndexByte(call, ' '):], "%d", &destinations)
			require.NoError(t, err)
			server := httptest.NewServer(largeTable(destinations))
			defer server.Close()
			cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestMemoryOfARelay$", "-test.v")
			cmd.Env = append(os.Environ(), envRelay+"="+call+" "+server.URL, "GOGC=100", "GOMEMLIMIT=217MiB",
				"GOCOVERDIR="+t.TempDir())
			out, err := cmd.CombinedOutput()
			require.NoError(t, err, "%s", out)
			peak := regexp.MustCompile(`VmHWM:\s+(\d+) kB`).FindSubmatch(out)
			require.NotNil(t, peak, "%s", out)
			kilobytes, err := strconv.Atoi(string(peak[1]))
			require.NoError(t, err)
			t.Logf("%d MB %s", kilobytes>>10, regexp.MustCompile(`{Sent.*`).Find(out))
			require.Less(t, kilobytes>>10, 128, "%s", out)
		})
	}
}

// relayAlone is the process that is measured.
func relayAlone(t *testing.T) {
	var call, url string
	var destinations int
	_, err := fmt.Sscan(os.Getenv(envRelay), &call, &destinations, &url)
	require.NoError(t, err)
	client := must(NewClient(aws.Config{Region: "eu-central-1",
		Credentials: credentials.NewStaticCredentialsProvider("a", "b", "")}, &ClientOptions{Endpoint: url}))
	box := must(NewOutbox(client, "table", &patient))
	// All destinations are sent to at the same time, with a page of each in memory. That is enough.
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var all sync.WaitGroup
	all.Add(destinations)
	senders := map[string]outbox.Sender{}
	for d := range destinations {
		var once sync.Once
		senders[destination(d)] = accepting(func() {
			once.Do(func() {
				all.Done()
				all.Wait()
				if call == "sweep" {
					cancel()
				}
			})
		})
	}
	relay := must(outbox.NewRelay(box, senders, nil))
	var report outbox.Report
	if call == "sweep" {
		report, err = relay.Sweep(ctx)
	} else {
		var refs []outbox.Ref
		for n := range lanes {
			refs = append(refs, outbox.Ref{Record: fmt.Sprintf("new-%d", n), ID: "0"})
		}
		report, _, err = relay.Deliver(ctx, refs)
	}
	t.Logf("%+v %v", report, err)
	status, err := os.ReadFile("/proc/self/status")
	require.NoError(t, err)
	t.Log(string(status))
}

// accepting is a sender that accepts everything, after f.
type accepting func()

func (f accepting) Send(_ context.Context, messages []outbox.Message) []outbox.Sent {
	f()
	return make([]outbox.Sent, len(messages))
}

func destination(n int) string { return fmt.Sprint("d", n) }

// largeTable answers as a table with large messages. The partition keys say what the messages are:
// those of records "new-1" are new, small and ordered; those of "held-1" were left to the sweep in
// the same lanes; those of "all-1" have no order.
func largeTable(destinations int) http.Handler {
	perShard := 40 + 80/destinations // messages, all of one destination
	small := 20 * destinations       // of all; the large ones come after them
	large := base64.StdEncoding.EncodeToString(make([]byte, 250<<10))
	const at = 1_700_000_000_000
	type entry struct{ place, record string }
	var mu sync.Mutex
	sent := map[string]bool{}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		type value struct{ S, N string }
		var in struct {
			Key                       map[string]value
			RequestItems              map[string]struct{ Keys []map[string]value }
			ExpressionAttributeValues map[string]value
			ExclusiveStartKey         map[string]value
			UpdateExpression          string
			Limit                     int
		}
		_ = json.Unmarshal(body, &in)
		out := `{}`
		switch _, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), "."); op {
		case "UpdateItem":
			mu.Lock()
			sent[in.Key["pk"].S] = true
			mu.Unlock()
		case "Query":
			value := func(name string) value { return in.ExpressionAttributeValues[name] }
			shard := value(":open_shard").S
			var entries []entry
			for n := range lanes * outbox.MaxHeld {
				if destinations > 1 {
					break
				}
				m := order(fmt.Sprint("lane-", n%lanes))
				m.Destination = destination(0)
				if outboxShard("outbox-", "", &m) == shard {
					entries = append(entries, entry{outboxPlace(destinationHash(m.Destination), laneHash(m.OrderingKey), at, 0),
						fmt.Sprintf("held-%04d", n)})
				}
			}
			for n := range destinations * perShard {
				record := fmt.Sprintf("all-%03d", n)
				mu.Lock()
				if shard == fmt.Sprintf("outbox-%02d", n%destinations) && !sent[record] {
					entries = append(entries, entry{outboxPlace(destinationHash(destination(n%destinations)), notHeld, at, 0), record})
				}
				mu.Unlock()
			}
			slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.place+a.record, b.place+b.record) })
			entries = slices.DeleteFunc(entries, func(e entry) bool {
				return e.place < leftPad(value(":since").N, placeDigits) || e.place > leftPad(value(":until").N, placeDigits) ||
					e.place+e.record <= in.ExclusiveStartKey["open_due"].N+in.ExclusiveStartKey["pk"].S
			})
			item := func(e entry) string {
				return fmt.Sprintf(`{"open_shard":{"S":%q},"open_due":{"N":%q},"pk":{"S":%q},"sk":{"S":"outbox#0"}}`,
					shard, e.place, e.record)
			}
			var last string
			if in.Limit > 0 && len(entries) > in.Limit {
				entries = entries[:in.Limit]
				last = `,"LastEvaluatedKey":` + item(entries[in.Limit-1])
			}
			var items []string
			for _, e := range entries {
				items = append(items, item(e))
			}
			out = `{"Items":[` + strings.Join(items, ",") + `]` + last + `}`
		case "BatchGetItem":
			var items []string
			for _, key := range in.RequestItems["table"].Keys {
				record := key["pk"].S
				kind, number, _ := strings.Cut(record, "-")
				n, _ := strconv.Atoi(number)
				of, lane, state, content := n%destinations, "", "new", large
				switch {
				case kind == "all" && n < small:
					content = "AAAA"
				case kind == "new":
					of, lane, content = 0, fmt.Sprint("lane-", n), "AAAA"
				case kind == "held":
					of, lane, state = 0, fmt.Sprint("lane-", n%lanes), "retrying"
				}
				it := fmt.Sprintf(`{"pk":{"S":%q},"sk":{"S":"outbox#0"},"v":{"N":"1"},"destination":{"S":%q},`+
					`"in_state":{"S":%q},"number":{"N":"0"},"created_at":{"N":"%d"},"body":{"B":%q}`,
					record, destination(of), state, at, content)
				if lane != "" {
					it += fmt.Sprintf(`,"ordering_key":{"S":%q}`, lane)
				}
				items = append(items, it+"}")
			}
			out = `{"Responses":{"table":[` + strings.Join(items, ",") + `]}}`
		}
		w.Header().Set("Content-Type", "application/x-amz-json-1.0")
		_, _ = io.WriteString(w, out)
	})
}
