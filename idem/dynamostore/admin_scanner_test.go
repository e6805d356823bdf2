package dynamostore

import (
	"encoding/base64"
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
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

func (f *fixture) scanner() *Scanner { return must(NewScanner(f.clientAs(asScanner), f.table, f.o)) }

// Parts, messages, changes and marks lie in the table too.
func TestAScanListsRecordsAlone(t *testing.T) {
	f := open(t, nil)
	ctx, q := t.Context(), f.adminStore(t)
	f.completed(t, "t#op#1", noise(600_000))
	f.claimed(t, "t#op#2", "o2")
	require.NoError(t, q.Settle(ctx, base, protocol.Settlement{
		ID: "t#op#2", Kind: protocol.EventLapse, Seen: "o2.0", Write: "w",
		Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true},
		Audit: &protocol.Audit{ID: "t#op#2", Entry: "e", At: base, Who: "alice", Why: "because",
			Change: protocol.ChangeParked, From: protocol.InProgress},
	}))
	message := itemKey("t#op#2", schema.OutboxSK+"m")
	message[schema.State] = str("new")
	f.put(t, message)
	page, err := f.scanner().Scan(ctx, protocol.ScanQuery{Segments: 1})
	require.NoError(t, err)
	require.Equal(t, 7, page.Looked, "two records, three parts, a change and a message")
	require.Greater(t, page.Units, 70.0, "half a unit for each 4 KB of all of them")
	require.Empty(t, page.Unreadable)
	require.Len(t, page.Records, 2)
	for _, rec := range page.Records {
		require.Equal(t, f.get(t, rec.ID).WithoutResults(), rec)
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
	rec.ExpiresAt, rec.Retention, rec.UpdatedAt, rec.Resolved, rec.RefWrite, rec.Unsettled = base, time.Hour,
		base.Add(time.Second), true, "w1", 2
	rec.Due, rec.OpenSince, rec.Sweep, rec.EscalatedAt = base, base, "s", base
	for i := range reflect.TypeFor[protocol.Record]().NumField() {
		require.False(t, reflect.ValueOf(*rec).Field(i).IsZero(), reflect.TypeFor[protocol.Record]().Field(i).Name)
	}
	packed, parts := *rec, *rec
	packed.Body = protocol.Body{Data: []byte("zz"), Size: 5000, Stored: 2, Encoding: encodingZlib}
	parts.Body = protocol.Body{Parts: 2, Size: 700 << 10, Stored: 300 << 10, Encoding: encodingZlib,
		Digest: make([]byte, 32)}
	for _, rec := range []*protocol.Record{rec, &packed, &parts} {
		for name := range encode(rec) {
			require.Equal(t, name != schema.Body && name != schema.OpenShard, asked[name], name)
		}
	}
}

func TestMistakesInPagesOfAScan(t *testing.T) {
	client := dynamodb.New(dynamodb.Options{})
	s, r := must(NewScanner(client, "t", nil)), must(NewRemover(client, "t", nil))
	_, err := s.Scan(t.Context(), protocol.ScanQuery{Segments: 1, Page: "x"})
	require.ErrorContains(t, err, "pass what the page before returned")
	for _, q := range []protocol.ExpiredQuery{{}, {Segment: 3, Segments: 3}, {Segment: -1, Segments: 3},
		{Segments: 1, Page: "!"}, {Segments: 1, Page: "eA"}} {
		_, err := r.RemoveExpired(t.Context(), q)
		require.Error(t, err)
	}
}

func (f *fixture) remover() *Remover { return must(NewRemover(f.clientAs(asRemover), f.table, f.o)) }

// all removes what has expired before a time from all segments, in pages of two items.
func (f *fixture) all(t *testing.T, r *Remover, before time.Time) (removed int) {
	t.Helper()
	for segment := range 3 {
		for page := ""; ; {
			p, err := r.RemoveExpired(t.Context(),
				protocol.ExpiredQuery{Segment: segment, Segments: 3, Before: before, Page: page, Limit: 2})
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
	r := f.remover()
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
	r := f.remover()
	f.wire.set(func(_ int, op string, _ *http.Request) (*http.Response, error) {
		if op == "DeleteItem" {
			f.change(t, "t#op#1", func(it item) { it[schema.ExpiresAt] = num(fmt.Sprint(base.Add(time.Hour).Unix())) })
		}
		return nil, nil
	})
	require.Zero(t, f.all(t, r, base))
	require.NotNil(t, f.get(t, "t#op#1"))

	lost := f.wire.loseFirst(1, "DeleteItem")
	f.all(t, r, base.Add(2*time.Hour))
	require.Len(t, lost, 1)
	require.Nil(t, f.get(t, "t#op#1"))
}

// inShard is an id of the first shard.
func inShard(n int) string {
	for try := 0; ; try++ {
		if id := fmt.Sprintf("t#op#%d-%d", n, try); questionShard(id) == shardName(0) {
			return id
		}
	}
}

// Pages of changes meet where many have one time.
func TestChangesOverPages(t *testing.T) {
	f := open(t, nil)
	ctx, q, id := t.Context(), f.adminStore(t), inShard(0)
	want, items := map[string]bool{}, []item(nil)
	for n := range 230 {
		a := *audit(id, fmt.Sprint("e", n), protocol.ChangeResolved)
		a.At = base.Add(time.Duration(n/90) * time.Millisecond)
		want[a.Entry], items = true, append(items, encodeAudit(&a))
	}
	f.putAll(t, items)
	for name, read := range map[string]func(page string) (protocol.AuditPage, error){
		"of the record": func(page string) (protocol.AuditPage, error) { return q.AuditOf(ctx, id, page) },
		"of the time": func(page string) (protocol.AuditPage, error) {
			return q.AuditBetween(ctx, 0, base, base.Add(3*time.Millisecond), page)
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, pages := map[string]bool{}, 0
			var last time.Time
			for page := ""; pages == 0 || page != ""; pages++ {
				p, err := read(page)
				require.NoError(t, err)
				for _, a := range p.Entries {
					require.False(t, got[a.Entry], "twice: %s", a.Entry)
					require.False(t, a.At.Before(last))
					got[a.Entry], last = true, a.At
				}
				page = p.Next
			}
			require.Equal(t, want, got)
			require.GreaterOrEqual(t, pages, 3)
		})
	}
}

// A damaged entry says so in its place, and hides neither the others nor what is known of it.
func TestADamagedEntryHidesNoOther(t *testing.T) {
	f := open(t, nil)
	ctx, q, id := t.Context(), f.adminStore(t), inShard(0)
	for n := range 3 {
		a := audit(id, fmt.Sprint("e", n), protocol.ChangeResolved)
		a.At = base.Add(time.Duration(n) * time.Millisecond)
		it := encodeAudit(a)
		if n == 1 {
			it[schema.AuditChange] = num("7")
		}
		f.put(t, it)
	}
	r := must(reconcile.New(q, nil))
	history, err := r.History(ctx, id)
	require.NoError(t, err)
	changes, err := r.Changes(ctx, base, base.Add(time.Second), "")
	require.NoError(t, err)
	require.Len(t, history, 3)
	require.Equal(t, history, changes.Entries)
	for n, a := range history {
		require.Equal(t, []any{id, fmt.Sprint("e", n), base.Add(time.Duration(n) * time.Millisecond), "alice"},
			[]any{a.ID, a.Entry, a.At, a.Who})
		require.Equal(t, []any{n == 1, n == 1}, []any{a.Change == protocol.ChangeUnreadable, a.Unconfirmed})
	}
	require.Contains(t, history[1].Why, `attribute "change" is not a string`)
}

func TestAPageThatIsNoneIsAMistakeOfTheCaller(t *testing.T) {
	f := open(t, nil)
	ctx, q, until := t.Context(), f.adminStore(t), base.Add(time.Minute)
	cursor := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
	due := func(page string) error {
		_, err := q.Due(ctx, protocol.DueQuery{Shard: 0, Until: until, Page: page})
		return err
	}
	for name, page := range map[string]string{
		"no base64": "nonsense!", "too short": cursor("1 -"), "no number": cursor("x - a#op#b"),
		"no fraction": cursor("1.x - a#op#b"), "a long fraction": cursor("1." + strings.Repeat("0", 40) + " - a#op#b"),
		"before all": cursor("-1 - a#op#b"), "after all": cursor(fmt.Sprint(millis(until)+1, " - a#op#b")),
		"no sort key": cursor("1  a#op#b"), "no key": cursor("1 - "), "no text": cursor("1 - \xff"), "too long": cursor(
			"1 - " + strings.Repeat("a", 2049)), "a sort key too long": cursor("1 " + strings.Repeat("a", 1025) + " b"),
	} {
		t.Run(name, func(t *testing.T) {
			var mistake *protocol.ConfigError
			require.ErrorAs(t, due(page), &mistake)
			_, err := q.AuditBetween(ctx, 0, base, until, page)
			require.ErrorAs(t, err, &mistake)
			_, err = q.AuditOf(ctx, inShard(1), page)
			require.ErrorAs(t, err, &mistake)
		})
	}
	require.NoError(t, due(cursor("1 - a#op#b")), "one that DynamoDB takes")
}
