package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/sqs"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// refundOperation is the payments function's operation.
var refundOperation = idem.Operation{Name: "refund", Repeat: idem.NotRepeatable}

// kills lets handlers hang at the provider and kills their processes. They wait for their
// leases side by side. The sweep asks the provider about both refunds: it does not answer
// about the one whose client retries, which the sweep escalates.
func (t *tour) kills(ctx context.Context) {
	gone := &victim{name: "refund, client gone", path: "/refunds", key: t.key("gone"), ref: t.key("gone-ref")}
	charge := &victim{name: "repeatable", path: "/payments", key: t.key("kill-charge"), ref: t.key("kill-charge-ref")}
	refund := &victim{name: "not repeatable", path: "/refunds", key: t.key("kill-refund"), ref: t.key("kill-refund-ref")}
	made := &victim{path: "/statements", key: t.key("kill-statement"), ref: t.key("kill-statement-ref")}
	var accepted reply
	t.provider.silence(refund.ref)
	t.add(ctx, "statement: its worker killed", "202 pending, its message stays", func() (said string) {
		accepted, said = t.killWorker(ctx, made)
		return said
	})
	t.add(ctx, "statement: status within the lease", "202 in_progress", func() string { return t.status(ctx, accepted).say() })
	t.add(ctx, gone.name+": killed", "500 Internal Server Error", func() string { return t.kill(ctx, gone) })
	for _, v := range []*victim{charge, refund} {
		t.add(ctx, v.name+": killed in the handler", "500 Internal Server Error", func() string { return t.kill(ctx, v) })
		t.add(ctx, v.name+": retry within the lease", "409 idempotency_key_in_progress", func() string { return t.retry(ctx, v).say() })
	}
	select {
	case <-ctx.Done():
		return
	case <-time.After(time.Until(refund.killed.Add(functionTimeout + idem.DefaultMargin + 200*time.Millisecond))):
	}
	t.add(ctx, charge.name+": retry after the lease", "201 executed", func() string { return t.retry(ctx, charge).say() })
	t.add(ctx, refund.name+": retry after the lease", "409 outcome_unknown", func() string { return t.retry(ctx, refund).say() })
	t.add(ctx, "statement: another worker", "executed, acknowledged", func() string { return t.takenOver(ctx, made) })
	t.add(ctx, "statement: its status", "200 executed", func() string { return t.status(ctx, accepted).say() })
	t.add(ctx, "statement: its report ordered, and read", "1 and 2", func() string {
		return fmt.Sprintf("%d and %d", t.provider.times(made.ref), t.provider.times(readOf(made.ref)))
	})
	t.add(ctx, gone.name+": after the sweep", "completed, as the provider says", func() string { return t.swept(ctx, gone) })
	t.add(ctx, gone.name+": a late retry", "201 replayed, the provider's refund", func() string {
		again := t.retry(ctx, gone)
		if !strings.Contains(string(again.body), `"`+t.provider.refund(gone.ref)+`"`) {
			return again.say() + ", another refund"
		}
		return again.say() + ", the provider's refund"
	})
	t.add(ctx, refund.name+": the sweep escalates", "1 message to operators, still unknown", func() string { return t.escalated(ctx, refund) })
	t.add(ctx, refund.name+": retry after that", "409 outcome_unknown", func() string { return t.retry(ctx, refund).say() })
	t.add(ctx, "requests at the provider", "charge: 2, one key; refunds: 1 and 1", func() string {
		return fmt.Sprintf("charge: %d, one key; refunds: %d and %d", t.provider.times(charge.ref), t.provider.times(refund.ref), t.provider.times(gone.ref))
	})
}

func (t *tour) retry(ctx context.Context, v *victim) reply {
	return t.post(ctx, v.path, v.key, payment(v.ref, 100))
}

