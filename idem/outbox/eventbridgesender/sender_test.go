package eventbridgesender

import (
	"sort"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

// Whatever may be published fits into an event: what was committed can be sent.
func TestWhatIsPublishedFits(t *testing.T) {
	s, err := New(struct{ Client }{}, "default", strings.Repeat("s", 256))
	require.NoError(t, err)
	for name, fill := range map[string]func(*outbox.Message, int){
		"plain text": func(m *outbox.Message, n int) { m.Body = []byte(strings.Repeat("x", n)) },
		"bytes":      func(m *outbox.Message, n int) { m.Body = make([]byte, n) },
		"json":       func(m *outbox.Message, n int) { m.Body = []byte(`"` + strings.Repeat("x", n) + `"`) },
		"json with line separator": func(m *outbox.Message, n int) {
			m.Body = []byte(`"` + strings.Repeat("\u2028", n/3) + `"`)
		},
		"an attribute in quotes": func(m *outbox.Message, n int) { m.Attributes["a"] = strings.Repeat(`"`, n) },
		"an attribute of lines":  func(m *outbox.Message, n int) { m.Attributes["a"] = strings.Repeat("\u2028", n/3) },
		"a content type of quotes": func(m *outbox.Message, n int) {
			m.Body, m.ContentType = []byte(strings.Repeat("x", n)), strings.Repeat(`"`, 256)
		},
	} {
		sizes := func(t *testing.T, limit int) {
			of := func(n int) outbox.Message {
				m := outbox.Message{Limit: limit, Destination: "orders", Type: strings.Repeat("t", outbox.MaxType),
					Body: []byte("{}"), Attributes: map[string]string{}}
				for _, a := range []string{"b", "c", "d", "e", "f"} {
					m.Attributes[a] = "v"
				}
				fill(&m, n)
				return m
			}
			// The largest of its kind that may be published.
			n := 1 + sort.Search(limit, func(n int) bool {
				m := of(n + 2)
				return m.Check() != nil
			})
			require.Greater(t, n, 40<<10)
			m := of(n)
			require.NoError(t, m.Check())
			m.ID = outbox.MessageID("r", time.Now(), "0")
			require.LessOrEqual(t, s.size(&m), limit, "%d", n)
		}
		t.Run(name, func(t *testing.T) {
			sizes(t, outbox.DefaultLimit)
			sizes(t, outbox.MaxLimit)
		})
	}
}
