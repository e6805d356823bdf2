package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/protocol"
)

// deadLetters keeps dead letters: a page has one.
type deadLetters struct {
	all []*outbox.Entry
	// published are messages that transcripts show with their record.
	published []outbox.Entry
	requeued  string // the id of one that another operator has requeued
}

func (d *deadLetters) Dead(ctx context.Context, shard int, cursor string) ([]*outbox.Entry, string, error) {
	if err := ctx.Err(); err != nil {
		return nil, "", err
	}
	var mine []*outbox.Entry
	for i, e := range d.all {
		if i%outbox.Shards == shard {
			mine = append(mine, e)
		}
	}
	switch {
	case len(mine) == 0:
		return nil, "", nil
	case cursor == "" && len(mine) > 1:
		return mine[:1], "more", nil
	case cursor == "":
		return mine, "", nil
	}
	return mine[1:], "", nil
}

func (d *deadLetters) requeue(e *outbox.Entry) error {
	if e.Unreadable != nil {
		return e.Unreadable
	}
	if e.ID == d.requeued {
		return fmt.Errorf("%w: it is no dead letter", protocol.ErrNotFound)
	}
	d.all = slices.DeleteFunc(d.all, func(x *outbox.Entry) bool { return x.ID == e.ID })
	for i := range d.published {
		if d.published[i].ID == e.ID {
			d.published[i].State, d.published[i].SentAt = outbox.New, time.Time{}
		}
	}
	return nil
}

// of are the messages of a record.
func (d *deadLetters) of(record string) (all []*outbox.Entry) {
	for i := range d.published {
		if e := d.published[i]; e.Record == record {
			e.Body = nil
			all = append(all, &e)
		}
	}
	return all
}

// publish adds messages of a record: of the states that a message may be in, in this order.
func (d *deadLetters) publish(record string, at time.Time) {
	of := []outbox.Entry{
		{State: outbox.Dispatched, SentID: "a1b2c3d4-0000-4000-8000-000000000001", SentAt: at},
		{State: outbox.Dispatched, SentAt: at}, // by a service without ids
		{State: outbox.New},
		{State: outbox.Retrying, Tries: 2, Reason: "the queue does not exist"},
		{State: outbox.Dead, Tries: 10, Reason: "the queue does not exist"},
		{Unreadable: protocol.ErrRecordUnreadable},
	}
	for n, e := range of {
		e.Record, e.Number, e.Created = record, n, at.Add(-time.Second)
		e.Message = outbox.Message{ID: fmt.Sprintf("%08d-2222-8222-8222-222222222222", n), Destination: "orders",
			Type: "refund.made", Body: []byte(`{"secret":1}`)}
		d.published = append(d.published, e)
	}
}

func (b *rig) dead() *deadLetters {
	at := b.Clock.Now().Add(-3 * time.Hour)
	letter := func(id, destination, reason string, tries int) *outbox.Entry {
		at = at.Add(time.Minute)
		return &outbox.Entry{
			Record: refund.Key("acme", id).ID(), State: outbox.Dead, Created: at, Tries: tries, Reason: reason,
			Message: outbox.Message{ID: "0000000" + id[2:] + "-1111-8111-8111-111111111111", Destination: destination,
				Type: "refund.made", Body: []byte(`{"secret":1}`)},
		}
	}
	return &deadLetters{all: []*outbox.Entry{
		letter("r-1", "orders", "the queue does not exist", 10),
		letter("r-2", "mails", "rejected: InvalidMessageContents", 1),
		letter("r-3", "orders", "the queue does not exist", 10),
	}}
}

func TestDeadLettersAreListedInFullFromAllPages(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		d := &deadLetters{}
		for range 40 {
			d.all = append(d.all, b.dead().all...)
		}
		b.backend.letters = d
		_, out, _ := b.run("dead", "list", "--limit", "1000", "-o", "json")
		require.Equal(t, 120, len(regexp.MustCompile(`"id"`).FindAllString(out, -1)))
		require.NotContains(t, out, "secret")
		_, _, errs := b.run("dead", "list", "--limit", "5")
		require.Contains(t, errs, "There are more")
	})
}

func TestOfManyDeadLettersTheOldestAreKeptWithoutTheirBodies(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		flood := &deadLetters{} // of a night's outage: each shard has letters with bodies
		for i := range 3 * outbox.Shards {
			shard, id := i%outbox.Shards, fmt.Sprintf("%02d-%d", i%outbox.Shards, i/outbox.Shards)
			flood.all = append(flood.all, &outbox.Entry{
				Created: time.Unix(int64(1000-shard), 0),
				Message: outbox.Message{ID: id, Destination: "orders", Body: []byte("0123456789")},
			})
		}
		b.backend.letters = flood
		found, more, err := (&letterFlags{Limit: 4}).find(t.Context(), &session{terminal: &terminal{}, table: &b.backend})
		require.NoError(t, err)
		require.True(t, more)
		var ids []string
		for _, e := range found {
			ids = append(ids, e.ID)
			require.Equal(t, 10, e.Size)
			require.Nil(t, e.entry.Body)
		}
		last, before := fmt.Sprintf("%02d-", outbox.Shards-1), fmt.Sprintf("%02d-", outbox.Shards-2)
		require.Equal(t, []string{last + "0", last + "1", last + "2", before + "0"}, ids)
		require.LessOrEqual(t, cap(found), 16, "it grows with the limit and a page, not with the letters")
		_, out, _ := b.run("dead", "list", "--limit", "1", "-o", "json")
		require.Contains(t, out, `"size": 10`)
	})
}

// Of very many messages show has a page, and resend finds each.
func TestOfManyMessagesAPageIsShown(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		d, key := b.dead(), refund.Key("acme", "r-9")
		b.backend.letters = d
		b.happens("completed: refund/acme/r-9")
		for range 20 {
			d.publish(key.ID(), b.Clock.Now())
		}
		last := &d.published[len(d.published)-6]
		last.ID = "00000009-2222-8222-8222-222222222222"
		_, out, _ := b.run("show", key.ID())
		require.Contains(t, out, "and more, which are not shown")
		require.NotContains(t, out, last.ID)
		_, out, _ = b.run("show", key.ID(), "-o", "json")
		require.Contains(t, out, `"more_messages": true`)
		b.happens("6m later")
		_, out, errs := b.run("resend", key.ID(), "--message", last.ID, "--reason", "lost", "--dry-run")
		require.Contains(t, out+errs, last.ID+"\n  - to orders, committed")
	})
}

func TestResendNamesEachMessageOnce(t *testing.T) {
	withRig(t, func(t *testing.T, b *rig) {
		d, key := b.dead(), refund.Key("acme", "r-9")
		b.backend.letters = d
		b.happens("completed: refund/acme/r-9")
		d.publish(key.ID(), b.Clock.Now())
		b.happens("6m later")
		resend := func(ids ...string) string {
			args := []string{"resend", key.ID(), "--reason", "lost", "--dry-run", "-o", "json"}
			for _, id := range ids {
				args = append(args, "--message", id)
			}
			_, out, errs := b.run(args...)
			return out + errs
		}
		first, second := d.published[0].ID, d.published[1].ID
		require.Contains(t, resend(second, first, second), `"of": 2`)
		unread := resend(d.published[5].ID)
		require.Contains(t, unread, "cannot be read, and nothing was changed: idem: the record cannot be read")
		require.NotContains(t, unread, "still to be sent")
		require.Contains(t, resend(d.published[2].ID), "still to be sent")
	})
}
