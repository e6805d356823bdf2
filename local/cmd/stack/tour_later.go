package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"
)

// statements has statements accepted and made, and cancels one. The relay is paused, so that
// no worker comes before the tour has looked.
func (t *tour) statements(ctx context.Context) {
	large := &victim{path: "/statements", key: t.key("statement"), ref: t.key("statement-ref")}
	unwanted := &victim{path: "/statements", key: t.key("unwanted"), ref: t.key("unwanted-ref")}
	release := t.relaying.close()
	var first, other, made reply
	t.add(ctx, "a statement of 450 KB, for later", "202 pending", func() string {
		first = t.order(ctx, large, 450)
		return first.say()
	})
	t.add(ctx, "the same again", "202 pending, same place", func() string {
		again := t.order(ctx, large, 450)
		if again.at != first.at {
			return again.say() + ", OTHER place"
		}
		return again.say() + ", same place"
	})
	t.add(ctx, "its status", "202 pending", func() string { return t.status(ctx, first).say() })
	t.add(ctx, "its status, as tenant globex", "404 status_not_found", func() string {
		return t.send(ctx, http.MethodGet, "globex", first.at, "", "").say()
	})
	t.add(ctx, "another one, and cancelled", "202 pending, 204", func() string {
		other = t.order(ctx, unwanted, 1)
		return other.say() + ", " + t.send(ctx, http.MethodDelete, defaultTenant, other.at, "", "").say()
	})
	release()
	t.add(ctx, "the worker makes it", "executed, acknowledged", func() string { return t.delivery(ctx, t.work, large.record()) })
	t.add(ctx, "its status", "200 executed, 450 KB", func() string {
		made = t.status(ctx, first)
		var of struct{ Text string }
		if err := json.Unmarshal(made.body, &of); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s, %d KB", made.say(), len(of.Text)>>10)
	})
	t.add(ctx, "the same request again", "200 replayed, same bytes", func() string {
		again := t.order(ctx, large, 450)
		return again.say() + t.same(made, again)
	})
	t.add(ctx, "the cancelled one's message", "failed, acknowledged", func() string { return t.delivery(ctx, t.work, unwanted.record()) })
	t.add(ctx, "the cancelled one's status", "409 request_cancelled", func() string { return t.status(ctx, other).say() })
	t.add(ctx, "reports at the provider", "1 and 0", func() string {
		return fmt.Sprintf("%d and %d", t.provider.times(large.ref), t.provider.times(unwanted.ref))
	})
}

// order asks for a statement.
func (t *tour) order(ctx context.Context, v *victim, kilobytes int) reply {
	return t.post(ctx, v.path, v.key, fmt.Sprintf(`{"reference": %q, "kilobytes": %d}`, v.ref, kilobytes))
}

func (t *tour) status(ctx context.Context, accepted reply) reply {
	return t.send(ctx, http.MethodGet, defaultTenant, accepted.at, "", "")
}

// record is the id of the record of a statement, which its message has.
func (v *victim) record() string { return statement.Key(defaultTenant, v.key).ID() }

// killWorker has a statement accepted, waits until its worker reads the report, and kills the
// worker's process. A worker for which the store was too slow gets the message again.
func (t *tour) killWorker(ctx context.Context, v *victim) (accepted reply, said string) {
	release := t.provider.hold(v.ref)
	defer release()
	accepted = t.order(ctx, v, 1)
	if accepted.status != http.StatusAccepted {
		return accepted, accepted.say()
	}
	read := func() bool {
		if n := len(t.work.delivered.of(v.record())); n > t.reported[v.record()] {
			t.reported[v.record()] = n
			if t.work.redeliver(ctx, v.record()) != nil {
				return false
			}
		}
		return t.provider.times(readOf(v.ref)) > 0
	}
	if !await(ctx, read) {
		return accepted, "no worker has come"
	}
	if err := t.killIn(statements, v.record()); err != nil {
		return accepted, err.Error()
	}
	v.killed = time.Now()
	d, ok := t.next(ctx, t.work, v.record())
	if !ok || d.Result.Error == nil || len(d.Returned) != 1 {
		return accepted, "it has ended before it was killed"
	}
	return accepted, accepted.say() + ", its message stays"
}

// takenOver makes the message of a killed worker visible again.
func (t *tour) takenOver(ctx context.Context, v *victim) string {
	if err := t.work.redeliver(ctx, v.record()); err != nil {
		return err.Error()
	}
	return t.delivery(ctx, t.work, v.record())
}
