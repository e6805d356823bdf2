package paths_test

import (
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/reconcile"
	"github.com/idem-go/idempotency/idem/testenv/dynamodblocal/dynamotest"
	"github.com/idem-go/idempotency/local/measure/paths"
	"github.com/idem-go/idempotency/local/proof/rig"
)

// input is a fingerprint.
const input = "1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k"

var refund = idem.Operation{Name: "refund"}

// A sweep of a table with many records costs what is due costs, and nothing for the rest:
// for those that have ended, and for those that still run.
func TestASweepReadsWhatIsDueAndNothingElse(t *testing.T) {
	records, due, running := 10_000, 100, 200
	if rig.Long() {
		records, due = 100_000, 1_000
	}
	ctx, table := t.Context(), rig.Table(t)
	var meter paths.Meter
	store, err := dynamostore.NewAdminStore(dynamodb.New(dynamotest.Client(t).Options(), meter.Count), table,
		&dynamostore.Options{AttemptTimeout: time.Minute, Budget: 5 * time.Minute})
	require.NoError(t, err)

	now := time.Now().UTC().Truncate(time.Millisecond)
	claim := func(n int, lease time.Time) protocol.Claim {
		return protocol.Claim{Record: protocol.Record{
			ID: refund.Key("acme", fmt.Sprint("claim-", n)).ID(), State: idem.InProgress, Fingerprint: input,
			Owner: fmt.Sprint("o", n), Write: fmt.Sprint("o", n), Attempt: 1, LeaseUntil: lease,
			Due:       lease.Add(idem.DefaultMargin),
			Retention: idem.DefaultRetention, CreatedAt: lease.Add(-time.Minute), UpdatedAt: lease.Add(-time.Minute),
		}}
	}
	var g errgroup.Group
	g.SetLimit(16)
	for n := range due + running {
		g.Go(func() error {
			lease := now.Add(-time.Hour)
			if n >= due {
				lease = now.Add(time.Hour)
			}
			return store.Acquire(ctx, now, claim(n, lease))
		})
	}
	require.NoError(t, g.Wait())
	fill(t, store, table, records-due-running)

	rc, err := reconcile.New(store, nil)
	require.NoError(t, err)
	sw, err := reconcile.NewSweeper(rc, &reconcile.SweepOptions{Log: slog.New(slog.DiscardHandler)})
	require.NoError(t, err)
	meter.Take()
	report, err := sw.Sweep(ctx)
	require.NoError(t, err)
	u := meter.Take()
	queries, reads := u.Calls["Query"], u.Calls["GetItem"]
	t.Logf("%d records, %d due: %d queries, %d reads, %.1f read units", records, due, queries, reads, u.Read)
	require.Equal(t, due, report.Listed)
	require.Equal(t, due, report.Parked)
	require.Zero(t, report.Failed+report.Left+report.Skipped)

	require.Equal(t, due, reads)
	// A page for each shard, and one for every full page of what is due.
	require.LessOrEqual(t, queries, 2*protocol.Shards+due/25)
	// A unit for each record that is due. Of the queries, half a unit for 4 KB begun, of keys
	// of less than 256 bytes.
	require.LessOrEqual(t, u.Read, float64(due)+0.5*float64(queries)+0.5*float64(due*256)/4096)

	report, err = sw.Sweep(ctx)
	require.NoError(t, err)
	u = meter.Take()
	t.Logf("nothing due: %v, %.1f read units", u.Calls, u.Read)
	require.Zero(t, report.Listed)
	require.Equal(t, map[string]int{"Query": protocol.Shards}, u.Calls)
	require.LessOrEqual(t, u.Read, 0.5*protocol.Shards)
}

// fill adds records that have ended.
func fill(t *testing.T, store *dynamostore.AdminStore, table string, records int) {
	t.Helper()
	db, ctx := dynamotest.Client(t), t.Context()
	now := time.Now().UTC().Truncate(time.Millisecond)
	id := refund.Key("acme", "ended").ID()
	require.NoError(t, store.Acquire(ctx, now, protocol.Claim{Record: protocol.Record{
		ID: id, State: idem.InProgress, Fingerprint: input, Owner: "ended", Write: "ended", Attempt: 1,
		LeaseUntil: now.Add(time.Minute), Due: now.Add(time.Minute), Retention: idem.DefaultRetention,
		CreatedAt: now, UpdatedAt: now,
	}}))
	require.NoError(t,
		store.Finish(ctx, now, protocol.Finish{ID: id, Owner: "ended", Write: "end", Watched: true, Ending: protocol.Ending{
			State: idem.Completed, Result: []byte(`{"refund":"re_1"}`), ExpiresAt: now.Add(24 * time.Hour),
		}}))
	like := rig.Scan(t, table)
	for _, it := range like {
		if rig.Text(it["pk"]) == id {
			like = []map[string]types.AttributeValue{it}
		}
	}
	var g errgroup.Group
	g.SetLimit(8)
	for from := 0; from < records-1; from += 25 {
		g.Go(func() error {
			var put []types.WriteRequest
			for n := from; n < min(from+25, records-1); n++ {
				it := map[string]types.AttributeValue{}
				for name, v := range like[0] {
					it[name] = v
				}
				it["pk"] = &types.AttributeValueMemberS{Value: refund.Key("acme", fmt.Sprint("ended-", n)).ID()}
				put = append(put, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
			}
			for len(put) > 0 {
				out, err := db.BatchWriteItem(ctx,
					&dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{table: put}})
				if err != nil {
					return err
				}
				put = out.UnprocessedItems[table]
			}
			return nil
		})
	}
	require.NoError(t, g.Wait())
	require.Empty(t, like[0]["open_shard"])
}

// A scan of the table, by which idemctl finds claims that no index has, reads half a unit for each 4 KB of what the
// table holds, whatever of it is asked for.
func TestAScanReadsHalfAUnitForEach4KB(t *testing.T) {
	records := 2_000
	ctx, table := t.Context(), rig.Table(t)
	client := dynamotest.Client(t)
	store, err := dynamostore.NewAdminStore(client, table, nil)
	require.NoError(t, err)
	fill(t, store, table, records)
	size := 0
	for _, it := range rig.Scan(t, table) {
		size += paths.ItemSize(it)
	}

	scanner, err := dynamostore.NewScanner(client, table, nil)
	require.NoError(t, err)
	found, units := 0, 0.0
	for q := (protocol.ScanQuery{Segments: 1}); ; {
		page, err := scanner.Scan(ctx, q)
		require.NoError(t, err)
		found, units = found+len(page.Records), units+page.Units
		if q.Page = page.Next; q.Page == "" {
			break
		}
	}
	t.Logf("%d records of %d bytes: %.1f read units, %.0f for a GB", found, size/found, units, units/float64(size)*1e9)
	require.Equal(t, records, found)
	require.InEpsilon(t, float64(size)/4096/2, units, 0.05)
}
