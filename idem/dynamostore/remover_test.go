package dynamostore

import (
	"context"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

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
