package main

import (
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/idem-go/idempotency/local/cmd/examples"
)

// later has statements accepted and made, and cancels one. The relay is paused, so that
// no worker comes before the tour has looked.
func (t *tour) later() {
	large, unwanted := t.request("/statements", "statement"), t.request("/statements", "unwanted")
	resume := t.Pause(t.relay)
	var first, other, made examples.Reply
	t.add("a statement of 450 KB, for later", "202 pending", func() string {
		first = t.order(large, 450)
		return first.String()
	})
	t.add("the same again", "202 pending, same place", func() string {
		again := t.order(large, 450)
		if again.At != first.At {
			return again.String() + ", OTHER place"
		}
		return again.String() + ", same place"
	})
	t.add("its status", "202 pending", func() string { return t.status(first).String() })
	t.add("its status, as tenant globex", "404 status_not_found", func() string {
		return t.send(http.MethodGet, "globex", first.At, "", "").String()
	})
	t.add("another one, and cancelled", "202 pending, 204", func() string {
		other = t.order(unwanted, 1)
		return other.String() + ", " + t.send(http.MethodDelete, defaultTenant, other.At, "", "").String()
	})
	resume()
	t.add("the worker makes it", "acknowledged", func() string { return t.delivery(t.statements, large.record()) })
	t.add("its status", "200 executed, 450 KB", func() string {
		made = t.status(first)
		var of struct{ Text string }
		if err := json.Unmarshal(made.Body, &of); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%s, %d KB", made, len(of.Text)>>10)
	})
	t.add("the same request again", "200 replayed, same bytes", func() string {
		return t.order(large, 450).Likewise(made)
	})
	t.add("the cancelled one's message", "acknowledged", func() string {
		return t.delivery(t.statements, unwanted.record())
	})
	t.add("the cancelled one's status", "409 request_cancelled", func() string { return t.status(other).String() })
	t.add("reports at the provider", "1 and 0", func() string {
		return fmt.Sprintf("%d and %d", t.provider.times(large.ref), t.provider.times(unwanted.ref))
	})
}

// order asks for a statement.
func (t *tour) order(r request, kilobytes int) examples.Reply {
	body := fmt.Sprintf(`{"reference": %q, "kilobytes": %d}`, r.ref, kilobytes)
	return t.send(http.MethodPost, defaultTenant, r.path, r.key, body)
}

func (t *tour) status(accepted examples.Reply) examples.Reply {
	return t.send(http.MethodGet, defaultTenant, accepted.At, "", "")
}

// record is the id of the record of a statement, which its message has.
func (r request) record() string { return examples.Statement.Key(defaultTenant, r.key).ID() }

// killWorker has a statement accepted, waits until its worker reads the report, and kills the
// worker's process. A worker for which the store was too slow gets the message again.
func (t *tour) killWorker(r request) (accepted examples.Reply, got string) {
	release := t.provider.hold(readOf(r.ref))
	defer release()
	accepted = t.order(r, 1)
	read := t.await(func() bool {
		if n := len(t.statements.of(r.record())); n > t.seen[r.record()] {
			t.seen[r.record()] = n
			_ = t.statements.redeliver(t.ctx, r.record()) // its visibility time-out does it too
		}
		return t.provider.times(readOf(r.ref)) > 0
	})
	if !read {
		return accepted, accepted.String() + ", no worker has come"
	}
	if err := t.killIn(statements, r.record()); err != nil {
		return accepted, err.Error()
	}
	d, ok := t.next(t.statements, r.record())
	if !ok || d.Result.Error == nil || len(d.Returned) != 1 {
		return accepted, "it has ended before it was killed"
	}
	return accepted, accepted.String() + ", its message stays"
}

// takenOver makes the message of a killed worker visible again.
func (t *tour) takenOver(r request) string {
	if err := t.statements.redeliver(t.ctx, r.record()); err != nil {
		return err.Error()
	}
	return t.delivery(t.statements, r.record())
}
