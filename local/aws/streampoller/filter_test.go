package streampoller

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/schema"
)

func TestFilter(t *testing.T) {
	outbox := func(sk, state string) string {
		return fmt.Sprintf(`{"dynamodb":{"Keys":{"sk":{"S":%q}},"NewImage":{"in_state":{"S":%q}}}}`, sk, state)
	}
	for _, c := range []struct {
		filter, record string
		want           bool
	}{
		{schema.OutboxFilter, outbox("outbox#1", "new"), true},
		{schema.OutboxFilter, outbox("#", "new"), false},
		{schema.OutboxFilter, outbox("outbox#1", "failed"), false},
		{schema.OutboxFilter, `{"dynamodb":{"Keys":{"sk":{"S":"outbox#1"}},"OldImage":{"in_state":{"S":"new"}}}}`, false},
		{`{}`, `{"a":"x"}`, true},
		{`{"a":["x","y"]}`, `{"a":"y"}`, true},
		{`{"a":["x"]}`, `{"a":"xy"}`, false},
		{`{"a":["x"]}`, `{"b":"x"}`, false},
		{`{"a":["x"],"b":["y"]}`, `{"a":"x","b":"z"}`, false},
		{`{"a":{"b":["x"]}}`, `{"a":"x"}`, false},
		{`{"a":["1"]}`, `{"a":1}`, false},
		{`{"a":[{"prefix":"x"},{"prefix":"out"}]}`, `{"a":"outbox"}`, true},
		{`{"a":[{"exists":true}]}`, `{"a":""}`, true},
		{`{"a":[{"exists":true}]}`, `{}`, false},
		{`{"a":[{"exists":true}]}`, `{"a":{"b":"1"}}`, false},
	} {
		p, err := parse(c.filter)
		require.NoError(t, err, c.filter)
		require.Equal(t, c.want, p.matches([]byte(c.record)), "%s on %s", c.filter, c.record)
	}
	for _, filter := range []string{
		`{`, `[]`, `{"a":"x"}`, `{"a":[1]}`, `{"a":[{"wildcard":"x*"}]}`, `{"a":[{"prefix":1}]}`, `{"a":[{"exists":false}]}`,
		`{"a":[{"prefix":"x","exists":true}]}`, `{"a":[{}]}`,
	} {
		_, err := parse(filter)
		require.ErrorContains(t, err, "streampoller: filter", filter)
	}
}
