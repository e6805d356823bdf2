package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/local/cmd/examples"
	"github.com/idem-go/idempotency/local/cmd/progress"
)

const (
	// tourLines is how many lines the tour prints.
	tourLines = 45
	// patience is for what takes milliseconds on an idle machine.
	patience = 15 * time.Second
)

// tour sends real requests through the gateway, and real messages through the queue,
// to the compiled functions.
func (s *stack) tour(ctx context.Context, say func(string, ...any)) []line {
	t := &tour{stack: s, ctx: ctx, client: &http.Client{}, run: time.Now().UnixNano(), seen: map[string]int{}}
	defer t.client.CloseIdleConnections()
	say("taking the tour; what follows a killed process waits %v for its lease", functionTimeout+idem.DefaultMargin)
	board := progress.Open(say)
	defer board.Close()
	t.step = board.Begin("taking the tour")
	t.basics()
	t.tenants()
	t.concurrent()
	t.later()
	t.queue()
	t.kills()
	return t.lines
}

type tour struct {
	*stack
	ctx    context.Context
	client *http.Client
	run    int64          // makes keys new on a table that was there before
	seen   map[string]int // deliveries of a message that the tour has looked at
	lines  []line
	step   *progress.Step
}

// add records a line, with the calls and the time that fn takes.
func (t *tour) add(request, expected string, fn func() string) {
	if t.ctx.Err() != nil {
		return
	}
	calls, begun := t.calls.Load(), time.Now()
	got := fn()
	t.lines = append(t.lines, line{request, expected, got, t.calls.Load() - calls, time.Since(begun)})
	t.step.Note("%d of %d lines", len(t.lines), tourLines)
}

// await asks until the answer is there or patience is over.
func (t *tour) await(done func() bool) bool {
	ctx, cancel := context.WithTimeout(t.ctx, patience)
	defer cancel()
	for !done() {
		if smithytime.SleepWithContext(ctx, 5*time.Millisecond) != nil {
			return false
		}
	}
	return true
}

// request is what the tour sends under a key, and sends again.
type request struct {
	path, key, ref string
}

func (t *tour) request(path, name string) request {
	key := fmt.Sprintf("tour-%d-%s", t.run, name)
	return request{path, key, key + "-ref"}
}

// pay asks for a payment or a refund.
func (t *tour) pay(tenant string, r request, amount int) examples.Reply {
	body := fmt.Sprintf(`{"reference": %q, "amount": %d, "currency": "EUR"}`, r.ref, amount)
	return t.send(http.MethodPost, tenant, r.path, r.key, body)
}

// send sends a request, with a tenant's token or without one.
func (t *tour) send(method, tenant, path, key, body string) examples.Reply {
	return examples.Request{Method: method, URL: t.url + path, Key: key, Body: body}.Send(t.ctx, t.client,
		func(r *http.Request, _ string) error {
			if tenant == "" {
				return nil
			}
			token, err := t.Issuer.Token(tenant, nil, tokenLifetime)
			r.Header.Set("Authorization", "Bearer "+token)
			return err
		})
}

// charges adds a line with the number of requests at the provider.
func (t *tour) charges(what, expected string, r request) {
	t.add(what, expected, func() string { return fmt.Sprint(t.provider.times(r.ref)) })
}

func (t *tour) basics() {
	r := t.request("/payments", "basics")
	var first examples.Reply
	t.add("first request", "201 executed", func() string {
		first = t.pay(defaultTenant, r, 1250)
		return first.String()
	})
	t.add("the same again", "201 replayed, same bytes", func() string {
		return t.pay(defaultTenant, r, 1250).Likewise(first)
	})
	t.add("the same, members in another order", "201 replayed, same bytes", func() string {
		body := fmt.Sprintf(`{"currency":"EUR","amount":1250,"reference":%q}`, r.ref)
		return t.send(http.MethodPost, defaultTenant, r.path, r.key, body).Likewise(first)
	})
	t.add("same key, another amount", "422 idempotency_key_reused", func() string {
		return t.pay(defaultTenant, r, 9999).String()
	})
	t.charges("charges at the provider", "1", r)
}

// tenants sends requests of two tenants, which only their tokens tell apart.
func (t *tour) tenants() {
	r := t.request("/payments", "tenants")
	t.add("without a token", "401 Unauthorized", func() string { return t.pay("", r, 300).String() })
	for _, tenant := range []string{defaultTenant, "globex"} {
		t.add("one key, tenant "+tenant, "201 executed", func() string { return t.pay(tenant, r, 300).String() })
	}
	t.charges("charges at the provider, under two keys", "2", r)
}

// retryable reports whether the answer tells the client to send the same again.
func retryable(r examples.Reply) bool {
	var problem struct{ Retryable bool }
	return json.Unmarshal(r.Body, &problem) == nil && problem.Retryable
}

// concurrent sends 50 requests at once, to several processes.
func (t *tour) concurrent() {
	r := t.request("/payments", "concurrent")
	t.add("50 at once", "1 executed, 49 replayed or sent back", func() string {
		replies := make([]examples.Reply, 50)
		var wg sync.WaitGroup
		for i := range replies {
			wg.Go(func() { replies[i] = t.pay(defaultTenant, r, 700) })
		}
		wg.Wait()
		executed, others := 0, 0
		for _, r := range replies {
			switch {
			case r.String() == "201 executed":
				executed++
			case r.String() == "201 replayed" || retryable(r):
				others++
			default:
				return r.String()
			}
		}
		return fmt.Sprintf("%d executed, %d replayed or sent back", executed, others)
	})
	t.charges("charges at the provider", "1", r)
}

// line is one request of the tour: what was expected and what came.
type line struct {
	request, expected, got string
	calls                  int64 // DynamoDB calls
	took                   time.Duration
}

// pageWidth is the table's width, in columns.
const pageWidth = 100

// errDiffers says that a line of the tour differs from the expected one.
var errDiffers = errors.New("the tour found a difference; see the lines marked NO")

// printLines prints the results. If a line differs, the expected value is below it in full, and the
// error is errDiffers.
func printLines(out io.Writer, lines []line) (err error) {
	var b strings.Builder
	const row = "%-2s  %-39s  %-37s  %5v  %9v\n"
	fmt.Fprintf(&b, "\n"+row, "", "request", "what came", "calls", "time")
	b.WriteString(strings.Repeat("─", pageWidth) + "\n")
	for _, l := range lines {
		result := "ok"
		if l.got != l.expected {
			result, err = "NO", errDiffers
		}
		fmt.Fprintf(&b, row, result, shorten(l.request, 39), shorten(l.got, 37), l.calls, l.took.Round(100*time.Microsecond))
		if l.got != l.expected {
			fmt.Fprintf(&b, "    expected:  %s\n    got:       %s\n", l.expected, l.got)
		}
	}
	b.WriteString("calls: what the request cost in calls to DynamoDB\n")
	_, failed := io.WriteString(out, b.String())
	return cmp.Or(failed, err)
}

// shorten cuts a text for one line of a table.
func shorten(s string, limit int) string {
	s = strings.Join(strings.Fields(s), " ")
	if r := []rune(s); len(r) > limit {
		return string(r[:limit-1]) + "…"
	}
	return s
}
