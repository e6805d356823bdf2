package outbox_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/outbox"
)

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
		"none":            {nil, nil, []error{}},
		"by count":        {[]string{"a", "b", "c", "d"}, []string{"a b c", "d"}, []error{nil, nil, nil, nil}},
		"by bytes":        {[]string{"aaaaaa", "bbbb", "c", "dddddddddd"}, []string{"aaaaaa bbbb", "c", "dddddddddd"}, []error{nil, nil, nil, nil}},
		"above the limit": {[]string{"a", "bbbbbbbbbbbb", "c"}, []string{"a", "bbbbbbbbbbbb", "c"}, []error{nil, nil, nil}},
		"each its own":    {[]string{"a", "bad", "c"}, []string{"a bad c"}, []error{nil, bad, nil}},
		"as a whole":      {[]string{"a", "down", "c", "d"}, []string{"a down c", "d"}, []error{down, down, down, nil}},
		"rejected":        {[]string{"a", "no", "c", "d"}, []string{"a no c", "a", "no", "c", "d"}, []error{nil, outbox.ErrRejected, nil, nil}},
		"rejected alone":  {[]string{"no"}, []string{"no"}, []error{outbox.ErrRejected}},
	} {
		t.Run(name, func(t *testing.T) {
			var calls []string
			got := outbox.InBatches(t.Context(), messages(c.bodies...), limits, size, func(_ context.Context, batch []outbox.Message) ([]error, error) {
				var bodies []string
				errs := make([]error, len(batch))
				for i, m := range batch {
					bodies = append(bodies, string(m.Body))
					if string(m.Body) == "bad" {
						errs[i] = bad
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
				return errs, nil
			})
			require.Equal(t, c.calls, calls)
			require.Len(t, got, len(c.want))
			for i := range got {
				require.ErrorIs(t, got[i], c.want[i])
			}
		})
	}
	ctx, cancel := context.WithCancel(t.Context())
	got := outbox.InBatches(ctx, messages("a", "b", "c", "d"), limits, size, func(_ context.Context, batch []outbox.Message) ([]error, error) {
		cancel()
		return make([]error, len(batch)), nil
	})
	require.Equal(t, []error{nil, nil, nil}, got[:3])
	require.ErrorIs(t, got[3], context.Canceled)
	require.ErrorIs(t, got[3], outbox.ErrNotSent)
	got = outbox.InBatches(t.Context(), messages("a"), limits, size, func(context.Context, []outbox.Message) ([]error, error) { return nil, nil })
	require.ErrorContains(t, got[0], "did not return one error for each message")
}
