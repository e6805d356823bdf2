package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"

	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/reconcile"
)

type deadCmd struct {
	List    deadListCmd    `cmd:"" help:"List messages of the outbox that were given up, the oldest first."`
	Requeue deadRequeueCmd `cmd:"" help:"Have dead letters sent again, under the same ids."`
}

// letters lists dead letters of the outbox: a *dynamostore.Outbox.
type letters interface {
	Dead(ctx context.Context, shard int, cursor string) ([]*outbox.Entry, string, error)
}

// letterFlags say which dead letters.
type letterFlags struct {
	ID          []string `arg:"" optional:"" help:"Ids of messages."`
	Destination []string `placeholder:"NAME" help:"To these destinations only."`
	Limit       int      `default:"50" help:"At most so many."`
}

// letter is a message of the outbox as it is written as JSON.
type letter struct {
	view.Message
	// entry is without its body: a night's outage leaves more of them than there is memory.
	entry outbox.Entry
}

func letterOf(e *outbox.Entry) letter {
	l := letter{Message: view.MessageOf(e), entry: *e}
	l.entry.Body = nil
	return l
}

func (f *letterFlags) check() error { return checkLimit(f.Limit) }

// find lists the oldest dead letters; more says that there are more than the limit.
func (f *letterFlags) find(ctx context.Context, s *session) (found []letter, more bool, err error) {
	found = []letter{}
	oldest := func() {
		slices.SortStableFunc(found, func(a, b letter) int {
			return cmp.Or(a.Created.Compare(b.Created), cmp.Compare(a.ID, b.ID))
		})
		if len(found) > f.Limit {
			clear(found[f.Limit:])
			found, more = found[:f.Limit], true
		}
	}
	n, p := 0, s.progress()
	defer p.done()
	for shard := range outbox.Shards {
		for cursor := ""; ; {
			page, next, err := s.table.letters.Dead(ctx, shard, cursor)
			if err != nil {
				return nil, false, err
			}
			for _, e := range page {
				if (f.ID == nil || slices.Contains(f.ID, e.ID)) &&
					(f.Destination == nil || slices.Contains(f.Destination, e.Destination)) {
					found, n = append(found, letterOf(e)), n+1
				}
			}
			oldest()
			p.say("looked at shard %d of %d, found %s", shard+1, outbox.Shards, plural(n, "dead letter"))
			if cursor = next; cursor == "" {
				break
			}
		}
	}
	return found, more, nil
}

type deadListCmd struct{ letterFlags }

func (c *deadListCmd) Run(ctx context.Context, s *session) error {
	found, more, err := c.find(ctx, s)
	if err != nil {
		return err
	}
	err = s.print(found, func() { s.letters(found) })
	if more && err == nil {
		say(s.err, "There are more: raise --limit.")
	}
	return err
}

func (s *session) letters(all []letter) {
	if len(all) == 0 {
		fmt.Fprintln(s.out, "No such dead letters.")
	}
	for _, e := range all {
		tries := ""
		if e.State != outbox.Dispatched {
			tries = ", " + plural(e.Tries, "try")
		}
		size := ""
		if e.Size > 0 {
			size = ", " + plural(e.Size, "byte")
		}
		what := fmt.Sprintf("to %s%s%s, committed %s", line(e.Destination), size, tries, when(e.Created, s.now()))
		if e.Unreadable != "" {
			what = "unreadable: " + line(e.Unreadable)
		}
		fmt.Fprintln(s.out, line(e.ID))
		s.item(what)
		if sent := s.sent(e.Message); sent != "" {
			s.item(sent)
		}
		if e.Type != "" {
			s.item("type " + line(e.Type))
		}
		if e.Reason != "" {
			s.item("given up because: " + line(e.Reason))
		}
		s.item("record " + line(e.Record))
	}
}

type deadRequeueCmd struct {
	letterFlags
	whyFlags
	Seen string `placeholder:"SEEN" help:"Instead of an answer at a terminal: what --dry-run has printed."`
}

func (c *deadRequeueCmd) check() error {
	if c.ID == nil && c.Destination == nil {
		return misuse("name the messages by their ids, as dead list shows them, or by --destination")
	}
	return c.letterFlags.check()
}

// Run leaves a message as it is that is no longer the dead letter that was shown.
func (c *deadRequeueCmd) Run(ctx context.Context, s *session) error {
	by, err := s.by(ctx, c.whyFlags)
	if err != nil {
		return err
	}
	found, more, err := c.find(ctx, s)
	switch {
	case err != nil:
		return err
	case more:
		return fmt.Errorf("there are more than %s, and nothing was changed: raise --limit, or name them by their ids",
			plural(c.Limit, "dead letter"))
	case len(found) == 0:
		return errors.New("there are no such dead letters: look with dead list")
	}
	return s.requeue(ctx, found, by, c.whyFlags, c.Seen)
}

// requeue shows messages, asks, and has them sent again.
func (s *session) requeue(ctx context.Context, found []letter, by reconcile.Change, c whyFlags, given string) error {
	shown := s.aside()
	shown.letters(found)
	var of []string
	var todo []planned
	for _, e := range found {
		of = append(of, e.ID, strconv.Itoa(e.Tries), view.At(e.Created), e.Reason)
		if e.State == outbox.Dispatched {
			of = append(of, view.At(e.SentAt), e.SentID)
		}
		do := func(ctx context.Context, by reconcile.Change) error { return s.records.Requeue(ctx, &e.entry, by) }
		todo = append(todo, planned{changed: changed{ID: e.ID}, action: action{do: do}})
	}
	say(shown.out, "This will have the relay send %s again from its first try on. A consumer that has got one already "+
		"knows it by its id.", plural(len(found), "message"))
	shown.signed(by)
	if c.DryRun {
		shown.dryRun(of)
		return s.reported(requeued{Of: len(found), DryRun: true, Seen: seen(of)})
	}
	if err := s.confirm(ctx, "messages to send", len(found), of, given); err != nil {
		return err
	}
	done, _ := s.carryOutEach(ctx, todo, by)
	if err := s.reported(requeued{Requeued: len(done), Of: len(found)}); err != nil {
		return err
	}
	if left := len(found) - len(done); left > 0 {
		return fmt.Errorf("not requeued: %s", plural(left, "message"))
	}
	return nil
}

// requeued is what dead requeue and resend write as JSON.
type requeued struct {
	Requeued int    `json:"requeued"`
	Of       int    `json:"of"`
	DryRun   bool   `json:"dry_run,omitempty"`
	Seen     string `json:"seen,omitempty"`
}
