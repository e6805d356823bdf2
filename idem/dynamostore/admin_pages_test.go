package dynamostore

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/schema"
)

// inShard is an id of the first shard.
func inShard(n int) string {
	for try := 0; ; try++ {
		if id := fmt.Sprintf("t#op#%d-%d", n, try); shard(id) == shardName(0) {
			return id
		}
	}
}

// changesOverPages reads all pages of changes, in which each change is once and none is before an
// earlier one.
func changesOverPages(t *testing.T, read func(page string) (protocol.AuditPage, error)) (got map[string]bool, pages int) {
	t.Helper()
	got = map[string]bool{}
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
	return got, pages
}

// Pages of changes meet where many have one time.
func TestChangesOverPages(t *testing.T) {
	f := open(t, nil)
	ctx, q, id := t.Context(), f.adminStore(t), inShard(0)
	want := map[string]bool{}
	for n := range 230 {
		a := protocol.Audit{
			ID: id, Entry: fmt.Sprint("e", n), At: base.Add(time.Duration(n/90) * time.Millisecond), Who: "alice", Why: "because",
			Change: protocol.ChangeResolved, From: protocol.Unknown, To: protocol.Completed, Attempt: 1,
		}
		want[a.Entry] = true
		f.put(t, encodeAudit(&a))
	}
	for name, read := range map[string]func(page string) (protocol.AuditPage, error){
		"of the record": func(page string) (protocol.AuditPage, error) { return q.AuditOf(ctx, id, page) },
		"of the time": func(page string) (protocol.AuditPage, error) {
			return q.AuditBetween(ctx, 0, base, base.Add(3*time.Millisecond), page)
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, pages := changesOverPages(t, read)
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
		it := encodeAudit(&protocol.Audit{
			ID: id, Entry: fmt.Sprint("e", n), At: base.Add(time.Duration(n) * time.Millisecond), Who: "alice", Why: "because",
			Change: protocol.ChangeResolved, From: protocol.Unknown, To: protocol.Completed, Attempt: 1,
		})
		if n == 1 {
			it[schema.AuditChange] = num("7")
		}
		f.put(t, it)
	}
	r, err := reconcile.New(q, nil)
	require.NoError(t, err)
	history, err := r.History(ctx, id)
	require.NoError(t, err)
	changes, err := r.Changes(ctx, base, base.Add(time.Second), "")
	require.NoError(t, err)
	require.Len(t, history, 3)
	require.Equal(t, history, changes.Entries)
	for n, a := range history {
		require.Equal(t, []any{id, fmt.Sprint("e", n), base.Add(time.Duration(n) * time.Millisecond), "alice"}, []any{a.ID, a.Entry, a.At, a.Who})
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
		"no base64": "nonsense!", "too short": cursor("1 -"), "no number": cursor("x - a#op#b"), "no fraction": cursor("1.x - a#op#b"), "a long fraction": cursor("1." + strings.Repeat("0", 40) + " - a#op#b"), "before all": cursor("-1 - a#op#b"), "after all": cursor(fmt.Sprint(millis(until)+1, " - a#op#b")),
		"no sort key": cursor("1  a#op#b"), "no key": cursor("1 - "), "no text": cursor("1 - \xff"), "too long": cursor("1 - " + strings.Repeat("a", 2049)), "a sort key too long": cursor("1 " + strings.Repeat("a", 1025) + " b"),
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

// What is due is listed although what was listed before moves away, ends, or is claimed
// anew between two pages.
func TestDuePagesWhileRecordsMove(t *testing.T) {
	f := open(t, nil)
	ctx, q := t.Context(), f.adminStore(t)
	left := map[string]bool{}
	for n := range 40 {
		c := claim(inShard(n), "o1")
		c.Record.ExpiresAt, c.Record.Due = time.Time{}, base.Add(time.Duration(n/8)*time.Second)
		require.NoError(t, f.Acquire(ctx, base, c))
		left[c.Record.ID] = true
	}
	until := base.Add(time.Minute)
	for page, pages := "", 0; pages == 0 || page != ""; pages++ {
		require.Less(t, pages, 10, "it does not end")
		p, err := q.Due(ctx, protocol.DueQuery{Shard: 0, Until: until, Page: page, Limit: 7})
		require.NoError(t, err)
		for n, id := range p.IDs {
			require.True(t, left[id], "listed twice, or not due: %s", id)
			delete(left, id)
			switch n % 4 {
			case 0: // it waits
				require.NoError(t, q.Postpone(ctx, base, protocol.Postponement{ID: id, Seen: "o1.0", Sweep: "s", Due: until.Add(time.Second)}))
			case 1: // it has ended
				w := completion(id, "o1", []byte("{}"))
				w.Watched = true
				require.NoError(t, f.Finish(ctx, base, w))
			case 2: // it is an open question, due from now on
				require.NoError(t, q.Settle(ctx, until.Add(time.Millisecond), protocol.Settlement{
					ID: id, Kind: protocol.EventLapse, Seen: "o1.0", Write: "w", Ending: protocol.Ending{State: protocol.Unknown, Uncertain: true},
				}))
			}
		}
		page = p.Next
	}
	require.Empty(t, left)
}

// A Reconciler merges the shards' pages by time.
func TestChangesOfAllShards(t *testing.T) {
	f := open(t, nil)
	ctx, want := t.Context(), map[string]bool{}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(16)
	for n := range 330 {
		a := protocol.Audit{
			ID: fmt.Sprint("t#op#", n), Entry: fmt.Sprint("e", n), At: base.Add(time.Duration(n/7) * time.Millisecond), Who: "alice", Why: "because",
			Change: protocol.ChangeResolved, From: protocol.Unknown, To: protocol.Completed, Attempt: 1,
		}
		if n < 130 { // more than a page
			a.ID = inShard(n)
		}
		want[a.Entry] = true
		g.Go(func() error {
			_, err := f.admin.PutItem(gctx, &dynamodb.PutItemInput{TableName: &f.table, Item: encodeAudit(&a)})
			return err
		})
	}
	require.NoError(t, g.Wait())
	r, err := reconcile.New(f.adminStore(t), nil)
	require.NoError(t, err)
	got, pages := changesOverPages(t, func(page string) (protocol.AuditPage, error) {
		return r.Changes(ctx, base, base.Add(time.Second), page)
	})
	require.Equal(t, want, got)
	require.Greater(t, pages, 1)
}
