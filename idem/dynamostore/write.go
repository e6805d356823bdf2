package dynamostore

import (
	"cmp"
	"context"
	"errors"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// maxForms bounds how often one write changes its form because the record is not what
// it was taken for; each time another writer came first.
const maxForms = 4

// inForm sends a write in the form that was guessed. If the write is refused, fits
// returns the form for the conflicting record (nil if there is none). The write is sent
// again if that is another form.
func inForm[F comparable](form F, write string, send func(F) (item, error), fits func(item) (F, bool)) (item, error) {
	for n := 1; ; n++ {
		old, err := send(form)
		if err != errRefused || bears(old, write) || n == maxForms {
			return old, err
		}
		other, ok := fits(old)
		if !ok || other == form {
			return old, err
		}
		form = other
	}
}

// put sends a conditional PutItem. See [Store.send].
func (s *Store) put(c *call, it item, cond string, vals item) (item, error) {
	in := &dynamodb.PutItemInput{
		TableName: s.table, Item: it,
		ConditionExpression: &cond, ExpressionAttributeValues: vals,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	return s.send(c, it, func(ctx context.Context) error {
		_, err := s.client.PutItem(ctx, in, s.optFns...)
		return err
	})
}

// update sends a conditional UpdateItem. See [Store.send]. Applied, it returns what
// it has changed as it was, if it was asked for that.
func (s *Store) update(c *call, id string, u *update, cond string) (item, error) {
	return s.updateItem(c, key(id), u, cond)
}

// updateWith is update in one transaction with a companion, if there is one.
func (s *Store) updateWith(k *call, with companion, key item, write string, u *update, cond string) (item, error) {
	if with != nil {
		return with.update(k, key, write, u, cond)
	}
	return s.updateItem(k, key, u, cond)
}

// updateItem is update of any item.
func (s *Store) updateItem(c *call, key item, u *update, cond string) (item, error) {
	expr := u.expression()
	in := &dynamodb.UpdateItemInput{
		TableName: s.table, Key: key, UpdateExpression: &expr,
		ConditionExpression: &cond, ExpressionAttributeValues: u.item, ExpressionAttributeNames: u.names,
		ReturnValuesOnConditionCheckFailure: types.ReturnValuesOnConditionCheckFailureAllOld,
	}
	if u.wantsOld {
		in.ReturnValues = types.ReturnValueUpdatedOld
	}
	var changed item
	old, err := s.send(c, in.Key, func(ctx context.Context) error {
		out, err := s.client.UpdateItem(ctx, in, s.optFns...)
		if out != nil {
			changed = out.Attributes
		}
		return err
	})
	if err == nil {
		return changed, nil
	}
	return old, err
}

// send makes a conditional write. It returns nil if it was applied, errRefused
// and the conflicting item (nil if there is none) if its condition did
// not hold, else a *idem.StoreError.
func (s *Store) send(c *call, key item, write func(context.Context) error) (item, error) {
	err := c.do(true, c.attempt, write)
	if err == nil {
		return nil, nil
	}
	failed, ok := errors.AsType[*types.ConditionalCheckFailedException](err)
	if !ok {
		return nil, err
	}
	if len(failed.Item) > 0 {
		return failed.Item, errRefused
	}
	// No item comes with the failure if there is none, but also if whatever stands
	// between did not pass it on: ask.
	old, err := s.get(c, item{schema.PK: key[schema.PK], schema.SK: key[schema.SK]})
	if err != nil {
		return nil, err
	}
	return old, errRefused
}

// companion is what commits with a record's write, in one transaction: a unit of work,
// or an audit entry. It is an interface, which [Tx] and [AdminStore] alone make, so that a
// function without either does not carry the code of transactions.
type companion interface {
	// update sends it with an UpdateItem, send with any write.
	// Both answer as [Store.send] does.
	update(k *call, key item, write string, u *update, cond string) (item, error)
	send(k *call, write string, record types.TransactWriteItem) (item, error)
}

// unit is a unit of work of this package, a [*Tx].
type unit interface {
	protocol.Unit
	// companion prepares what commits with the end; nil if there is nothing.
	companion(s *Store, f protocol.Finish, now time.Time) (companion, error)
}

// errRefused says that a write's condition did not hold.
var errRefused = errors.New("condition did not hold")

// conclude says what a write's end means: nil for a write that was applied, now
// or by an earlier try, else the contract's error.
func conclude(old item, err error, write string) error {
	switch {
	case err != errRefused:
		return err
	case bears(old, write):
		return nil
	case old == nil:
		return &protocol.ConflictError{}
	}
	rec, err := decode(old)
	if err != nil {
		return err
	}
	return &protocol.ConflictError{Existing: rec}
}

// bears reports whether the write with this id has landed: the item is what it made of
// it, or what the latest claim made of that.
func bears(it item, write string) bool {
	return write != "" && (writeOf(it) == write || text(it, schema.Seen) == write)
}

// writeOf is the id of the write that made the item what it is.
func writeOf(it item) string { return cmp.Or(text(it, schema.Write), text(it, schema.Owner)) }

// text is a string attribute, or "".
func text(it item, name string) string {
	if a, ok := it[name].(*types.AttributeValueMemberS); ok {
		return a.Value
	}
	return ""
}

func hasSteps(it item) bool { return has(it, schema.Steps) }

func has(it item, name string) bool {
	_, ok := it[name]
	return ok
}

// key is the primary key of a record or a part.
func key(pk string) item { return itemKey(pk, schema.RecordSK) }

func itemKey(pk, sk string) item {
	k := &struct{ pk, sk types.AttributeValueMemberS }{}
	k.pk.Value, k.sk.Value = pk, sk
	return item{schema.PK: &k.pk, schema.SK: &k.sk}
}

// update collects the clauses and values of one UpdateItem.
type update struct {
	*values
	set, remove strings.Builder
	names       map[string]string // of steps
	wantsOld    bool              // of what it changes
}

// numOr sets a number, or removes it where without it it is the same.
func (u *update) numOr(name string, value, without int64) {
	if value == without {
		u.drop(name)
		return
	}
	u.add("," + name + "=:" + name)
	u.num(":"+name, value)
}

// strOr sets a text, or removes it where it is empty.
func (u *update) strOr(name, value string) {
	if value == "" {
		u.drop(name)
		return
	}
	u.add("," + name + "=:" + name)
	u.str(":"+name, value)
}

// yesOr sets a flag, or removes it.
func (u *update) yesOr(name string, is bool) {
	if !is {
		u.drop(name)
		return
	}
	u.add("," + name + "=:true")
	u.yes(":true")
}

// newUpdate starts with the clauses that are always there.
func newUpdate(set string, strs, nums int) *update {
	u := &update{values: newValues(strs, nums)}
	u.set.Grow(len(set) + 96)
	u.set.WriteString(set)
	return u
}

// add appends to the SET clause.
func (u *update) add(clause string) { u.set.WriteString(clause) }

// drop appends attributes to the REMOVE clause.
func (u *update) drop(names string) {
	if u.remove.Len() > 0 {
		u.remove.WriteByte(',')
	}
	u.remove.WriteString(names)
}

func (u *update) expression() string {
	if u.remove.Len() > 0 {
		u.set.WriteString(" REMOVE ")
		u.set.WriteString(u.remove.String())
	}
	return u.set.String()
}

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
