package dynamostore

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
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

func (f *fixture) remover(tb testing.TB) *Remover {
	tb.Helper()
	client := f.clientAs(tb, asRemover)
	r, err := NewRemover(client, f.table, f.o)
	require.NoError(tb, err)
	return r
}

// all removes what has expired before a time from all segments, in pages of two items.
func (f *fixture) all(t *testing.T, r *Remover, before time.Time) (removed int) {
	t.Helper()
	for segment := range 3 {
		for page := ""; ; {
			p, err := r.RemoveExpired(t.Context(), protocol.ExpiredQuery{Segment: segment, Segments: 3, Before: before, Page: page, Limit: 2})
			require.NoError(t, err)
			require.LessOrEqual(t, p.Looked, 2)
			removed += p.Removed
			if page = p.Next; page == "" {
				break
			}
		}
	}
	return removed
}

// keys are those of all items.
func (f *fixture) items(t *testing.T) (all []string) {
	t.Helper()
	out, err := f.admin.Scan(t.Context(), &dynamodb.ScanInput{TableName: &f.table, ConsistentRead: aws.Bool(true)})
	require.NoError(t, err)
	for _, it := range out.Items {
		all = append(all, text(it, schema.PK)+" "+text(it, schema.SK))
	}
	return all
}

func TestWhatHasExpiredIsRemoved(t *testing.T) {
	f := open(t, nil)
	put := func(pk, sk string, expires time.Time) {
		it := itemKey(pk, sk)
		if !expires.IsZero() {
			it[schema.ExpiresAt] = num(fmt.Sprint(expires.Unix()))
		}
		f.put(t, it)
	}
	past, future := base.Add(-time.Second), base
	var stay []string
	for i := range 10 {
		id := fmt.Sprintf("t#op#%d", i)
		put(id, schema.RecordSK, past)
		put(id, schema.AuditSK+"1#a", past)
		put(id, schema.OutboxSK+"m", past)
		put(id+schema.PartPK+"o#d#0", schema.RecordSK, past)
		for _, kept := range []string{"later", "open"} {
			put(id+kept, schema.RecordSK, map[string]time.Time{"later": future}[kept])
			stay = append(stay, id+kept+" "+schema.RecordSK)
		}
	}
	r := f.remover(t)
	require.Equal(t, 40, f.all(t, r, base))
	require.ElementsMatch(t, stay, f.items(t))
	require.Zero(t, f.all(t, r, base))
	require.ElementsMatch(t, stay, f.items(t))
}

// A call that claims the key between the scan and the deletion keeps its record, and a
// lost reply removes nothing twice.
func TestAClaimBetweenScanAndDeletionStays(t *testing.T) {
	f := open(t, nil)
	c := claim("t#op#1", "o")
	c.Record.ExpiresAt = base.Add(-time.Hour)
	require.NoError(t, f.Acquire(t.Context(), base, c))
	r := f.remover(t)
	f.wire.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
		if op == "DeleteItem" {
			f.change(t, "t#op#1", func(it item) { it[schema.ExpiresAt] = num(fmt.Sprint(base.Add(time.Hour).Unix())) })
		}
		return nil, nil
	})
	require.Zero(t, f.all(t, r, base))
	require.NotNil(t, f.get(t, "t#op#1"))

	lost := false
	f.wire.set(func(_ int, op string, req *http.Request) (*http.Response, error) {
		if op == "DeleteItem" && !lost {
			lost = true
			return f.wire.loseReply(req)
		}
		return nil, nil
	})
	f.all(t, r, base.Add(2*time.Hour))
	require.True(t, lost)
	require.Nil(t, f.get(t, "t#op#1"))
}

func TestMistakesOfARemover(t *testing.T) {
	var config *protocol.ConfigError
	_, err := NewRemover(nil, "t", nil)
	require.ErrorAs(t, err, &config)
	_, err = NewRemover((*dynamodb.Client)(nil), "t", nil)
	require.ErrorAs(t, err, &config)
	r, err := NewRemover(dynamodb.New(dynamodb.Options{}), "t", nil)
	require.NoError(t, err)
	for _, q := range []protocol.ExpiredQuery{{}, {Segment: 3, Segments: 3}, {Segment: -1, Segments: 3}, {Segments: 1, Page: "!"}, {Segments: 1, Page: "eA"}} {
		_, err := r.RemoveExpired(context.Background(), q)
		require.Error(t, err)
	}
}
