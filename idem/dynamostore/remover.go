package dynamostore

import (
	"context"
	"errors"

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
// Such a table has no transactions either: the entry of a change from outside that is still
// in its record gets its item too, whether the record has expired or not.
// Make it with [NewRemover]. It is a type of its own because nobody else needs
// dynamodb:Scan; it needs dynamodb:DeleteItem, PutItem and UpdateItem too. It is safe for
// concurrent use.
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
// the other, each on the condition that it still is. It files the entries that it finds in
// records before. Records, parts of results, changes
// and messages that have an expiry go the same way; what has none stays.
func (r *Remover) RemoveExpired(ctx context.Context, q protocol.ExpiredQuery) (p protocol.ExpiredPage, err error) {
	k := r.store.retry.begin(ctx, "RemoveExpired")
	defer k.end()
	vals := newValues(0, 1)
	vals.num(":before", q.Before.Unix())
	page := protocol.ScanQuery{Segment: q.Segment, Segments: q.Segments, Page: q.Page, Limit: q.Limit}
	out, err := r.store.scanPage(k, r.client, page, &dynamodb.ScanInput{
		FilterExpression: aws.String("expires_at<:before OR attribute_exists(audit_entry)"), ProjectionExpression: aws.String("pk,sk,audit_entry"),
		ExpressionAttributeValues: vals.item,
	})
	if err != nil {
		return p, err
	}
	p.Looked, p.Next = int(out.ScannedCount), formatScanCursor(out.LastEvaluatedKey)
	for _, it := range out.Items {
		if has(it, schema.AuditEntry) {
			entry, eErr := entryIn(it)
			if eErr != nil { // damaged: the record stays, and what comes after it need not
				err = errors.Join(err, eErr)
				continue
			}
			if eErr := r.store.file(k, entry); eErr != nil {
				return p, eErr
			}
		}
		dErr := k.do(true, k.attempt, func(ctx context.Context) error {
			_, err := r.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{
				TableName: r.store.table, Key: itemKey(text(it, schema.PK), text(it, schema.SK)),
				ConditionExpression: aws.String("expires_at<:before" + ifFiled), ExpressionAttributeValues: vals.item,
			}, r.store.optFns...)
			return err
		})
		switch {
		case isConditionFailed(dErr): // it has not expired, or somebody has changed it since the scan
		case dErr != nil:
			return p, dErr
		default:
			p.Removed++
		}
	}
	return p, err
}
