package dynamostore

import (
	"context"
	"time"

	"github.com/idem-go/idempotency/idem/schema"
)

const (
	countSet = "SET " + schema.NewKeys + "=if_not_exists(" + schema.NewKeys + ",:zero)+:one,expires_at=:exp"
	ifBelow  = "attribute_not_exists(" + schema.NewKeys + ") OR " + schema.NewKeys + "<:bound"
)

// CountKey implements limit.Counter: one UpdateItem.
func (s *Store) CountKey(ctx context.Context, counter string, bound int, expires time.Time) (counted bool, err error) {
	k := s.retry.beginSparing(ctx, "CountKey")
	defer k.end()
	u := newUpdate(countSet, 0, 4)
	u.num(":zero", 0)
	u.num(":one", 1)
	u.num(":bound", int64(bound))
	u.num(":exp", expiry(expires))
	_, err = s.updateItem(k, itemKey(counter, schema.LimitSK), u, ifBelow)
	if err == errRefused {
		return false, nil
	}
	return err == nil, err
}
