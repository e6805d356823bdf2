package main

import (
	"context"
	"fmt"
	"slices"

	"github.com/idem-go/idempotency/idem/internal/view"
	"github.com/idem-go/idempotency/idem/outbox"
	"github.com/idem-go/idempotency/idem/reconcile"
)

// messages are a page of those of the outbox that a record's operation has published.
func (s *session) messages(ctx context.Context, id, page string) (all []letter, next string, err error) {
	entries, next, err := s.records.Messages(ctx, id, page)
	if err != nil {
		return nil, "", fmt.Errorf("its messages cannot be read: %w", err)
	}
	for _, e := range entries {
		all = append(all, letterOf(e))
	}
	return all, next, nil
}

// published finds messages of a record by their ids.
func (s *session) published(ctx context.Context, id string, names []string) (map[string]letter, error) {
	found := map[string]letter{}
	for page := ""; ; {
		all, next, err := s.messages(ctx, id, page)
		if err != nil {
			return nil, err
		}
		for _, l := range all {
			if slices.Contains(names, l.ID) {
				found[l.ID] = l
			}
		}
		if page = next; page == "" {
			return found, nil
		}
	}
}

// sent says when the message was sent, and under which id of the service; empty if it was not.
func (s *session) sent(m view.Message) string {
	switch {
	case !m.SentAt.IsZero() && m.SentID != "":
		return "sent " + when(m.SentAt, s.now()) + " as " + line(m.SentID)
	case !m.SentAt.IsZero():
		return "sent " + when(m.SentAt, s.now())
	case m.SentID != "":
		return "sent before as " + line(m.SentID)
	}
	return ""
}

// showMessages writes where the messages of a record stand.
func (s *session) showMessages(all []letter, more bool) {
	name := "Messages"
	for _, m := range all {
		text := s.sent(m.Message)
		if m.State != outbox.Dispatched {
			text = line(m.Text())
			if sent := s.sent(m.Message); sent != "" {
				text += ", " + sent
			}
		}
		s.field(name, "%s to %s: %s", line(m.ID), line(m.Destination), text)
		name = ""
	}
	if more {
		s.field(name, "and more, which are not shown")
	}
}

// resendCmd is for messages that were sent; dead requeue is for those that were not.
type resendCmd struct {
	recordFlags
	Message []string `required:"" placeholder:"ID" help:"The messages, by their ids as show has them."`
	whyFlags
	Seen string `placeholder:"SEEN" help:"Instead of an answer at a terminal: what --dry-run has printed."`
}

func (c *resendCmd) Run(ctx context.Context, s *session) error {
	id, key, err := c.key()
	if err != nil {
		return err
	}
	if id == "" {
		id = key.ID()
	}
	by, err := s.by(ctx, c.whyFlags)
	if err != nil {
		return err
	}
	all, err := s.published(ctx, id, c.Message)
	if err != nil {
		return err
	}
	var found []letter
	for i, name := range c.Message {
		if slices.Contains(c.Message[:i], name) {
			continue
		}
		l, ok := all[name]
		switch again := l.SentAt.Add(reconcile.ResendAfter); {
		case !ok:
			return fmt.Errorf("the record has no message %s: look with idemctl show; one that was sent is deleted a day later",
				line(name))
		case l.Unreadable != "":
			return fmt.Errorf("message %s cannot be read, and nothing was changed: %s", line(name), line(l.Unreadable))
		case l.State != outbox.Dispatched:
			return fmt.Errorf("message %s is still to be sent, and nothing was changed: the relay sends what waits, and a dead "+
				"letter is sent again with dead requeue", line(name))
		case s.now().Before(again):
			return fmt.Errorf("message %s was sent a moment ago, and nothing was changed: a FIFO queue or topic would drop it; "+
				"try again at %s", line(name), when(again, s.now()))
		}
		found = append(found, l)
	}
	return s.requeue(ctx, found, by, c.whyFlags, c.Seen)
}
