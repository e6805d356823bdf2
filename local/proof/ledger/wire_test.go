package ledger

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/aws/runtime"
)

// What the wire does to a call.
const (
	killBefore = "killed before the call"
	killAfter  = "killed before the reply"
	killWith   = "killed with the reply"
	lostCall   = "call lost"
	lostReply  = "reply lost"
	lateCut    = "connection cut, call arrives late"
	lateHang   = "silence, call arrives late"
	conflict   = "transaction conflict"
	// No try of a transaction is answered, and the first one arrives late: while its
	// attempt still tries, or after it has given up.
	stuckSoon  = "no try answered, one arrives soon"
	stuckLater = "no try answered, one arrives when all is over"
)

// everyStuck: one in so many transactions is stuck.
const everyStuck = 5

// wire stands between processes and a service, and does to one call in so many what
// networks, DynamoDB and the operating system do.
type wire struct {
	url    string
	pool   atomic.Pointer[runtime.Pool] // whom it kills
	faults func(op string) (percent int, of []string)
	tally  *tally

	mu sync.Mutex
	on bool
	// stick has one in everyStuck transactions stuck.
	stick  bool
	dice   *rand.Rand
	thrown map[string]int
	rest   sync.WaitGroup // faults under way: calls that are late, kills
}

func newWire(t *testing.T, target string, seed uint64, tally *tally, faults func(op string) (int, []string)) *wire {
	to, err := url.Parse(target)
	require.NoError(t, err)
	w := &wire{faults: faults, tally: tally, on: true, dice: rand.New(rand.NewPCG(seed, 1)), thrown: map[string]int{}}
	proxy := &httputil.ReverseProxy{
		// The host is part of the signature: it stays what the process signed.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			r.Out.Host = r.In.Host
		},
		Transport:    &http.Transport{MaxIdleConnsPerHost: 64},
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	server := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			panic(http.ErrAbortHandler) // the process is gone
		}
		w.carry(proxy, rw, r, body)
	}))
	t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		w.calm()
	})
	w.url = server.URL
	return w
}

// calm ends the faults, and waits for what is late.
func (w *wire) calm() {
	w.mu.Lock()
	w.on = false
	w.mu.Unlock()
	w.rest.Wait()
}

// carry passes one call on, or not.
func (w *wire) carry(proxy http.Handler, rw http.ResponseWriter, r *http.Request, body []byte) {
	_, op, _ := strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	c := w.tally.call(op, body)
	// What is on its way arrives, whatever becomes of the process.
	pass := func() *httptest.ResponseRecorder {
		out := r.Clone(context.WithoutCancel(r.Context()))
		out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
		got := httptest.NewRecorder()
		func() {
			defer func() {
				if p := recover(); p != nil {
					got.Code = http.StatusBadGateway // the service went away: a reply that is lost
				}
			}()
			proxy.ServeHTTP(got, out)
		}()
		c.passed(got.Code)
		return got
	}
	reply := func(got *httptest.ResponseRecorder) {
		if got.Code == http.StatusBadGateway {
			panic(http.ErrAbortHandler)
		}
		for name, values := range got.Header() {
			rw.Header()[name] = values
		}
		rw.WriteHeader(got.Code)
		if _, err := rw.Write(got.Body.Bytes()); err == nil && r.Context().Err() == nil {
			c.replied(got.Code)
		}
	}
	fault, dice := w.throw(op, c.commit)
	if fault != "" {
		defer w.rest.Done()
	}
	c.met(fault)
	switch fault {
	case killBefore:
		w.kill(r, dice)
		panic(http.ErrAbortHandler)
	case killAfter:
		pass()
		w.kill(r, dice)
		panic(http.ErrAbortHandler)
	case killWith:
		got := pass()
		w.rest.Go(func() { w.kill(r, dice) })
		reply(got)
	case lostCall:
		panic(http.ErrAbortHandler)
	case lostReply:
		pass()
		panic(http.ErrAbortHandler)
	case lateCut, lateHang, stuckSoon, stuckLater:
		delay := time.Duration(20+dice%1500) * time.Millisecond
		switch fault {
		case stuckSoon:
			delay /= 10
		case stuckLater:
			delay += timeout
		}
		late := make(chan *httptest.ResponseRecorder, 1)
		w.rest.Go(func() {
			<-time.After(delay)
			late <- pass()
		})
		if fault != lateHang {
			panic(http.ErrAbortHandler)
		}
		select {
		case got := <-late:
			reply(got)
		case <-r.Context().Done():
		}
	case conflict:
		refuse(rw, op, body, dice)
	default:
		reply(pass())
	}
}

