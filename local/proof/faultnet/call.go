package faultnet

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
)

// Call is a request on the network, and what a rule and a fault may do with it.
type Call struct {
	// Operation is the service's name for what is asked, such as "PutItem".
	Operation string
	// Body is what is sent. A fault may change it before it passes the call.
	Body []byte
	// PID is the process that makes the call, where its transport is a
	// [caller.Transport]; else 0.
	PID int
	// Number counts the calls of the network, from 1.
	Number int
	// OnPass, if set, is called with each reply of the service, before the client gets it.
	OnPass func(*Reply)

	request *http.Request
	network *Network
}

// Reply is what the service answers.
type Reply struct {
	Status int
	Header http.Header
	Body   []byte
}

// transport is shared: there are as many networks as processes that a test imitates.
var transport = func() http.RoundTripper {
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.MaxIdleConnsPerHost = 64
	return t
}()

// Context ends when the client does not wait for the reply any more.
func (c *Call) Context() context.Context { return c.request.Context() }

// Read decodes the body.
func (c *Call) Read(into any) error { return json.Unmarshal(c.Body, into) }

// Pass brings the call to the service, whatever becomes of the client, and returns the
// reply. An error is one of the connection to the service.
func (c *Call) Pass() (*Reply, error) {
	out := c.request.Clone(context.WithoutCancel(c.request.Context()))
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(c.Body)), int64(len(c.Body))
	res, err := transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer func() { _ = res.Body.Close() }() // it has been read
	r := &Reply{Status: res.StatusCode, Header: res.Header}
	if r.Body, err = io.ReadAll(res.Body); err != nil {
		return nil, err
	}
	if c.OnPass != nil {
		c.OnPass(r)
	}
	return r, nil
}

// Later does something while the call continues; [Network.Calm] waits for it. Only a fault
// may call it.
func (c *Call) Later(do func()) { c.network.rest.Go(do) }

func (r *Reply) response(to *http.Request) *http.Response {
	return &http.Response{
		Status: http.StatusText(r.Status), StatusCode: r.Status, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
		Header: r.Header, ContentLength: int64(len(r.Body)), Body: io.NopCloser(bytes.NewReader(r.Body)), Request: to,
	}
}
