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

func good() outbox.Message {
	return outbox.Message{
		Destination: "orders", OrderingKey: "order-1", Type: "order.placed", ContentType: "application/json",
		Body: []byte(`{"n":1}`), Attributes: map[string]string{"region": "eu"},
	}
}

func TestCheck(t *testing.T) {
	m := good()
	require.NoError(t, m.Check())
	for name, c := range map[string]struct {
		change func(*outbox.Message)
		says   string
	}{
		"id":                 {func(m *outbox.Message) { m.ID = "x" }, "leave them empty"},
		"tenant's group":     {func(m *outbox.Message) { m.TenantGroup = "x" }, "leave them empty"},
		"no destination":     {func(m *outbox.Message) { m.Destination = "" }, "Destination is empty"},
		"url as destination": {func(m *outbox.Message) { m.Destination = "https://q" }, "Destination may have"},
		"long destination":   {func(m *outbox.Message) { m.Destination = strings.Repeat("d", 129) }, "128"},
		"key with space":     {func(m *outbox.Message) { m.OrderingKey = "a b" }, "OrderingKey"},
		"long key":           {func(m *outbox.Message) { m.OrderingKey = strings.Repeat("k", 129) }, "OrderingKey"},
		"type with control":  {func(m *outbox.Message) { m.Type = "a\x00" }, "Type"},
		"content type":       {func(m *outbox.Message) { m.ContentType = "\xff" }, "ContentType"},
		"no body":            {func(m *outbox.Message) { m.Body = nil }, "Body is empty"},
		"large":              {func(m *outbox.Message) { m.Body = make([]byte, 192<<10) }, "store the body"},
		"large text":         {func(m *outbox.Message) { m.Body = []byte(strings.Repeat("x", 256<<10)) }, "or set Limit"},
		"over its limit": {func(m *outbox.Message) {
			m.Body, m.Limit = []byte(`"`+strings.Repeat("x", 1<<20)+`"`), outbox.MaxLimit
		}, "may have 1047552"},
		"limit of no service": {func(m *outbox.Message) { m.Limit = outbox.MaxLimit + 1 }, "use 2048 to 1048576"},
		"limit below zero":    {func(m *outbox.Message) { m.Limit = -1 }, "Limit is -1"},
		"empty value":         {func(m *outbox.Message) { m.Attributes["a"] = "" }, "empty or not text"},
		"value with control":  {func(m *outbox.Message) { m.Attributes["a"] = "\x01" }, "not text"},
		"name with space":     {func(m *outbox.Message) { m.Attributes["a b"] = "c" }, "attribute name"},
		"name with dots":      {func(m *outbox.Message) { m.Attributes["a..b"] = "c" }, "attribute name"},
		"name that is taken":  {func(m *outbox.Message) { m.Attributes["Idem-Message-Id"] = "c" }, "are taken"},
		"name of the service": {func(m *outbox.Message) { m.Attributes["AWS.x"] = "c" }, "are taken"},
		"many attributes": {func(m *outbox.Message) {
			m.Attributes = map[string]string{"a": "1", "b": "1", "c": "1", "d": "1", "e": "1", "f": "1", "g": "1"}
		}, "7 attributes"},
	} {
		t.Run(name, func(t *testing.T) {
			m := good()
			c.change(&m)
			require.ErrorContains(t, m.Check(), c.says)
		})
	}
}

func TestMessageID(t *testing.T) {
	created := time.UnixMilli(1_700_000_000_123)
	id := outbox.MessageID("acme#charge#abc", created, "placed")
	require.Equal(t, "41452221-8e21-8b71-a4fe-f22a999a79bb", id, "ids are kept by consumers: they never change")
	require.Equal(t, id, outbox.MessageID("acme#charge#abc", created.Add(time.Millisecond-1), "placed"),
		"a record keeps milliseconds")
	require.Regexp(t, `^[0-9a-f]{8}-[0-9a-f]{4}-8[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`, id)
	seen := map[string]bool{id: true}
	for _, other := range []string{
		outbox.MessageID("acme#charge#abc", created, "shipped"), outbox.MessageID("acme#charge#abd", created, "placed"),
		outbox.MessageID("acme#charge#abc", created.Add(time.Millisecond), "placed"),
		outbox.MessageID("3\x00acme#charge#abc", time.UnixMilli(170_000_000_012), "placed"),
	} {
		require.False(t, seen[other])
		seen[other] = true
	}
}

