package dynamostore

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// ScannerClient is what a [Scanner] uses of a *dynamodb.Client.
type ScannerClient interface {
	Client
	Scan(context.Context, *dynamodb.ScanInput, ...func(*dynamodb.Options)) (*dynamodb.ScanOutput, error)
}

// Scanner lists all records, for what no index holds: an export, a tenant to forget, a claim that
// is not watched. It reads the whole table, the parts of large results, messages and changes
// included, and DynamoDB bills all of it: half a read unit for each 4 KB, 131,000 units for a
// gigabyte. It takes read capacity from the functions that share the table, so that a
// scan of a table in use should pause between pages, by the units that each one cost.
//
// Make it with [NewScanner]. It is a type of its own so that no other caller needs dynamodb:Scan,
// and needs nothing else itself. It is safe for concurrent use.
type Scanner struct {
	store  *Store
	client ScannerClient
}

var _ protocol.Scanner = (*Scanner)(nil)

// NewScanner returns a scanner of the table. It makes no call. Mistakes are an
// [*idem.ConfigError].
func NewScanner(client ScannerClient, table string, o *Options) (*Scanner, error) {
	s, err := New(client, table, o)
	if err != nil {
		return nil, err
	}
	return &Scanner{store: s, client: client}, nil
}

// recordsAlone leaves out the parts of results, which have the sort key of a record.
const recordsAlone = "sk=:record AND NOT contains(pk,:part)"

// withoutResult are the attributes of a record but for its result.
const withoutResult = "pk,sk,v,in_state,repeatable,key_value,codec,fp,owner_id,attempt,write_id,seen,lease_until," +
	"retention,created_at,updated_at,ticket,uncertain,sealed,enc,body_size,rv,parts,omitted,steps," +
	"failure,provider_ref,ref_write,resolved,unsettled,open_due,open_since,sweep_id,probes," +
	"escalated_at,expires_at"

// Scan implements [protocol.Scanner]: one eventually consistent Scan, of 1 MB at most, which
// leaves the results in the table, but for those of steps, unless the query asks for them.
func (s *Scanner) Scan(ctx context.Context, q protocol.ScanQuery) (p protocol.ScanPage, err error) {
	k := s.store.retry.begin(ctx, "Scan")
	defer k.end()
	vals := newValues(2, 0)
	vals.str(":record", schema.RecordSK)
	vals.str(":part", schema.PartPK)
	attributes, read := withoutResult, decodeWithoutResult
	if q.Results {
		attributes, read = withoutResult+","+schema.Body, decode
	}
	out, err := s.store.scanPage(k, s.client, q, &dynamodb.ScanInput{
		FilterExpression: aws.String(recordsAlone), ProjectionExpression: aws.String(attributes),
		ExpressionAttributeValues: vals.item,
		ReturnConsumedCapacity:    types.ReturnConsumedCapacityTotal,
	})
	if err != nil {
		return p, err
	}
	p.Looked, p.Next = int(out.ScannedCount), formatScanCursor(out.LastEvaluatedKey)
	if out.ConsumedCapacity != nil {
		p.Units = aws.ToFloat64(out.ConsumedCapacity.CapacityUnits)
	}
	for _, it := range out.Items {
		rec, err := read(it)
		if errors.Is(err, protocol.ErrRecordUnreadable) {
			p.Unreadable = append(p.Unreadable, text(it, schema.PK))
			continue
		}
		if err != nil {
			return protocol.ScanPage{}, err
		}
		p.Records = append(p.Records, rec)
	}
	return p, nil
}

// Result reads the result of a record that was scanned with its results: no call, or one consistent BatchGetItem,
// which takes dynamodb:BatchGetItem, if the result lies in parts.
func (s *Scanner) Result(ctx context.Context, rec *protocol.Record) ([]byte, error) {
	return s.store.Result(ctx, rec)
}

// scanPage reads a page of a segment of the table.
func (s *Store) scanPage(k *call, client ScannerClient, q protocol.ScanQuery,
	in *dynamodb.ScanInput) (out *dynamodb.ScanOutput, err error) {
	if q.Segments < 1 || q.Segment < 0 || q.Segment >= q.Segments {
		return nil, fmt.Errorf("dynamostore: %s: there is no segment %d of %d", k.op, q.Segment, q.Segments)
	}
	in.TableName, in.Segment, in.TotalSegments = s.table, aws.Int32(int32(q.Segment)), aws.Int32(int32(q.Segments))
	if q.Limit > 0 {
		in.Limit = aws.Int32(int32(min(q.Limit, maxPage)))
	}
	if in.ExclusiveStartKey, err = parseScanCursor(q.Page); err != nil {
		return nil, err
	}
	err = k.do(false, partTime*k.attempt, func(ctx context.Context) (err error) {
		out, err = client.Scan(ctx, in, s.optFns...)
		return err
	})
	return out, err
}

// decodeWithoutResult reads a record whose body was not asked for.
func decodeWithoutResult(it item) (*protocol.Record, error) {
	if text(it, schema.State) == string(protocol.Completed) && !has(it, schema.Parts) {
		it[schema.Body] = &types.AttributeValueMemberB{} // or it would be damaged
	}
	rec, err := decode(it)
	if err != nil {
		return nil, err
	}
	return rec.WithoutResults(), nil
}

// formatScanCursor names the item after which a scan continues.
func formatScanCursor(last item) string {
	if last == nil {
		return ""
	}
	return base64.RawURLEncoding.EncodeToString([]byte(text(last, schema.SK) + " " + text(last, schema.PK)))
}

func parseScanCursor(page string) (item, error) {
	if page == "" {
		return nil, nil
	}
	b, err := base64.RawURLEncoding.DecodeString(page)
	sk, pk, ok := strings.Cut(string(b), " ")
	if err != nil || !ok || !isKey(pk, sk) {
		return nil, noCursor(page)
	}
	return itemKey(pk, sk), nil
}

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