// swept waits until the victim's record has an outcome, and says which.
func (t *tour) swept(ctx context.Context, v *victim) string {
	rec, err := t.record(ctx, v, func(rec *idem.Record) bool { return rec.State != idem.InProgress && rec.State != idem.Unknown })
	switch {
	case err != nil:
		return err.Error()
	case rec == nil:
		return "no record"
	case rec.Resolved && rec.Ref == t.provider.refund(v.ref):
		return string(rec.State) + ", as the provider says"
	}
	return string(rec.State)
}

// escalated waits until the sweep has escalated the victim's question, and takes what
// they got about it.
func (t *tour) escalated(ctx context.Context, v *victim) string {
	rec, err := t.record(ctx, v, func(rec *idem.Record) bool {
		return !rec.EscalatedAt.IsZero() || rec.State != idem.InProgress && rec.State != idem.Unknown
	})
	switch {
	case err != nil:
		return err.Error()
	case rec == nil:
		return "no record"
	case rec.EscalatedAt.IsZero():
		return string(rec.State)
	}
	received, err := t.takeEscalation(ctx, rec.ID)
	if err != nil {
		return err.Error()
	}
	return fmt.Sprintf("%d message to operators, still %s", received, rec.State)
}

// takeEscalation removes the messages about a record from the escalation queue, and counts it. What
// they got about others, such as those of an earlier run, becomes visible again.
func (t *tour) takeEscalation(ctx context.Context, id string) (int, error) {
	for received := 0; ; {
		out, err := t.escalations.Client.ReceiveMessage(ctx, &sqs.ReceiveMessageInput{QueueUrl: &t.escalations.URL, MaxNumberOfMessages: 10})
		if err != nil || len(out.Messages) == 0 {
			return received, err
		}
		for _, m := range out.Messages {
			var g reconcile.Escalation
			if err := json.Unmarshal([]byte(*m.Body), &g); err != nil {
				return received, err
			}
			if g.Record != id {
				continue
			}
			received++
			if _, err := t.escalations.Client.DeleteMessage(ctx, &sqs.DeleteMessageInput{QueueUrl: &t.escalations.URL, ReceiptHandle: m.ReceiptHandle}); err != nil {
				return received, err
			}
		}
	}
}

// record waits until the victim's record has the state, or is deleted.
func (t *tour) record(ctx context.Context, v *victim, until func(*idem.Record) bool) (rec *idem.Record, err error) {
	client, err := newDynamoDB(t.db.Endpoint())
	if err != nil {
		return nil, err
	}
	store, err := dynamostore.New(client, recordsTable, nil)
	if err != nil {
		return nil, err
	}
	await(ctx, func() bool {
		rec, err = store.Get(ctx, refundOperation.Key(defaultTenant, v.key).ID())
		return err != nil || rec == nil || until(rec)
	})
	return rec, err
}

type victim struct {
	name, path, key, ref string
	killed               time.Time
}

// kill sends a request, waits until its handler hangs at the provider, and kills
// the process that runs it.
func (t *tour) kill(ctx context.Context, v *victim) string {
	release := t.provider.hold(v.ref)
	defer release()
	answer := make(chan reply, 1)
	go func() { answer <- t.post(ctx, v.path, v.key, payment(v.ref, 100)) }()
	for t.provider.times(v.ref) == 0 {
		select {
		case r := <-answer:
			return "answered before it was killed: " + r.say()
		case <-ctx.Done():
			return ctx.Err().Error()
		case <-time.After(5 * time.Millisecond):
		}
	}
	if err := t.killIn(payments, v.key); err != nil {
		return err.Error()
	}
	v.killed = time.Now()
	return (<-answer).say()
}

// killIn kills the process of a function that has an event with the text.
func (t *tour) killIn(function, text string) error {
	for _, f := range t.pools[function].InFlight() {
		if bytes.Contains(f.Payload, []byte(text)) {
			if err := t.pools[function].Kill(f.PID); err != nil {
				return err
			}
		}
	}
	return nil
}
