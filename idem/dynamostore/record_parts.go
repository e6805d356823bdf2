package dynamostore

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

const (
	// partSize is well under an item's 400 KB and a partition's thousand write
	// units a second.
	partSize = 256 << 10
	// maxParts is below the hundred keys of a BatchGetItem.
	maxParts = resultLimit / partSize
	// partsAtOnce bounds the memory and connections of one large result.
	partsAtOnce = 8
	// partTime is a part's share of time in attempts: it is sent, not just asked.
	partTime = 5
	// partShare of a call's time is for the parts. The rest is kept for the record,
	// with or without what they hold.
	partShare = 0.65
	// partDigest bytes of the digest tell one owner's results apart: a handful.
	partDigest = 9
	// partsOutlive keeps the parts of a record until no reader can have it any more.
	partsOutlive = 24 * time.Hour
)

var errUnprocessed = errors.New("DynamoDB left keys unprocessed, the table is throttled")

func partCount(stored int) int { return (stored + partSize - 1) / partSize }

// partKeyPrefix is the partition key of a part without its number. Parts carry
// their writer's owner, so that no attempt can touch another one's, and the start
// of their digest, so that a write that is going to be refused cannot touch those
// of an earlier one of the same owner.
func partKeyPrefix(id, owner string, digest []byte) string {
	return id + schema.PartPK + owner + "#" + base64.RawURLEncoding.EncodeToString(digest[:partDigest]) + "#"
}

// putParts stores a result in parts, before the record names it, except for the parts
// that are done. It fails like a call that has not touched the record.
func (s *Store) putParts(k *call, id, owner string, b protocol.Body, expires time.Time, done *protocol.Progress) error {
	prefix := partKeyPrefix(id, owner, b.Digest)
	g, ctx := errgroup.WithContext(k.ctx)
	g.SetLimit(partsAtOnce)
	for n := range b.Parts {
		if done.Done(prefix + strconv.Itoa(n)) {
			continue
		}
		g.Go(func() error {
			it := key(prefix + strconv.Itoa(n))
			it[schema.Data] = &types.AttributeValueMemberB{Value: b.Data[n*partSize : min((n+1)*partSize, b.Stored)]}
			if !expires.IsZero() {
				it[schema.ExpiresAt] = &types.AttributeValueMemberN{
					Value: strconv.FormatInt(expiry(expires.Add(partsOutlive)), 10),
				}
			}
			in := &dynamodb.PutItemInput{TableName: s.table, Item: it}
			if at, ok := it[schema.ExpiresAt]; ok {
				// A try that arrives late takes nothing from who has extended the record.
				in.ConditionExpression, in.ExpressionAttributeValues = aws.String(ifNotExtended), item{":exp": at}
			}
			part := &call{retrier: k.retrier, ctx: ctx, op: k.op}
			err := part.do(false, partTime*k.attempt, func(ctx context.Context) error {
				_, err := s.client.PutItem(ctx, in, s.optFns...)
				return err
			})
			if err != nil && !isConditionFailed(err) { // else it is there already
				return fmt.Errorf("part %d of %d of the result: %w", n+1, b.Parts, errors.Unwrap(err))
			}
			done.Note(prefix + strconv.Itoa(n))
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return &protocol.StoreError{Op: k.op, Ambiguous: k.maybe, ResultNotStored: true, Err: err}
	}
	return nil
}

// getParts reads a result's stored form from its parts, and shows that
// it is what the record says.
func (s *Store) getParts(k *call, id, writer string, b protocol.Body) ([]byte, error) {
	if b.Parts > maxParts || b.Stored > resultLimit || b.Parts != partCount(b.Stored) || len(b.Digest) != sha256.Size {
		return nil, unreadable(id, "its result of %d bytes cannot lie in %d parts", b.Stored, b.Parts)
	}
	prefix := partKeyPrefix(id, writer, b.Digest)
	want := make(map[string]int, b.Parts)
	keys := make([]map[string]types.AttributeValue, b.Parts)
	for n := range b.Parts {
		keys[n] = key(prefix + strconv.Itoa(n))
		want[prefix+strconv.Itoa(n)] = n
	}
	parts := make([][]byte, b.Parts)
	err := s.batchGet(k, keys, func(it item) {
		data, ok := it[schema.Data].(*types.AttributeValueMemberB)
		if n, mine := want[text(it, schema.PK)]; ok && mine {
			parts[n] = data.Value
		}
	})
	if err != nil {
		return nil, err
	}
	for n, p := range parts {
		if p == nil {
			return nil, unreadable(id, "part %d of %d of its result is missing", n+1, b.Parts)
		}
	}
	stored := bytes.Join(parts, nil)
	if len(stored) != b.Stored {
		return nil, unreadable(id, "the parts of its result have %d bytes and should have %d", len(stored), b.Stored)
	}
	if sum := sha256.Sum256(stored); !bytes.Equal(sum[:], b.Digest) {
		return nil, unreadable(id, "the parts of its result were altered")
	}
	return stored, nil
}
