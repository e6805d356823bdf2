package contract

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// proxy stands between a function and DynamoDB Local and can cut or stall what goes
// through.
type proxy struct {
	url, target string
	listener    net.Listener

	mu    sync.Mutex
	state state
	conns map[net.Conn]bool
	work  sync.WaitGroup
}

type state int

const (
	up      state = iota
	cut           // connections end at once
	stalled       // connections are taken, and nothing comes back
)

func newProxy(t *testing.T, endpoint string) *proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &proxy{url: "http://" + l.Addr().String(), target: strings.TrimPrefix(endpoint, "http://"), listener: l, conns: map[net.Conn]bool{}}
	p.work.Go(p.accept)
	t.Cleanup(func() {
		l.Close()
		p.become(cut)
		p.work.Wait()
	})
	return p
}

// become changes the state and ends all connections.
func (p *proxy) become(s state) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.state = s
	for c := range p.conns {
		c.Close()
	}
}

func (p *proxy) accept() {
	for {
		c, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.work.Go(func() { p.carry(c) })
	}
}

func (p *proxy) carry(c net.Conn) {
	now, ok := p.keep(c)
	defer p.drop(c)
	if !ok {
		return
	}
	if now == stalled {
		_, _ = io.Copy(io.Discard, c) // until it is closed
		return
	}
	to, err := net.Dial("tcp", p.target)
	if err != nil {
		return
	}
	defer p.drop(to)
	if again, ok := p.keep(to); !ok || again != now {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(to, c)
		to.Close()
	}()
	_, _ = io.Copy(c, to)
	c.Close()
	<-done
}

// keep notes a connection, unless it is cut already.
func (p *proxy) keep(c net.Conn) (state, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.state == cut {
		return cut, false
	}
	p.conns[c] = true
	return p.state, true
}

func (p *proxy) drop(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, c)
}
