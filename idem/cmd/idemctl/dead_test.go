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
	all  []*outbox.Entry
	gone string // the id of one that somebody else has requeued
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
	if e.ID == d.gone {
		return fmt.Errorf("%w: it is no dead letter", protocol.ErrNotFound)
	}
	d.all = slices.DeleteFunc(d.all, func(x *outbox.Entry) bool { return x.ID == e.ID })
	return nil
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
