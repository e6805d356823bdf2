package dynamostore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"golang.org/x/sync/errgroup"

	"github.com/idem-go/idempotency/idem/protocol"
)

// Prolong implements [protocol.AdminStore]: one GetItem, an UpdateItem for each part of a large
// result, and one for the record, in a transaction if there is an audit entry. The parts come
// first: if the record were first, it could outlive them. Results of steps are of no use after
// the end, and expire as they would.
func (s *AdminStore) Prolong(ctx context.Context, now time.Time, p protocol.Prolongation) error {
	k := s.retry.begin(ctx, "Prolong")
	defer k.end()
	it, err := s.get(k, key(p.ID))
	if err != nil {
		return err
	}
	if it == nil {
		return &protocol.ConflictError{}
	}
	rec, err := decode(it)
	if err != nil {
		return err
	}
	if rec.Bears(p.Write) { // an earlier call has made it, and may not have confirmed its entry
		return s.audited(k, p.Audit, func(companion) error { return nil })
	}
	if next, err := p.Apply(rec, now); err != nil || next == rec {
		return err
	}
	if err := s.prolongParts(k, rec, p.ExpiresAt); err != nil {
		return err
	}
	return s.audited(k, p.Audit, func(tx companion) error {
		u := newUpdate(prolongSet, 6, 3)
		u.num(":exp", expiry(p.ExpiresAt))
		u.str(":id", p.Write)
		u.str(":seen", p.Seen)
		u.num(":at", now.Unix())
		u.str(":completed", string(protocol.Completed))
		u.str(":failed", string(protocol.Failed))
		u.str(":released", string(protocol.Released))
		old, err := s.updateWith(k, tx, key(p.ID), p.Write, u, ifSeen+ifEnded+ifExpiring)
		return conclude(old, err, p.Write)
	})
}

// prolongParts raises the expiry of the parts of the record's result. If one is missing, the
// result is unreadable, unless the record was deleted before it.
func (s *AdminStore) prolongParts(k *call, rec *protocol.Record, until time.Time) error {
	if rec.Body.Parts == 0 {
		return nil
	}
	prefix, vals := partKeyPrefix(rec.ID, rec.Owner, rec.Body.Digest), newValues(0, 1)
	vals.num(":exp", expiry(until.Add(partsOutlive)))
	missing := make([]bool, rec.Body.Parts)
	g, ctx := errgroup.WithContext(k.ctx)
	g.SetLimit(partsAtOnce)
	for n := range missing {
		g.Go(func() error {
			part := &call{retrier: k.retrier, ctx: ctx, op: k.op}
			in := &dynamodb.UpdateItemInput{
				TableName: s.table, Key: key(prefix + strconv.Itoa(n)), UpdateExpression: aws.String(partExpires),
				ConditionExpression: aws.String(partExpiring), ExpressionAttributeValues: vals.item,
				ReturnValuesOnConditionCheckFailure: allOld,
			}
			old, err := s.send(part, in.Key, func(ctx context.Context) error {
				_, err := s.client.UpdateItem(ctx, in, s.optFns...)
				return err
			})
			if err == errRefused { // it is kept longer than that, or is missing
				missing[n], err = old == nil, nil
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return fmt.Errorf("dynamostore: the record is kept as long as before: %w", err)
	}
	for n, lost := range missing {
		if !lost {
			continue
		}
		it, err := s.get(k, key(rec.ID))
		if err != nil {
			return err
		}
		if it == nil || writeOf(it) != rec.Write {
			return conclude(it, errRefused, "")
		}
		return unreadable(rec.ID, "part %d of %d of its result is missing", n+1, rec.Body.Parts)
	}
	return nil
}
