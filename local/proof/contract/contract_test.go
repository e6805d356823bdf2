package contract

import (
	"crypto/rand"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/testenv/contract"
	"github.com/idem-go/idempotency/idem/testenv/contract/contracttest"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/idem/testenv/testmain"
	"github.com/idem-go/idempotency/local/proof/rig"
	"github.com/stretchr/testify/require"
)

func TestMain(m *testing.M) {
	testmain.Parallel(32) // they wait for other processes most of the time
	testmain.Run(m)
}

// patience ends a broken test; no right one waits for it.
const patience = 5 * time.Minute

// fixture is what all services share.
type fixture struct {
	endpoint, table string
	db              *dynamodb.Client
	control         *httptest.Server

	mu    sync.Mutex
	plays map[string]*play
}

func newFixture(t *testing.T) *fixture {
	t.Helper()
	l := &fixture{endpoint: dynamotest.Endpoint(t), table: rig.Table(t), db: dynamotest.Client(t),
		plays: map[string]*play{}}
	l.control = httptest.NewServer(http.HandlerFunc(l.serve))
	t.Cleanup(l.control.Close)
	return l
}

// play is one case: what the handler does, and how often it did.
type play struct {
	name    string
	answer  func(run int) contract.Answer
	gate    chan struct{} // the handler waits until it is closed
	arrived chan int      // the process of each run

	mu   sync.Mutex
	runs int
}

func (l *fixture) play(answer func(run int) contract.Answer) *play {
	p := &play{name: rand.Text(), answer: answer, gate: make(chan struct{}), arrived: make(chan int, 100)}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.plays[p.name] = p
	return p
}

// always is a handler that does the same every time, and at once.
func (l *fixture) always(a contract.Answer) *play {
	p := l.play(func(int) contract.Answer { return a })
	close(p.gate)
	return p
}

func (p *play) count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.runs
}

// process waits until the handler runs, and tells where.
func (p *play) process(t *testing.T) int {
	t.Helper()
	select {
	case pid := <-p.arrived:
		return pid
	case <-time.After(patience):
		require.FailNow(t, "the handler was not called")
		return 0
	}
}

// serve answers the function's handler.
func (l *fixture) serve(w http.ResponseWriter, r *http.Request) {
	l.mu.Lock()
	p := l.plays[strings.TrimPrefix(r.URL.Path, "/")]
	l.mu.Unlock()
	pid, err := strconv.Atoi(r.URL.Query().Get("pid"))
	if p == nil || err != nil {
		http.NotFound(w, r)
		return
	}
	p.mu.Lock()
	p.runs++
	run := p.runs
	p.mu.Unlock()
	p.arrived <- pid
	select {
	case <-p.gate:
		_ = json.NewEncoder(w).Encode(p.answer(run)) // a process that has ended needs no answer
	case <-r.Context().Done():
	}
}

// eventually asks until the condition holds.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	for begun := time.Now(); !condition(); <-time.After(50 * time.Millisecond) {
		require.Less(t, time.Since(begun), patience, "it never came true")
	}
}

// Every row of the contract, in both profiles, through a real client, every gateway and a real process.
func TestContract(t *testing.T) {
	l := newFixture(t)
	for _, k := range kinds {
		for profile, profileName := range contracttest.Profiles {
			if k.onlyIETF && profile != idemhttp.IETF {
				continue
			}
			t.Run(k.name+"/"+profileName, func(t *testing.T) {
				t.Parallel()
				s := newService(t, l, k, profile)
				for name, exchange := range exchanges {
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						exchange(t, s)
					})
				}
				for _, r := range contract.Rows() {
					if r.Only != nil && !slices.Contains(r.Only, profile) || slices.Contains(k.unshown, r.Name) {
						continue
					}
					t.Run(r.Name, func(t *testing.T) {
						t.Parallel()
						contracttest.Run(t, profile, r, newKey(), func(p *contracttest.Play) contracttest.Client {
							return s.playing(t, p)
						})
					})
				}
			})
		}
	}
}

// exchanges are the rows that need more than a request that is sent twice.
var exchanges = map[string]func(*testing.T, *service){
	"in flight, waiting":   inFlightWaiting,
	"the gateway gives up": gatewayGivesUp,
	"the client goes away": clientGoesAway,
	"killed":               killed,
	"killed, repeatable":   killedRepeatable,
	"killed in a step":     killedInStep,
	"hanging":              hanging,
	"no token":             noToken,
	"record damaged":       recordDamaged,
	"record newer":         recordNewer,
	"accepted for later":   acceptedForLater,
	"expired":              expired,
	"store away":           storeAway,
	"byte for byte":        byteForByte,
}
