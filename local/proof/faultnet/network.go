// Package faultnet is the faulty network of the proofs. It stands between a client and a
// service that speaks AWS's JSON protocols, such as DynamoDB or SQS, and loses, delays
// or refuses single calls, or kills the process that makes one. A [Rule] decides by the
// call: its operation, its body, its process, its number.
//
//	network := faultnet.New()
//	network.Set(func(c *faultnet.Call) faultnet.Fault {
//		if c.Operation == "PutItem" && c.Number == 3 {
//			return faultnet.LoseReply
//		}
//		return nil
//	})
//
// A client of the test's own process takes the Network as its transport; [Network.Serve]
// gives other processes a URL.
//
// What a client has sent is on its way: it arrives at the service also if the client
// does not wait for it any more, or is dead.
package faultnet

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/local/proof/faultnet/caller"
)

// ErrReset is what a client gets for a call whose connection breaks. SDKs try again
// after it. A client of [Network.Serve] sees a connection that ends without an answer.
var ErrReset = errors.New("read: connection reset by peer")

// Rule decides about one call: nil passes it on. Calls come at the same time. The rule
// may set [Call.OnPass].
type Rule func(*Call) Fault

// Network is a network to one or several services, an [http.RoundTripper]. It is safe for
// concurrent use.
type Network struct {
	mu    sync.Mutex
	rule  Rule
	calls int
	rest  sync.WaitGroup // calls under a rule, and what they left to be done later
}

// New returns a network without faults.
func New() *Network { return new(Network) }

// Set changes the rule for the calls that follow; nil ends all faults.
func (n *Network) Set(r Rule) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.rule = r
}

// Calm ends all faults, and waits for what is late.
func (n *Network) Calm() {
	n.Set(nil)
	n.rest.Wait()
}

// RoundTrip sends a request over the network. It ends with the request's context.
func (n *Network) RoundTrip(r *http.Request) (*http.Response, error) {
	c := &Call{request: r.Clone(r.Context()), network: n}
	if r.Body != nil {
		var err error
		c.Body, err = io.ReadAll(r.Body)
		_ = r.Body.Close() // it has been read
		if err != nil {
			return nil, err
		}
	}
	_, c.Operation, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
	c.PID, _ = strconv.Atoi(r.Header.Get(caller.Header))

	n.mu.Lock()
	n.calls++
	c.Number = n.calls
	rule := n.rule
	if rule != nil {
		n.rest.Add(1)
	}
	n.mu.Unlock()

	type result struct {
		reply *Reply
		err   error
	}
	done := make(chan result, 1)
	go func() {
		fault := Fault((*Call).Pass)
		if rule != nil {
			defer n.rest.Done()
			if f := rule(c); f != nil {
				fault = f
			}
		}
		reply, err := fault(c)
		done <- result{reply, err}
	}()
	select {
	case got := <-done:
		if got.err != nil {
			return nil, got.err
		}
		return got.reply.response(r), nil
	case <-r.Context().Done():
		return nil, context.Cause(r.Context())
	}
}

// Serve opens a URL that leads over the network to a service, and ends with the test,
// after what is late.
func (n *Network) Serve(tb testing.TB, service string) string {
	tb.Helper()
	target, err := url.Parse(service)
	require.NoError(tb, err)
	server := httptest.NewServer(&httputil.ReverseProxy{
		// The host is part of the signature: it stays what the process signed.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(target)
			r.Out.Host = r.In.Host
		},
		Transport:    n,
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	})
	tb.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
		n.Calm()
	})
	return server.URL
}
