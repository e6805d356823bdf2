package dynamostore

import (
	"context"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// RemoverClient is what a [Remover] uses of a *dynamodb.Client.
type RemoverClient interface {
	Client
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
}

// Remover does what TTL does, on a table that cannot have it: a strongly consistent global
// table (https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/V2globaltables_HowItWorks.html).
// Make it with [NewRemover]. It is a type of its own because no other caller needs
// dynamodb:Scan; it needs dynamodb:DeleteItem too. It is safe for concurrent use.
type Remover struct {
	store  *Store
	client RemoverClient
}

// NewRemover returns a remover for the table. It makes no call. Mistakes are an
// [*idem.ConfigError].
func NewRemover(client RemoverClient, table string, o *Options) (*Remover, error) {
	s, err := New(client, table, o)
	if err != nil {
		return nil, err
	}
	return &Remover{store: s, client: client}, nil
}

// RemoveExpired scans a page of a segment, and deletes what is past its expiry one after
// the other, each on the condition that it still is. Records, parts of results, changes
// and messages that have an expiry go the same way; what has none stays.
func (r *Remover) RemoveExpired(ctx context.Context, q protocol.ExpiredQuery) (p protocol.ExpiredPage, err error) {
	k := r.store.retry.begin(ctx, "RemoveExpired")
	defer k.end()
	vals := newValues(0, 1)
	vals.num(":before", q.Before.Unix())
	page := protocol.ScanQuery{Segment: q.Segment, Segments: q.Segments, Page: q.Page, Limit: q.Limit}
	out, err := r.store.scanPage(k, r.client, page, &dynamodb.ScanInput{
		FilterExpression: aws.String("expires_at<:before"), ProjectionExpression: aws.String("pk,sk"),
		ExpressionAttributeValues: vals.item,
	})
	if err != nil {
		return p, err
	}
	p.Looked, p.Next = int(out.ScannedCount), formatScanCursor(out.LastEvaluatedKey)
	for _, it := range out.Items {
		err := k.do(true, k.attempt, func(ctx context.Context) error {
			_, err := r.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName: r.store.table, Key: itemKey(text(it, schema.PK), text(it, schema.SK)),
				ConditionExpression: aws.String("expires_at<:before"), ExpressionAttributeValues: vals.item,
			}, r.store.optFns...)
			return err
		})
		switch {
		case isConditionFailed(err): // it was changed since the scan
		case err != nil:
			return p, err
		default:
			p.Removed++
		}
	}
	return p, nil
}
