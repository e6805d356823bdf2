package later

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/local/proof/rig"
)

const tenants = 20

// request is what a tenant asks for, and what its senders have learned of it.
type request struct {
	n          int
	tenant     string
	collection string
	key        string

	mu        sync.Mutex
	at        string // of its status
	answers   []string
	cancels   bool // its tenant tries to
	cancelled bool // and learned that nothing has begun it
}

func requests(count int) (all []*request) {
	for n := range count {
		r := &request{n: n, tenant: tenantOf(n), key: fmt.Sprintf("request-%04d-of-the-tenant", n),
			collection: "statements", cancels: n%6 == 2}
		switch {
		case n%10 == 7:
			r.collection = "audits"
		case n%15 == 4:
			r.collection, r.cancels = "drafts", true
		case n%2 == 1:
			r.collection = "reports"
		}
		all = append(all, r)
	}
	return all
}

func tenantOf(n int) string { return fmt.Sprint("tenant-", n%tenants) }

// padOf is the part of a request's input that makes it large: some lie next to the record, in a part or in two.
func padOf(n int) string {
	size := 20
	switch {
	case n%25 == 12:
		size = 300 << 10
	case n%4 == 1:
		size = 6 << 10
	}
	b := make([]byte, size)
	random := rand.NewChaCha8([32]byte{byte(n), byte(n >> 8)})
	_, _ = random.Read(b) // never fails, by its documentation
	return base64.StdEncoding.EncodeToString(b)
}

// client is a sender's way to the service.
type client struct {
	*setup
	transport *idemhttp.Transport
	http      *http.Client
}

func (s *setup) client(over http.RoundTripper) *client {
	transport, err := idemhttp.NewTransport(over,
		&idemhttp.ClientOptions{MaxWait: 2 * time.Second, MaxBackoff: 500 * time.Millisecond})
	require.NoError(s.t, err)
	return &client{s, transport, &http.Client{Transport: transport}}
}

// heard is an answer, read to its end.
type heard struct {
	*http.Response
	body []byte
}

func (c *client) send(ctx context.Context, method, url, tenant string, body []byte) (*heard, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	token, err := c.issuer.Token("ophelia", map[string]any{"tenant": tenant}, time.Hour)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	if len(body) > 0 {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, err
	}
	return hear(res)
}

func hear(res *http.Response) (*heard, error) {
	defer res.Body.Close()
	body, err := io.ReadAll(res.Body)
	res.Body = io.NopCloser(bytes.NewReader(body))
	return &heard{res, body}, err
}

// code is a problem's, and whether the request may be sent again. The gateway's own answers have none.
func (h *heard) code() (code string, again bool) {
	var p idemhttp.Problem
	switch {
	case json.Unmarshal(h.body, &p) == nil && p.Code != "":
		return string(p.Code), p.Retryable
	case h.StatusCode >= 500:
		return "", true
	}
	return "", false
}

// until sends again until there is an answer, and not only a refusal to try.
func (c *client) until(ctx context.Context, method, url, tenant string, body []byte) (*heard, error) {
	for {
		h, err := c.send(ctx, method, url, tenant, body)
		if err == nil {
			if _, again := h.code(); !again {
				return h, nil
			}
			err = errors.New(h.Status + ": " + string(h.body))
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("%s %s: no answer: %w", method, url, err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// ask is one sending of a request, to the outcome.
func (c *client) ask(ctx context.Context, r *request, random *rand.Rand) error {
	body, err := json.Marshal(map[string]any{"n": r.n, "pad": padOf(r.n)})
	if err != nil {
		return err
	}
	h, err := c.until(idemhttp.WithKey(ctx, r.key), http.MethodPost, c.url+r.collection, r.tenant, body)
	if err != nil || h.StatusCode != http.StatusAccepted {
		return r.ended(h, err)
	}
	at, err := h.Location()
	if err != nil {
		return fmt.Errorf("request %d: a 202 without Location: %s", r.n, h.body)
	}
	if err := r.accepted(at.String()); err != nil {
		return err
	}
	// It is found from now on, and by no other tenant.
	look, err := c.until(ctx, http.MethodGet, at.String(), r.tenant, nil)
	if err != nil || look.StatusCode == http.StatusNotFound {
		return fmt.Errorf("request %d was accepted and is not found: %v, %w", r.n, look, err)
	}
	look, err = c.until(ctx, http.MethodGet, at.String(), tenantOf(r.n+1), nil)
	if err != nil || look.StatusCode != http.StatusNotFound {
		return fmt.Errorf("request %d is shown to a stranger: %v, %w", r.n, look, err)
	}
	if r.cancels {
		<-time.After(time.Duration(random.IntN(1500)) * time.Millisecond)
		reply, err := c.until(ctx, http.MethodDelete, at.String(), r.tenant, nil)
		if err != nil {
			return err
		}
		code, _ := reply.code()
		switch {
		case reply.StatusCode == http.StatusNoContent:
			r.mu.Lock()
			r.cancelled = true
			r.mu.Unlock()
		case code != string(idemhttp.CodeBegun):
			return fmt.Errorf("request %d: DELETE is answered with %s: %s", r.n, reply.Status, reply.body)
		}
	}
	for {
		res, err := c.transport.Await(ctx, h.Response)
		if ctx.Err() != nil {
			return fmt.Errorf("request %d: its status does not end: %w", r.n, err)
		}
		if err == nil {
			end, err := hear(res)
			if err == nil {
				if _, again := end.code(); !again {
					return r.ended(end, nil)
				}
			}
		}
		// The network has had its way with all attempts.
		if h, err = c.until(ctx, http.MethodGet, at.String(), r.tenant, nil); err != nil ||
			h.StatusCode != http.StatusAccepted {
			return r.ended(h, err)
		}
		h.Header.Set("Location", at.String())
	}
}

func (r *request) accepted(at string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.at == "" {
		r.at = at
	}
	if r.at != at {
		return fmt.Errorf("request %d is accepted twice: %s and %s", r.n, r.at, at)
	}
	return nil
}

func (r *request) ended(h *heard, err error) error {
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answers = append(r.answers, h.answer())
	return nil
}

// answer is what an outcome says.
func (h *heard) answer() string {
	code, _ := h.code()
	if code == "" {
		code = strings.TrimSpace(string(h.body))
	}
	return fmt.Sprint(h.StatusCode, " ", code)
}

// askAll lets all senders ask, a number of them at once.
func (s *setup) askAll(queue []*request, atOnce int, limit time.Duration) {
	s.t.Helper()
	c := s.client(s.clients)
	rig.Crowd(s.t, queue, atOnce, limit, func(n int) func(context.Context, *request) error {
		random := rand.New(rand.NewPCG(1, uint64(n)))
		return func(ctx context.Context, r *request) error { return c.ask(ctx, r, random) }
	})
}
