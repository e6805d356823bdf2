package main

import (
	"context"
	"fmt"
	"time"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/dynamostore"
	"github.com/idem-go/idempotency/idem/protocol"
)

// tries is how often is asked what is too slow, as on a busy machine.
const tries = 5

func (r *run) tables() {
	for i, table := range []string{r.payments["TableName"], r.orders["TableName"]} {
		r.check("the records of "+[]string{"payments", "orders"}[i], "keys, index, TTL", func() string {
			var err error
			for range tries {
				if err = dynamostore.Check(r.ctx, r.db, table); err == nil {
					return "keys, index, TTL"
				}
			}
			return err.Error()
		})
	}
}

// record finds the record of a key of one of the tenants, and its store; nil if there is none.
func (r *run) record(ctx context.Context, table string, op idem.Operation, value string,
	tenants ...string) (*dynamostore.AdminStore, *idem.Record, error) {
	store, err := dynamostore.NewAdminStore(r.db, table,
		&dynamostore.Options{AttemptTimeout: 10 * time.Second, Budget: time.Minute})
	for _, tenant := range tenants {
		key := op.Key(tenant, value)
		if err != nil || key.Err() != nil { // such as a claim that is too long for a tenant
			continue
		}
		var rec *idem.Record
		if rec, err = store.Get(ctx, key.ID()); rec != nil {
			return store, rec, nil
		}
	}
	return store, nil, err
}

// forget deletes a record. Nothing of it is to stay, so its history has no entry.
func (r *run) forget(ctx context.Context, table string, op idem.Operation, value string, tenants ...string) error {
	store, rec, err := r.record(ctx, table, op, value, tenants...)
	if err != nil {
		return err
	}
	if rec == nil {
		return errAbsent
	}
	return store.Forget(ctx, time.Now(), protocol.Erasure{ID: rec.ID, Seen: rec.Write})
}

func recordOf(op idem.Operation, value, table string) string {
	return fmt.Sprintf("the record of %s, operation %s, in %s", value, op.Name, table)
}
