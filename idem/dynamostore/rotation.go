package dynamostore

import (
	"context"
	"errors"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

var _ protocol.Rotation = (*Store)(nil)

// Move implements [protocol.Rotation]: one PutItem.
func (s *Store) Move(ctx context.Context, now time.Time, m protocol.Move) error {
	k := s.retry.begin(ctx, "Move")
	defer k.end()
	v := newValues(5, 2)
	v.str(schema.PK, m.ID)
	v.str(schema.SK, schema.RecordSK)
	v.str(schema.State, string(protocol.Moved))
	v.str(schema.MovedTo, m.To)
	v.str(schema.Write, m.Write)
	v.num(schema.CreatedAt, millis(now))
	v.num(schema.ExpiresAt, expiry(m.ExpiresAt))
	var old item
	var err error
	if m.Seen == "" {
		old, err = s.put(k, v.item, ifAbsent, nil)
	} else {
		old, err = s.replace(k, v.item, m.Seen)
	}
	if err == errRefused && text(old, schema.State) == string(protocol.Moved) && text(old, schema.MovedTo) == m.To {
		return nil
	}
	return conclude(old, err, "")
}

// mark reads what stands in place of a record that has moved.
func (d *decoder) mark() (*protocol.Record, error) {
	rec := &protocol.Record{
		ID: d.id, State: protocol.Moved, MovedTo: d.str(schema.MovedTo), Write: d.str(schema.Write),
		CreatedAt: d.time(schema.CreatedAt), ExpiresAt: time.Unix(d.numUpTo(schema.ExpiresAt, maxSeconds), 0).UTC(),
	}
	rec.UpdatedAt = rec.CreatedAt
	if d.err != nil {
		return nil, d.err
	}
	return rec, nil
}

// registerKey is the primary key of an operation's register. No record's id has its form.
func registerKey(operation string) item { return itemKey("#"+operation+"#", schema.RegisterSK) }

// Register implements [protocol.Rotation]: one consistent GetItem.
func (s *Store) Register(ctx context.Context, operation string) (*protocol.Register, error) {
	k := s.retry.begin(ctx, "Register")
	defer k.end()
	it, err := s.get(k, registerKey(operation))
	if it == nil || err != nil {
		return nil, err
	}
	d := &decoder{item: it, id: text(it, schema.PK)}
	r := &protocol.Register{Operation: operation, Version: int(d.numUpTo(schema.RegisterVersion, 1<<31-1))}
	list, ok := it[schema.RegisterSecrets].(*types.AttributeValueMemberL)
	if !ok || len(list.Value) == 0 {
		d.fail(schema.RegisterSecrets, "is missing, empty or no list")
		return nil, d.err
	}
	for _, one := range list.Value {
		m, _ := one.(*types.AttributeValueMemberM)
		if m == nil {
			d.fail(schema.RegisterSecrets, "has what is no map")
			break
		}
		of := &decoder{item: m.Value, id: d.id, err: d.err}
		r.Secrets = append(r.Secrets, protocol.RegisteredSecret{
			Check: of.str(schema.SecretCheck), Since: of.time(schema.SecretSince), Retired: of.flag(schema.SecretRetired),
		})
		d.err = of.err
	}
	if d.err != nil {
		return nil, d.err
	}
	return r, nil
}

// SetRegister implements [protocol.Rotation]: one PutItem.
func (s *Store) SetRegister(ctx context.Context, now time.Time, r protocol.Register) error {
	k := s.retry.begin(ctx, "SetRegister")
	defer k.end()
	v := newValues(2, 1)
	for name, a := range registerKey(r.Operation) {
		v.item[name] = a
	}
	v.num(schema.RegisterVersion, int64(r.Version))
	list := &types.AttributeValueMemberL{}
	for _, one := range r.Secrets {
		m := newValues(1, 1)
		m.str(schema.SecretCheck, one.Check)
		m.num(schema.SecretSince, millis(one.Since))
		if one.Retired {
			m.yes(schema.SecretRetired)
		}
		list.Value = append(list.Value, &types.AttributeValueMemberM{Value: m.item})
	}
	v.item[schema.RegisterSecrets] = list
	var vals item
	cond := ifAbsent
	if r.Version > 1 {
		cond = ifVersion
		before := newValues(0, 1)
		before.num(":before", int64(r.Version-1))
		vals = before.item
	}
	_, err := s.put(k, v.item, cond, vals)
	if errors.Is(err, errRefused) {
		return &protocol.ConflictError{}
	}
	return err
}