// throw decides about a call, with a number for whatever else is left to chance. Of
// the faults that a call can meet it takes one that was thrown least: whether all
// occur is not left to chance.
func (w *wire) throw(op string, c *commit) (fault string, dice int) {
	percent, of := w.faults(op)
	w.mu.Lock()
	defer w.mu.Unlock()
	stuck := c != nil && w.stick && c.number%everyStuck == 0
	switch {
	case !w.on:
		return "", 0
	case stuck && c.thrown:
		fault = lostCall
	case stuck:
		fault = []string{stuckSoon, stuckLater}[c.number/everyStuck%2]
		c.thrown = true
	case w.dice.IntN(100) >= percent:
		return "", 0
	default:
		rarest := slices.MinFunc(of, func(a, b string) int { return w.thrown[a] - w.thrown[b] })
		of = slices.DeleteFunc(slices.Clone(of), func(f string) bool { return w.thrown[f] > w.thrown[rarest] })
		fault = of[w.dice.IntN(len(of))]
		w.thrown[fault]++
	}
	w.rest.Add(1)
	return fault, w.dice.IntN(1 << 30)
}

// kill ends the process that made the call, or one at work if the call does not say.
func (w *wire) kill(r *http.Request, dice int) {
	pool := w.pool.Load()
	pid, err := strconv.Atoi(r.Header.Get("X-Pid"))
	if err != nil {
		at := pool.InFlight()
		if len(at) == 0 {
			return
		}
		pid = at[dice%len(at)].PID
	}
	_ = pool.Kill(pid) // it may have been killed by another call's fault
}

// refuse answers as DynamoDB does where another transaction holds the item, or, by
// the dice, several of the items.
func refuse(rw http.ResponseWriter, op string, body []byte, dice int) {
	answer := map[string]any{
		"__type":  "com.amazonaws.dynamodb.v20120810#TransactionConflictException",
		"message": "Transaction is ongoing for the item",
	}
	if op == "TransactWriteItems" {
		var in struct{ TransactItems []json.RawMessage }
		_ = json.Unmarshal(body, &in) // the SDK has written it
		n := len(in.TransactItems)
		codes := slices.Repeat([]string{"None"}, n)
		codes[dice%n] = "TransactionConflict"
		codes[dice/n%n] = "TransactionConflict"
		var reasons []map[string]string
		for _, code := range codes {
			reason := map[string]string{"Code": code}
			if code != "None" {
				reason["Message"] = "Transaction is ongoing for the item"
			}
			reasons = append(reasons, reason)
		}
		answer = map[string]any{
			"__type": "com.amazonaws.dynamodb.v20120810#TransactionCanceledException",
			"Message": fmt.Sprintf("Transaction cancelled, please refer cancellation reasons for specific reasons [%s]",
				strings.Join(codes, ", ")),
			"CancellationReasons": reasons,
		}
	}
	rw.Header().Set("Content-Type", "application/x-amz-json-1.0")
	rw.Header().Set("X-Amzn-Requestid", "refused")
	rw.WriteHeader(http.StatusBadRequest)
	_ = json.NewEncoder(rw).Encode(answer) // the process may be gone
}
