package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

// tourLines is how many lines the tour prints.
const tourLines = 45

// tour sends real requests through the gateway, and real messages through the queue,
// to the compiled functions.
func (s *stack) tour(ctx context.Context, say func(string, ...any)) []line {
	t := &tour{stack: s, client: &http.Client{}, run: time.Now().UnixNano(), reported: map[string]int{}}
	defer t.client.CloseIdleConnections()
	say("taking the tour; what follows a killed process waits %v for its lease", functionTimeout+idem.DefaultMargin)
	board := progress.Open(say)
	defer board.Close()
	t.step = board.Begin("taking the tour")
	t.basics(ctx)
	t.tenants(ctx)
	t.concurrent(ctx)
	t.statements(ctx)
	t.orders(ctx)
	t.kills(ctx)
	return t.lines
}

type tour struct {
	*stack
	client   *http.Client
	run      int64          // makes keys new on a table that was there before
	reported map[string]int // deliveries of watched messages that were reported
	lines    []line
	step     *progress.Step
}

// reply is an HTTP answer.
type reply struct {
	status   int
	replayed bool
	at       string // of the status of what was accepted
	body     []byte
	err      error
}

// say describes a reply in the tour's words.
func (r reply) say() string {
	if r.err != nil {
		return r.err.Error()
	}
	summary := "executed"
	if r.replayed {
		summary = "replayed"
	}
	var state struct{ State string }
	switch {
	case r.status == http.StatusNoContent:
		return fmt.Sprint(r.status)
	case r.status == http.StatusAccepted && json.Unmarshal(r.body, &state) == nil:
		summary = state.State
	case r.status >= 400:
		var problem struct{ Code, Message string }
		_ = json.Unmarshal(r.body, &problem)
		summary = problem.Code + problem.Message
	}
	return fmt.Sprintf("%d %s", r.status, summary)
}

// retryable reports whether the answer tells the client to send the same again.
func (r reply) retryable() bool {
	var problem struct{ Retryable bool }
	return r.err == nil && json.Unmarshal(r.body, &problem) == nil && problem.Retryable
}

func (t *tour) key(name string) string { return fmt.Sprintf("tour-%d-%s", t.run, name) }

func (t *tour) post(ctx context.Context, path, key, body string) reply {
	return t.postAs(ctx, defaultTenant, path, key, body)
}

// postAs sends a request with a tenant's token, or without one.
func (t *tour) postAs(ctx context.Context, tenant, path, key, body string) reply {
	return t.send(ctx, http.MethodPost, tenant, path, key, body)
}

// send sends a request. Like any client it repeats one that was refused because the store was too
// slow, so that the tour is right on a busy machine.
func (t *tour) send(ctx context.Context, method, tenant, path, key, body string) reply {
	for try := 1; ; try++ {
		r := t.sendOnce(ctx, method, tenant, path, key, body)
		if r.status != http.StatusServiceUnavailable || !r.retryable() || try == storeTries {
			return r
		}
		select {
		case <-ctx.Done():
			return r
		case <-time.After(time.Second): // the answer's Retry-After
		}
	}
}

// storeTries bounds how often the tour accepts a store that is too slow.
const storeTries = 5

func (t *tour) sendOnce(ctx context.Context, method, tenant, path, key, body string) reply {
	req, err := http.NewRequestWithContext(ctx, method, t.url+path, strings.NewReader(body))
	if err != nil {
		return reply{err: err}
	}
	if key != "" {
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Idempotency-Key", key)
	}
	if tenant != "" {
		token, err := t.issuer.Token(tenant, nil, tokenLifetime)
		if err != nil {
			return reply{err: err}
		}
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := t.client.Do(req)
	if err != nil {
		return reply{err: err}
	}
	defer res.Body.Close()
	r := reply{status: res.StatusCode, replayed: res.Header.Get("Idempotency-Replayed") == "true"}
	if at, err := res.Location(); err == nil {
		r.at = at.Path
	}
	r.body, r.err = io.ReadAll(res.Body)
	return r
}

func payment(reference string, amount int) string {
	return fmt.Sprintf(`{"reference": %q, "amount": %d, "currency": "EUR"}`, reference, amount)
}

// add records a line, with the calls and the time that fn takes.
func (t *tour) add(ctx context.Context, request, expected string, fn func() string) {
	if ctx.Err() != nil {
		return
	}
	calls, begun := t.wire.calls.Load(), time.Now()
	got := fn()
	t.lines = append(t.lines, line{request, expected, got, t.wire.calls.Load() - calls, time.Since(begun)})
	t.step.Note("%d of %d lines", len(t.lines), tourLines)
}

func (t *tour) basics(ctx context.Context) {
	key, ref := t.key("basics"), t.key("basics-ref")
	var first reply
	t.add(ctx, "first request", "201 executed", func() string {
		first = t.post(ctx, "/payments", key, payment(ref, 1250))
		return first.say()
	})
	t.add(ctx, "the same again", "201 replayed, same bytes", func() string {
		again := t.post(ctx, "/payments", key, payment(ref, 1250))
		return again.say() + t.same(first, again)
	})
	t.add(ctx, "the same, members in another order", "201 replayed, same bytes", func() string {
		again := t.post(ctx, "/payments", key, fmt.Sprintf(`{"currency":"EUR","amount":1250,"reference":%q}`, ref))
		return again.say() + t.same(first, again)
	})
	t.add(ctx, "same key, another amount", "422 idempotency_key_reused", func() string {
		return t.post(ctx, "/payments", key, payment(ref, 9999)).say()
	})
	t.add(ctx, "charges at the provider", "1", func() string { return fmt.Sprint(t.provider.times(ref)) })
}

// tenants sends requests of two tenants, which only their tokens tell apart.
func (t *tour) tenants(ctx context.Context) {
	key, ref := t.key("tenants"), t.key("tenants-ref")
	t.add(ctx, "without a token", "401 Unauthorized", func() string {
		return t.postAs(ctx, "", "/payments", key, payment(ref, 300)).say()
	})
	for _, tenant := range []string{defaultTenant, "globex"} {
		t.add(ctx, "one key, tenant "+tenant, "201 executed", func() string {
			return t.postAs(ctx, tenant, "/payments", key, payment(ref, 300)).say()
		})
	}
	t.add(ctx, "charges at the provider, under two keys", "2", func() string { return fmt.Sprint(t.provider.times(ref)) })
}

func (t *tour) same(a, b reply) string {
	if bytes.Equal(a.body, b.body) {
		return ", same bytes"
	}
	return ", OTHER bytes"
}

// concurrent sends 50 requests at once, to several processes.
func (t *tour) concurrent(ctx context.Context) {
	key, ref := t.key("concurrent"), t.key("concurrent-ref")
	t.add(ctx, "50 at once", "1 executed, 49 replayed or sent back", func() string {
		replies := make([]reply, 50)
		var wg sync.WaitGroup
		for i := range replies {
			wg.Go(func() { replies[i] = t.post(ctx, "/payments", key, payment(ref, 700)) })
		}
		wg.Wait()
		executed, others, odd := 0, 0, map[string]int{}
		for _, r := range replies {
			switch summary := r.say(); {
			case summary == "201 executed":
				executed++
			case summary == "201 replayed" || r.retryable():
				others++
			default:
				odd[summary]++
			}
		}
		got := fmt.Sprintf("%d executed, %d replayed or sent back", executed, others)
		if len(odd) > 0 {
			got += ", " + listed(odd)
		}
		return got
	})
	t.add(ctx, "charges at the provider", "1", func() string { return fmt.Sprint(t.provider.times(ref)) })
}