func TestBodiesThatAreNotText(t *testing.T) {
	m := good()
	body, encoded := m.Text()
	require.Equal(t, `{"n":1}`, body)
	require.False(t, encoded)
	m.ID = "id-1"
	require.Equal(t, map[string]string{
		"region": "eu", "idem-message-id": "id-1", "idem-type": "order.placed", "idem-content-type": "application/json",
	}, m.Tags())
	m.Body = []byte{0, 1, 0xff}
	body, encoded = m.Text()
	require.Equal(t, "AAH/", body)
	require.True(t, encoded)
	require.Equal(t, "base64", m.Tags()["idem-encoding"])
}

func TestInBatches(t *testing.T) {
	size := func(m *outbox.Message) int { return len(m.Body) }
	messages := func(bodies ...string) (list []outbox.Message) {
		for _, b := range bodies {
			list = append(list, outbox.Message{Body: []byte(b)})
		}
		return list
	}
	limits := outbox.Limits{Count: 3, Bytes: 10}
	down, bad := errors.New("down"), errors.New("bad")
	for name, c := range map[string]struct {
		bodies []string
		calls  []string
		want   []error
	}{
		"none":     {nil, nil, []error{}},
		"by count": {[]string{"a", "b", "c", "d"}, []string{"a b c", "d"}, []error{nil, nil, nil, nil}},
		"by bytes": {[]string{"aaaaaa", "bbbb", "c", "dddddddddd"}, []string{"aaaaaa bbbb", "c", "dddddddddd"},
			[]error{nil, nil, nil, nil}},
		"above the limit": {[]string{"a", "bbbbbbbbbbbb", "c"}, []string{"a", "bbbbbbbbbbbb", "c"}, []error{nil, nil, nil}},
		"each its own":    {[]string{"a", "bad", "c"}, []string{"a bad c"}, []error{nil, bad, nil}},
		"as a whole":      {[]string{"a", "down", "c", "d"}, []string{"a down c", "d"}, []error{down, down, down, nil}},
		"rejected": {[]string{"a", "no", "c", "d"}, []string{"a no c", "a", "no", "c", "d"},
			[]error{nil, outbox.ErrRejected, nil, nil}},
		"rejected alone": {[]string{"no"}, []string{"no"}, []error{outbox.ErrRejected}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			got := outbox.InBatches(t.Context(), messages(c.bodies...), limits, size,
				func(_ context.Context, batch []outbox.Message) ([]outbox.Sent, error) {
					var bodies []string
					all := make([]outbox.Sent, len(batch))
					for i, m := range batch {
						bodies = append(bodies, string(m.Body))
						if string(m.Body) == "bad" {
							all[i].Err = bad
						} else {
							all[i].ID = "id of " + string(m.Body)
						}
					}
					call := strings.Join(bodies, " ")
					calls = append(calls, call)
					switch {
					case strings.Contains(call, "down"):
						return nil, down
					case strings.Contains(call, "no"):
						return nil, outbox.Reject(bad)
					}
					return all, nil
				})
			require.Equal(t, c.calls, calls)
			require.Len(t, got, len(c.want))
			for i := range got {
				require.ErrorIs(t, got[i].Err, c.want[i])
				if got[i].Err == nil {
					require.Equal(t, "id of "+c.bodies[i], got[i].ID)
				}
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := outbox.InBatches(ctx, messages("a", "b", "c", "d"), limits, size,
		func(_ context.Context, batch []outbox.Message) ([]outbox.Sent, error) {
			cancel()
			return make([]outbox.Sent, len(batch)), nil
		})
	require.Equal(t, make([]outbox.Sent, 3), got[:3])
	require.ErrorIs(t, got[3].Err, context.Canceled)
	require.ErrorIs(t, got[3].Err, outbox.ErrNotSent)
	got = outbox.InBatches(t.Context(), messages("a"), limits, size,
		func(context.Context, []outbox.Message) ([]outbox.Sent, error) { return nil, nil })
	require.ErrorContains(t, got[0].Err, "did not return one Sent for each message")
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
