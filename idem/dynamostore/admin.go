package dynamostore

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// AdminClient is what an [AdminStore] uses of a *dynamodb.Client.
type AdminClient interface {
	OutboxClient
	DeleteItem(context.Context, *dynamodb.DeleteItemInput, ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error)
}

// AdminStore is a [Store] that also finds what is due and keeps an audit, for sweeps and for
// operators. It is a type of its own so that a function that never asks does not carry the
// code, nor needs the permissions: dynamodb:Query on the index, and for [AdminStore.AuditOf] and
// [AdminStore.Forget] also dynamodb:Query and DeleteItem on the table. It is safe for concurrent
// use.
type AdminStore struct {
	*Store
	client AdminClient
}

var (
	_ protocol.Store      = (*AdminStore)(nil)
	_ protocol.AdminStore = (*AdminStore)(nil)
)

// NewAdminStore returns the admin store of a table. It makes no call. Mistakes are
// an [*idem.ConfigError].
func NewAdminStore(client AdminClient, table string, o *Options) (*AdminStore, error) {
	s, err := New(client, table, o)
	if err != nil {
		return nil, err
	}
	return &AdminStore{Store: s, client: client}, nil
}

// Due implements [protocol.AdminStore]: one Query on the index, which reads what is due
// and nothing else.
func (s *AdminStore) Due(ctx context.Context, d protocol.DueQuery) (protocol.DuePage, error) {
	if d.Shard < 0 || d.Shard >= schema.ShardCount {
		return protocol.DuePage{}, fmt.Errorf("dynamostore: Due: there is no shard %d", d.Shard)
	}
	name := shardName(uint32(d.Shard))
	until := decimal(millis(d.Until))
	from, err := parseCursor(name, d.Page, "0", until)
	if err != nil {
		return protocol.DuePage{}, err
	}
	k := s.retry.begin(ctx, "Due")
	defer k.end()
	out, err := s.queryIndex(k, s.client, name, "0", until, from, d.Limit)
	if err != nil {
		return protocol.DuePage{}, err
	}
	p := protocol.DuePage{Next: formatCursor(out.LastEvaluatedKey)}
	for _, it := range out.Items {
		d := decoder{item: it}
		p.IDs, p.Due = append(p.IDs, text(it, schema.PK)), append(p.Due, d.time(schema.OpenDue))
	}
	return p, nil
}

// maxPage is more index entries than a reply of 1 MB holds.
const maxPage = 10_000

// Settle is [Store.Settle], and writes the audit entry.
func (s *AdminStore) Settle(ctx context.Context, now time.Time, w protocol.Settlement) error {
	k := s.retry.begin(ctx, "Settle")
	defer k.end()
	return s.audited(k, w.Audit, func(tx companion) error { return s.settle(k, now, w, tx) })
}

// Postpone implements [protocol.AdminStore]: one UpdateItem, or a transaction with the
// audit entry.
func (s *AdminStore) Postpone(ctx context.Context, now time.Time, p protocol.Postponement) error {
	k := s.retry.begin(ctx, "Postpone")
	defer k.end()
	return s.audited(k, p.Audit, func(tx companion) error {
		u := newUpdate(postponeSet, 3, 3)
		if !p.Runs {
			u.opens(p.ID, postponeShard)
		}
		u.num(":due", millis(p.Due))
		u.str(":id", p.Sweep)
		u.str(":seen", p.Seen)
		u.numOr(schema.Probes, int64(p.Probes), 0)
		u.numOr(schema.EscalatedAt, millis(p.EscalatedAt), 0)
		cond := ifSeen + ifUnswept
		if p.SeenSweep != "" {
			cond = ifSeen + ifSwept
			u.str(":sweep", p.SeenSweep)
		}
		old, err := s.updateWith(k, tx, key(p.ID), p.Sweep, u, cond)
		if err == errRefused && text(old, schema.Sweep) == p.Sweep {
			return nil
		}
		return conclude(old, err, "")
	})
}

// Forget implements [protocol.AdminStore]: one GetItem, a DeleteItem for the record, in a
// transaction if there is an audit entry, and then one for each part of a large result.
// Parts that an error leaves expire a day after the record's retention.
func (s *AdminStore) Forget(ctx context.Context, now time.Time, e protocol.Erasure) error {
	k := s.retry.begin(ctx, "Forget")
	defer k.end()
	it, err := s.get(k, key(e.ID))
	if it == nil || err != nil {
		return err
	}
	rec, err := decode(it)
	if err != nil {
		return err
	}
	if _, err := e.Apply(rec, now); err != nil {
		return err
	}
	var old item
	err = s.audited(k, e.Audit, func(tx companion) (err error) {
		old, err = s.erase(k, e, tx)
		return err
	})
	if err != nil && (err != errRefused || old != nil) {
		return conclude(old, err, "")
	}
	// The record is deleted, and with it all that named the parts. In the other order a refusal would
	// leave a record without its result.
	for n := range rec.Body.Parts {
		part := key(partKeyPrefix(rec.ID, rec.Owner, rec.Body.Digest) + strconv.Itoa(n))
		err := k.do(true, k.attempt, func(ctx context.Context) error {
			_, err := s.client.DeleteItem(ctx, &dynamodb.DeleteItemInput{TableName: s.table, Key: part}, s.optFns...)
			return err
		})
		if err != nil {
			return fmt.Errorf("dynamostore: the record is removed, and parts of its result are left: they expire a day after "+
				"its retention: %w", err)
		}
	}
	return nil
}

// erase deletes the record, with what commits with that. See [Store.send].
func (s *AdminStore) erase(k *call, e protocol.Erasure, tx companion) (item, error) {
	vals := newValues(4, 0)
	vals.str(":seen", e.Seen)
	vals.str(":completed", string(protocol.Completed))
	vals.str(":failed", string(protocol.Failed))
	vals.str(":released", string(protocol.Released))
	cond := ifSeen + ifEnded
	if tx != nil {
		// Two who forget the same are two transactions.
		return tx.send(k, "forget "+e.Audit.Entry, types.TransactWriteItem{Delete: &types.Delete{
			TableName: s.table, Key: key(e.ID), ConditionExpression: &cond, ExpressionAttributeValues: vals.item,
			ReturnValuesOnConditionCheckFailure: allOld,
		}})
	}
	in := &dynamodb.DeleteItemInput{
		TableName: s.table, Key: key(e.ID), ConditionExpression: &cond, ExpressionAttributeValues: vals.item,
		ReturnValuesOnConditionCheckFailure: allOld,
	}
	return s.send(k, in.Key, func(ctx context.Context) error {
		_, err := s.client.DeleteItem(ctx, in, s.optFns...)
		return err
	})
}
