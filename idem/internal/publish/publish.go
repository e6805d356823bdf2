// Package publish has the messages of the outbox that an operation publishes, until a store commits them with the
// operation's outcome.
package publish

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/idem-go/idempotency/idem/outbox"
)

// maxName is the longest name of a message, in bytes, as of a step.
const maxName = 100

// List are the messages of one operation. It is for one goroutine at a time.
type List []Message

// Message is what is published under a name.
type Message struct {
	Name string
	outbox.Message
}

// Add appends a copy of a message. The error says what is wrong with it.
func (l *List) Add(name string, m outbox.Message) error {
	if err := Check(name, &m); err != nil {
		return err
	}
	if slices.ContainsFunc(*l, func(other Message) bool { return other.Name == name }) {
		return fmt.Errorf("the name %q is used twice: give every message of the operation a name of its own, such "+
			"as \"shipped-1\"", name)
	}
	m.Attributes, m.Body = maps.Clone(m.Attributes), bytes.Clone(m.Body)
	*l = append(*l, Message{name, m})
	return nil
}

// Check says what is wrong with a message, without regard to the others.
func Check(name string, m *outbox.Message) error {
	switch {
	case name == "":
		return errors.New("the name is empty: give the message a name that is the same in every attempt, such as \"placed\"")
	case len(name) > maxName:
		return fmt.Errorf("the name has %d bytes: use at most %d", len(name), maxName)
	case !utf8.ValidString(name) || strings.ContainsFunc(name, unicode.IsControl):
		return errors.New("the name has control characters or is not valid UTF-8")
	}
	return m.Check()
}

// Entries are the messages as they are stored with a record that was created at a time, and is written now. They
// depend on the arguments alone.
func (l List) Entries(record string, created, now time.Time) []*outbox.Entry {
	all := make([]*outbox.Entry, len(l))
	lanes := map[outbox.Lane][]string{}
	for n, m := range l {
		e := &outbox.Entry{Record: record, Message: m.Message, State: outbox.New, Number: n, Created: now}
		e.ID = outbox.MessageID(record, created, m.Name)
		if e.OrderingKey != "" {
			lane := outbox.Lane{Destination: e.Destination, OrderingKey: e.OrderingKey}
			e.After = slices.Clone(lanes[lane])
			lanes[lane] = append(lanes[lane], e.ID)
		}
		all[n] = e
	}
	return all
}
