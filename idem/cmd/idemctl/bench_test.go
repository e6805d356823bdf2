package main

import (
	"bytes"
	"fmt"
	"strconv"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/schema"
	"github.com/idem-go/idempotency/internal/dynamodblocal/dynamotest"
)

// hundredThousand is how many open questions an outage of a provider leaves.
const hundredThousand = 100_000

// fill copies the only record of the table.
func (o *tool) fill(tb testing.TB, n int) {
	tb.Helper()
	o.unknown(r1)
	out, err := o.client.GetItem(tb.Context(), &dynamodb.GetItemInput{TableName: &o.table, Key: map[string]types.AttributeValue{
		schema.PK: &types.AttributeValueMemberS{Value: r1.ID()}, schema.SK: &types.AttributeValueMemberS{Value: schema.RecordSK},
	}})
	require.NoError(tb, err)
	var g errgroup.Group
	g.SetLimit(8)
	for from := 0; from < n; from += 25 {
		g.Go(func() error {
			var puts []types.WriteRequest
			for i := from; i < min(from+25, n); i++ {
				it := map[string]types.AttributeValue{}
				for k, v := range out.Item {
					it[k] = v
				}
				it[schema.PK] = &types.AttributeValueMemberS{Value: refund.Key("acme", "copy-"+strconv.Itoa(i)).ID()}
				it[schema.OpenShard] = &types.AttributeValueMemberS{Value: fmt.Sprintf("%02d", i%schema.ShardCount)}
				puts = append(puts, types.WriteRequest{PutRequest: &types.PutRequest{Item: it}})
			}
			for len(puts) > 0 {
				out, err := o.client.BatchWriteItem(tb.Context(), &dynamodb.BatchWriteItemInput{RequestItems: map[string][]types.WriteRequest{o.table: puts}})
				if err != nil {
					return err
				}
				puts = out.UnprocessedItems[o.table]
			}
			return nil
		})
	}
	require.NoError(tb, g.Wait())
}

// BenchmarkAPageOfAHundredThousand lists 50 of 100,000 open questions on DynamoDB Local, the
// first ones and those behind a page, and looks through all for one that is not there, a
// hundred pages.
func BenchmarkAPageOfAHundredThousand(b *testing.B) {
	o := newTool(b)
	o.fill(b, hundredThousand)
	world := outside(time.Now)
	for name, args := range map[string][]string{
		"first":           {"list"},
		"later":           {"list", "--page", "7 "},
		"no match in all": {"list", "--operation", "none", "--limit", "1"},
	} {
		b.Run(name, func(b *testing.B) {
			b.Setenv("AWS_ACCESS_KEY_ID", "idemlocal")
			b.Setenv("AWS_SECRET_ACCESS_KEY", "idemlocal")
			for b.Loop() {
				var out, errs bytes.Buffer
				line := append(args, "--table", o.table, "--endpoint", dynamotest.Endpoint(b), "--region", "us-east-1")
				code := run(b.Context(), line, &terminal{out: &out, err: &errs}, world)
				require.Equal(b, exitDone, code, errs.String())
				require.NotEmpty(b, out.String())
			}
		})
	}
}
