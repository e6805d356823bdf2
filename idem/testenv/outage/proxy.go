// Package outage cuts clients off from their server, and kills the server, for the tests of stores.
package outage

import (
	"io"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// Fate is what becomes of what a client sends.
type Fate int

const (
	Pass        Fate = iota
	LoseReply        // the server gets it, and the client is cut off
	LoseRequest      // the client is cut off, and the server does not get it
)

// Proxy is between clients and their server.
type Proxy struct {
	net.Listener
	server   string
	requests atomic.Pointer[func(string) Fate]
	replies  atomic.Pointer[func(string) string]
}

// NewProxy starts a proxy before the server, which passes on everything.
func NewProxy(t testing.TB, server string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{Listener: l, server: server}
	p.OnRequest(func(string) Fate { return Pass })
	p.OnReply(func(reply string) string { return reply })
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			go p.serve(client)
		}
	}()
	return p
}

// OnRequest decides from now on what becomes of what clients send.
func (p *Proxy) OnRequest(fate func(sent string) Fate) { p.requests.Store(&fate) }

// OnReply changes from now on what the server replies.
func (p *Proxy) OnReply(change func(reply string) string) { p.replies.Store(&change) }

func (p *Proxy) serve(client net.Conn) {
	defer client.Close()
	server, err := net.Dial("tcp", p.server)
	if err != nil {
		return
	}
	defer server.Close()
	var cut atomic.Bool
	go func() {
		defer client.Close()
		buf := make([]byte, 64<<10)
		for {
			n, err := server.Read(buf)
			if err != nil || cut.Load() {
				return
			}
			if _, err := io.WriteString(client, (*p.replies.Load())(string(buf[:n]))); err != nil {
				return
			}
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := client.Read(buf)
		if err != nil {
			return
		}
		if fate := (*p.requests.Load())(string(buf[:n])); fate != Pass {
			cut.Store(true)
			if fate == LoseReply {
				_, _ = server.Write(buf[:n])
				_, _ = io.Copy(io.Discard, client) // until the client's connection ends, with the answer
			}
			return
		}
		if _, err := server.Write(buf[:n]); err != nil {
			return
		}
	}
}
