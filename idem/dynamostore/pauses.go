package dynamostore

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// Pauses reads what is paused in a table, for package pause: make it with [PausesOf]. It is a type of its own so
// that a function without pauses does not carry the code. It is safe for concurrent use.
type Pauses struct{ store *Store }

// PausesOf returns the pauses of the store's table. It makes no call.
func PausesOf(s *Store) *Pauses { return &Pauses{s} }

// ReadPaused implements pause.Store: one consistent GetItem.
func (p *Pauses) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	if p.store == nil {
		return protocol.Paused{}, &protocol.ConfigError{What: "dynamostore.PausesOf",
			Problem: "the store is nil: make one with dynamostore.New"}
	}
	return readPaused(ctx, p.store)
}

// ReadPaused implements reconcile.PauseStore: one consistent GetItem.
func (s *AdminStore) ReadPaused(ctx context.Context) (protocol.Paused, error) {
	return readPaused(ctx, s.Store)
}

func readPaused(ctx context.Context, s *Store) (protocol.Paused, error) {
	k := s.retry.beginSparing(ctx, "ReadPaused")
	defer k.end()
	it, err := s.get(k, itemKey(schema.PausesPK, schema.PausesSK))
	if it == nil || err != nil {
		return protocol.Paused{}, err
	}
	p := protocol.Paused{Write: text(it, schema.Write)}
	err = json.Unmarshal([]byte(text(it, schema.Pauses)), &p.Pauses)
	if err == nil && p.Write == "" {
		err = errors.New("it has no " + schema.Write)
	}
	if err != nil {
		return protocol.Paused{}, k.fail(fmt.Errorf("what is paused cannot be read: the table's item with pk %q and sk "+
			"%q is damaged: delete it, which resumes all calls, and pause again what must be paused: %w",
			schema.PausesPK, schema.PausesSK, err))
	}
	return p, nil
}

// WritePaused implements reconcile.PauseStore: a transaction of a PutItem and the audit entry.
func (s *AdminStore) WritePaused(ctx context.Context, w protocol.PausedWrite) error {
	list, err := json.Marshal(w.Pauses)
	if err != nil {
		return err
	}
	k := s.retry.begin(ctx, "WritePaused")
	defer k.end()
	v := newValues(4, 0)
	v.str(schema.PK, schema.PausesPK)
	v.str(schema.SK, schema.PausesSK)
	v.str(schema.Write, w.Write)
	v.str(schema.Pauses, string(list))
	cond, seen := ifAbsent, item(nil)
	if w.Seen != "" {
		cond, seen = "write_id=:seen", seenValue(w.Seen)
	}
	err = s.audited(k, w.Audit, func(tx companion) error {
		var old item
		var err error
		if tx != nil {
			old, err = tx.send(k, w.Write, types.TransactWriteItem{Put: &types.Put{
				TableName: s.table, Item: v.item, ConditionExpression: &cond, ExpressionAttributeValues: seen,
				ReturnValuesOnConditionCheckFailure: allOld,
			}})
		} else {
			old, err = s.put(k, v.item, cond, seen)
		}
		if err == errRefused && text(old, schema.Write) == w.Write {
			return nil
		}
		return err
	})
	switch {
	case err != errRefused:
		return err
	case k.maybe:
		// It may have landed, and have been replaced since.
		return k.fail(errors.New("what is paused was changed by another write since"))
	}
	return &protocol.ConflictError{}
}
