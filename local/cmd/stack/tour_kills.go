package main

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"
	smithytime "github.com/aws/smithy-go/time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/local/cmd/examples"
)

// kills lets handlers hang at the provider and kills their processes. They wait for their
// leases together. The sweep asks the provider about both refunds: it does not answer
// about the one whose client retries, which the sweep escalates.
func (t *tour) kills() {
	left, asked := t.request("/refunds", "left"), t.request("/refunds", "kill-refund")
	charge, made := t.request("/payments", "kill-charge"), t.request("/statements", "kill-statement")
	var accepted examples.Reply
	t.provider.silence(asked.ref)
	t.add("statement: its worker killed", "202 pending, its message stays", func() (got string) {
		accepted, got = t.killWorker(made)
		return got
	})
	t.add("statement: status within the lease", "202 in_progress", func() string { return t.status(accepted).String() })
	retry := func(r request) func() string { return func() string { return t.pay(defaultTenant, r, 100).String() } }
	kill := func(name string, r request) {
		t.add(name, "500 Internal Server Error", func() string { return t.kill(r) })
	}
	kill("refund, client left: killed", left)
	kill("repeatable: killed in the handler", charge)
	t.add("repeatable: retry within the lease", "409 idempotency_key_in_progress", retry(charge))
	kill("not repeatable: killed in the handler", asked)
	killed := time.Now()
	t.add("not repeatable: retry within the lease", "409 idempotency_key_in_progress", retry(asked))
	over := killed.Add(functionTimeout + idem.DefaultMargin + 200*time.Millisecond)
	if smithytime.SleepWithContext(t.ctx, time.Until(over)) != nil {
		return
	}
	t.add("repeatable: retry after the lease", "201 executed", retry(charge))
	t.add("not repeatable: retry after the lease", "409 outcome_unknown", retry(asked))
	t.add("statement: another worker", "acknowledged", func() string { return t.takenOver(made) })
	t.add("statement: its status", "200 executed", func() string { return t.status(accepted).String() })
	t.add("statement: its report ordered, and read", "1 and 2", func() string {
		return fmt.Sprintf("%d and %d", t.provider.times(made.ref), t.provider.times(readOf(made.ref)))
	})
	t.add("refund, client left: after the sweep", "completed, as the provider says", func() string {
		return t.swept(left)
	})
	t.add("refund, client left: a late retry", "201 replayed, the provider's refund", func() string {
		again := t.pay(defaultTenant, left, 100)
		if !strings.Contains(string(again.Body), `"`+t.provider.idOf(left.ref)+`"`) {
			return again.String() + ", another refund"
		}
		return again.String() + ", the provider's refund"
	})
	t.add("not repeatable: the sweep escalates", "1 message to operators, still unknown", func() string {
		return t.escalated(asked)
	})
	t.add("not repeatable: retry after that", "409 outcome_unknown", retry(asked))
	t.add("requests at the provider", "charge: 2, one key; refunds: 1 and 1", func() string {
		times := t.provider.times
		return fmt.Sprintf("charge: %d, one key; refunds: %d and %d", times(charge.ref), times(asked.ref), times(left.ref))
	})
}

// swept waits until the refund's record has an outcome, and says which.
func (t *tour) swept(r request) string {
	rec, err := t.recordOf(r, func(rec *idem.Record) bool {
		return rec.State != idem.InProgress && rec.State != idem.Unknown
	})
	switch {
	case err != nil:
		return err.Error()
	case rec.Resolved && rec.Ref == t.provider.idOf(r.ref):
		return string(rec.State) + ", as the provider says"
	}
	return string(rec.State)
}

// escalated waits until the sweep has escalated the refund's question, and counts the messages about
// it. They become visible again.
func (t *tour) escalated(r request) string {
	rec, err := t.recordOf(r, func(rec *idem.Record) bool { return !rec.EscalatedAt.IsZero() })
	for messages := 0; err == nil; {
		var out *sqs.ReceiveMessageOutput
		in := &sqs.ReceiveMessageInput{QueueUrl: &t.escalations, MaxNumberOfMessages: 10}
		if out, err = t.orders.Client.ReceiveMessage(t.ctx, in); err == nil && len(out.Messages) == 0 {
			return fmt.Sprintf("%d message to operators, still %s", messages, rec.State)
		}
		for _, m := range out.Messages {
			if strings.Contains(*m.Body, rec.ID) {
				messages++
			}
		}
	}
	return err.Error()
}

// recordOf waits until the refund's record is as expected, or is deleted.
func (t *tour) recordOf(r request, until func(*idem.Record) bool) (rec *idem.Record, err error) {
	t.await(func() bool {
		rec, err = t.store.Get(t.ctx, examples.Refund.Key(defaultTenant, r.key).ID())
		return err != nil || rec == nil || until(rec)
	})
	if err == nil && rec == nil {
		err = errors.New("no record")
	}
	return rec, err
}

// kill sends a request, waits until its handler hangs at the provider, and kills
// the process that runs it.
func (t *tour) kill(r request) string {
	release := t.provider.hold(r.ref)
	defer release()
	answer := make(chan examples.Reply, 1)
	go func() { answer <- t.pay(defaultTenant, r, 100) }()
	for t.provider.times(r.ref) == 0 {
		select {
		case got := <-answer:
			return "answered before it was killed: " + got.String()
		case <-t.ctx.Done():
			return t.ctx.Err().Error()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := t.killIn(payments, r.key); err != nil {
		return err.Error()
	}
	return (<-answer).String()
}

// killIn kills the process of a function that has an event with the text.
func (t *tour) killIn(function, text string) error {
	pool := t.Pool(t.names[function])
	for _, f := range pool.InFlight() {
		if bytes.Contains(f.Payload, []byte(text)) {
			if err := pool.Kill(f.PID); err != nil {
				return err
			}
		}
	}
	return nil
}
