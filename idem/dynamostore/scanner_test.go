package dynamostore

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

func (f *fixture) scanner(tb testing.TB) *Scanner {
	tb.Helper()
	client := f.clientAs(tb, asScanner)
	s, err := NewScanner(client, f.table, f.o)
	require.NoError(tb, err)
	return s
}

// Parts, messages, changes and marks lie in the table too.
func TestAScanListsRecordsAlone(t *testing.T) {
	f := open(t, nil)
	ctx, q := t.Context(), f.adminStore(t)
	c := claim("t#op#1", "o1")
	require.NoError(t, f.Acquire(ctx, base, c))
	require.NoError(t, f.Finish(ctx, base, completion("t#op#1", "o1", noise(600_000))))
	p := claim("t#op#2", "o2")
	require.NoError(t, f.Acquire(ctx, base, p))
	require.NoError(t, q.Settle(ctx, base, protocol.Settlement{
		ID: "t#op#2", Kind: protocol.EventLapse, Seen: "o2.0", Write: "w", Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true},
		Audit: &protocol.Audit{ID: "t#op#2", Entry: "e", At: base, Who: "alice", Why: "because", Change: protocol.ChangeParked, From: protocol.InProgress},
	}))
	message := itemKey("t#op#2", schema.OutboxSK+"m")
	message[schema.State] = str("new")
	f.put(t, message)
	page, err := f.scanner(t).Scan(ctx, protocol.ScanQuery{Segments: 1})
	require.NoError(t, err)
	require.Equal(t, 7, page.Looked, "two records, three parts, a change and a message")
	require.Greater(t, page.Units, 70.0, "half a unit for each 4 KB of all of them")
	require.Empty(t, page.Unreadable)
	require.Len(t, page.Records, 2)
	for _, rec := range page.Records {
		whole, err := f.Get(ctx, rec.ID)
		require.NoError(t, err)
		require.Equal(t, whole.WithoutResults(), rec)
	}
}

// A record has no attribute that a scan leaves out, but for its result.
func TestAScanReadsAllOfARecord(t *testing.T) {
	asked := map[string]bool{}
	for _, name := range strings.Split(withoutResult, ",") {
		require.False(t, asked[name], "twice: %s", name)
		asked[name] = true
	}
	rec := full()
	rec.Value, rec.Repeat, rec.Codec, rec.Attempt, rec.Write, rec.Seen = "key", protocol.Repeatable, "binary", 2, "w", "w0"
	rec.ExpiresAt, rec.Retention, rec.UpdatedAt, rec.Resolved, rec.RefWrite, rec.Unsettled = base, time.Hour, base.Add(time.Second), true, "w1", 2
	rec.Due, rec.OpenSince, rec.Sweep, rec.EscalatedAt = base, base, "s", base
	for i := range reflect.TypeFor[protocol.Record]().NumField() {
		require.False(t, reflect.ValueOf(*rec).Field(i).IsZero(), reflect.TypeFor[protocol.Record]().Field(i).Name)
	}
	packed, parts := *rec, *rec
	packed.Body = protocol.Body{Data: []byte("zz"), Size: 5000, Stored: 2, Encoding: encodingZlib}
	parts.Body = protocol.Body{Parts: 2, Size: 700 << 10, Stored: 300 << 10, Encoding: encodingZlib, Digest: make([]byte, 32)}
	for _, rec := range []*protocol.Record{rec, &packed, &parts} {
		for name := range encode(rec) {
			require.Equal(t, name != schema.Body && name != schema.OpenShard, asked[name], name)
		}
	}
}

func TestMistakesOfAScan(t *testing.T) {
	var mistake *protocol.ConfigError
	_, err := NewScanner(nil, "t", nil)
	require.ErrorAs(t, err, &mistake)
	_, err = NewScanner(dynamodb.New(dynamodb.Options{}), "", nil)
	require.ErrorAs(t, err, &mistake)
	s, err := NewScanner(dynamodb.New(dynamodb.Options{}), "t", nil)
	require.NoError(t, err)
	_, err = s.Scan(t.Context(), protocol.ScanQuery{Segments: 1, Page: "x"})
	require.ErrorContains(t, err, "pass what the page before returned")
}
