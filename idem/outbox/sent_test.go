package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// The service's id is in the write that makes a message a dispatched one. One that failed has none.
func TestTheIdOfASendIsNotedWithIt(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		p.failFor(idOf("b", 0), errDown)
		a, b := s.put("a", 0, ""), s.put("b", 0, "")
		deliver(t, r, a)
		deliver(t, r, b)
		require.Equal(t, serviceID(1), s.get(a).SentID)
		require.Equal(t, time.Now(), s.get(a).SentAt)
		require.Empty(t, s.get(b).SentID)
		require.Zero(t, s.get(b).SentAt)
		p.fault = nil
		time.Sleep(time.Hour)
		require.Equal(t, 1, sweep(t, r).Sent)
		require.Equal(t, serviceID(3), s.get(b).SentID)
	})
}

// A relay that ends between the send and the note leaves a message that is sent again: the id is that of the send
// that was noted.
func TestTheIdIsOfTheSendThatWasNoted(t *testing.T) {
	withStore(t, func(t *testing.T, s *memoryStore, p *post, r *outbox.Relay) {
		ref := s.put("a", 0, "")
		s.at("Dispatch", func() error { return errors.New("the process has ended") })
		deliversAgain(t, r, ref)
		require.Equal(t, outbox.New, s.get(ref).State)
		require.Empty(t, s.get(ref).SentID)
		s.fault = nil
		deliver(t, r, ref)
		require.Len(t, p.sent, 2)
		require.Equal(t, serviceID(2), s.get(ref).SentID)
		deliver(t, r, ref)
		require.Equal(t, serviceID(2), s.get(ref).SentID)
	})
}

// What a sender of a service's own returns as the id is kept within bounds.
func TestTheIdIsBounded(t *testing.T) {
	for name, id := range map[string]string{
		"none": "", "short": "offset 7", "long": strings.Repeat("ü", outbox.MaxSentID),
		"cut": "a" + strings.Repeat("ü", outbox.MaxSentID), "no text": "\xff",
	} {
		withStore(t, func(t *testing.T, s *memoryStore, _ *post, _ *outbox.Relay) {
			r := relay(t, s, sending(func(_ context.Context, messages []outbox.Message) []outbox.Sent {
				return []outbox.Sent{{ID: id}}
			}), nil)
			ref := s.put("a", 0, "")
			deliver(t, r, ref)
			got := s.get(ref)
			require.Equal(t, outbox.Dispatched, got.State, name)
			require.LessOrEqual(t, len(got.SentID), outbox.MaxSentID, name)
			require.True(t, utf8.ValidString(got.SentID), name)
			require.True(t, name != "none" && name != "short" || got.SentID == id, name)
			require.Equal(t, id == "", got.SentID == "", name)
		})
	}
}
