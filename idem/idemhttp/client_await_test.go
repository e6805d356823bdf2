package idemhttp

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

// order sends the laterService a request whose outcome takes a while.
func (b *laterService) order(c *trial) (*http.Response, error) {
	req, err := http.NewRequestWithContext(WithKey(b.Context(), testKey), "POST", b.server.URL+"/statements",
		strings.NewReader(june))
	require.NoError(b, err)
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Tenant", "blue")
	return c.Do(req)
}

// From the request to the outcome, whatever that is.
func TestAwaitFollowsARequestToItsOutcome(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Later, *Options)
		end    error
		status int
		body   string
	}{
		"done":    {status: 200, body: `{"Pages":3}`},
		"failed":  {end: idem.Permanent(errors.New("no such account")), status: 500, body: "operation_failed"},
		"unknown": {end: errors.New("time-out"), status: 409, body: "outcome_unknown"},
		"a resource": {change: func(l *Later, _ *Options) { l.ResultLocation = func([]byte) string { return "/own" } },
			status: 200, body: "own"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.change == nil {
				c.change = func(*Later, *Options) {}
			}
			b := newLaterService(t, memory(), c.change)
			client := newTrial(t, nil, nil)
			client.transport.wait = func(_ context.Context, d time.Duration) error {
				client.delays = append(client.delays, d)
				b.pass(d)
				if len(client.delays) == 5 {
					_ = b.work(c.end)
				}
				return nil
			}
			res, err := b.order(client)
			require.NoError(t, err)
			require.Equal(t, 202, res.StatusCode)
			res, err = client.transport.Await(t.Context(), res)
			require.NoError(t, err)
			body, err := io.ReadAll(res.Body)
			require.NoError(t, err)
			require.NoError(t, res.Body.Close())
			require.Equal(t, c.status, res.StatusCode)
			require.Contains(t, string(body), c.body)
			require.Len(t, client.delays, 5)
			for i := range client.delays[1:] {
				require.Greater(t, client.delays[i+1], client.delays[i])
			}

			// The same request again has the outcome at once, and there is nothing to follow.
			res, err = b.order(client)
			require.NoError(t, err)
			same, err := client.transport.Await(t.Context(), res)
			require.NoError(t, err)
			require.Same(t, res, same)
			require.Equal(t, c.status, res.StatusCode)
			require.NoError(t, res.Body.Close())
		})
	}
}

// The answers of a service that is slow, and not always there.
func TestAwaitKeepsAskingAndKeepsSecrets(t *testing.T) {
	s := serving(t,
		status(202, "Location", "jobs/7", "Retry-After", "7"),
		status(503), status(502),
		status(202, "Retry-After", "100000"),
		status(200),
	)
	c := newTrial(t, nil, &ClientOptions{FirstSentHeader: "First-Sent"})
	req := request(t, "POST", s.URL+"/prod/jobs", `{}`)
	req.Header.Set("Authorization", "Bearer mine")
	req.Header.Set("If-Match", "x")
	res, err := c.Do(req)
	require.NoError(t, err)
	res, err = c.transport.Await(t.Context(), res)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Equal(t, 200, res.StatusCode)
	got := s.requests()
	require.Len(t, got, 5)
	for _, r := range got[1:] {
		require.Equal(t, "GET", r.method)
		require.Equal(t, "/prod/jobs/7", r.path)
		require.Equal(t, "Bearer mine", r.header.Get("Authorization"))
		for _, name := range []string{DefaultKeyHeader, "First-Sent", "Content-Type", "If-Match"} {
			require.Empty(t, r.header.Get(name), name)
		}
		require.Empty(t, r.body)
	}
	require.Equal(t, []time.Duration{
		7*time.Second + DefaultBackoff, DefaultBackoff, 2 * DefaultBackoff, DefaultMaxWait + 2*DefaultBackoff,
	}, c.delays)

	// Another host gets none of the request's headers.
	other := serving(t, status(200))
	s = serving(t, status(202, "Location", strings.Replace(other.URL, "127.0.0.1", "localhost", 1)))
	req = request(t, "POST", s.URL, `{}`)
	req.Header.Set("X-Api-Key", "mine")
	res, err = c.Do(req)
	require.NoError(t, err)
	res, err = c.transport.Await(t.Context(), res)
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Empty(t, other.requests()[0].header.Get("X-Api-Key"))
}

// due is a context that has a deadline by the trial's clock.
type due struct {
	context.Context
	at time.Time
}

func (u due) Deadline() (time.Time, bool) { return u.at, true }

func TestAwaitEndsInTime(t *testing.T) {
	accepted := status(202, "Location", "/jobs/7", "Retry-After", "10")
	s := serving(t, accepted)
	c := newTrial(t, nil, nil)
	send := func() *http.Response {
		res, err := c.Do(request(t, "POST", s.URL+"/jobs", `{}`))
		require.NoError(t, err)
		return res
	}
	var late *SendError
	first := send()
	_, err := c.transport.Await(due{t.Context(), noon.Add(35 * time.Second)}, first)
	require.ErrorIs(t, err, ErrStillRunning)
	require.ErrorAs(t, err, &late)
	require.Equal(t, s.URL+"/jobs/7", late.Location)
	require.Equal(t, KeyOf(first), late.Key)
	require.NotEmpty(t, late.Key)
	require.Equal(t, 202, late.Status)
	require.Less(t, c.at, noon.Add(35*time.Second))

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = c.transport.Await(ctx, send())
	require.ErrorIs(t, err, context.Canceled)

	s.mu.Lock()
	s.got, s.answers = nil, []http.HandlerFunc{accepted, drop}
	s.mu.Unlock()
	_, err = c.transport.Await(t.Context(), send())
	require.ErrorAs(t, err, &late)
	require.Equal(t, s.URL+"/jobs/7", late.Location)
	require.NotErrorIs(t, err, ErrStillRunning)

	for _, wrong := range []string{"http://[", "gopher://example.com/"} {
		s.mu.Lock()
		s.got, s.answers = nil, []http.HandlerFunc{status(202, "Location", wrong)}
		s.mu.Unlock()
		_, err = c.transport.Await(t.Context(), send())
		require.ErrorAs(t, err, &late, wrong)
	}
}

// Other answers are nothing to wait for.
func TestAwaitReturnsOtherAnswers(t *testing.T) {
	c := newTrial(t, nil, nil)
	s := serving(t, status(202), status(201, "Location", "/jobs/7"), status(404))
	for range 3 {
		res, err := c.Do(request(t, "POST", s.URL+"/jobs", `{}`))
		require.NoError(t, err)
		same, err := c.transport.Await(t.Context(), res)
		require.NoError(t, err)
		require.Same(t, res, same)
		require.NoError(t, res.Body.Close())
	}
	require.Len(t, s.requests(), 3)
}
