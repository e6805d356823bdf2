package dynamostore

import (
	"context"
	"errors"
	"math"
	"net/url"
	"strings"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"

	"github.com/idem-go/idempotency/idem/schema"
)

// MeterCapacity makes the clients of a configuration ask DynamoDB how many write and read units
// each call on the table takes, and report them, under the operation whose record it is about.
// The operation is empty for calls on no single one, such as a sweep's Query. Asking costs
// no units. tell is called on the caller's path: it must be quick and safe for concurrent use.
//
//	cfg.APIOptions = append(cfg.APIOptions, dynamostore.MeterCapacity(table, metrics.Units)) // of emf or otelidem
//	client, err := dynamostore.NewClient(cfg, nil)
//
// A transaction is reported with its writes to other tables; other calls on other tables are
// not asked about. DynamoDB says nothing of a write whose condition fails, such as a
// replay's: its units are computed from the item's size, those of a cancelled transaction
// from its request, which does not have the size of what it would have changed. A call that
// got no answer is not counted.
// https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
func MeterCapacity(table string, tell func(ctx context.Context, operation string, write, read float64)) func(
	*middleware.Stack) error {
	ask := func(ctx context.Context, in middleware.InitializeInput,
		next middleware.InitializeHandler) (middleware.InitializeOutput, middleware.Metadata, error) {
		asked, id, ok := askFor(table, in.Parameters)
		if !ok {
			return next.HandleInitialize(ctx, in)
		}
		in.Parameters = asked
		out, md, err := next.HandleInitialize(ctx, in)
		write, read := unitsOf(out.Result)
		if err != nil {
			write = refusedUnits(asked, err)
		}
		if write > 0 || read > 0 {
			tell(ctx, operationOf(id), write, read)
		}
		return out, md, err
	}
	return func(s *middleware.Stack) error {
		return s.Initialize.Add(middleware.InitializeMiddlewareFunc("idem.MeterCapacity", ask), middleware.After)
	}
}

// askFor returns a copy of the input that asks for its units, and the partition key that it
// is about; false if it is not about the table.
func askFor(table string, input any) (asked any, id string, ok bool) {
	const total = types.ReturnConsumedCapacityTotal
	switch in := input.(type) {
	case *dynamodb.PutItemInput:
		c := *in
		c.ReturnConsumedCapacity = total
		return &c, text(c.Item, schema.PK), is(c.TableName, table)
	case *dynamodb.UpdateItemInput:
		c := *in
		c.ReturnConsumedCapacity = total
		return &c, text(c.Key, schema.PK), is(c.TableName, table)
	case *dynamodb.DeleteItemInput:
		c := *in
		c.ReturnConsumedCapacity = total
		return &c, text(c.Key, schema.PK), is(c.TableName, table)
	case *dynamodb.GetItemInput:
		c := *in
		c.ReturnConsumedCapacity = total
		return &c, text(c.Key, schema.PK), is(c.TableName, table)
	case *dynamodb.BatchGetItemInput:
		c := *in
		c.ReturnConsumedCapacity = total
		keys := c.RequestItems[table].Keys
		for i, k := range keys {
			pk := text(k, schema.PK)
			if i > 0 && operationOf(pk) != operationOf(id) {
				return &c, "", true // of several operations
			}
			id = pk
		}
		return &c, id, len(keys) > 0
	case *dynamodb.QueryInput:
		c := *in
		c.ReturnConsumedCapacity = total
		return &c, "", is(c.TableName, table)
	case *dynamodb.ScanInput:
		c := *in
		c.ReturnConsumedCapacity = total
		return &c, "", is(c.TableName, table)
	case *dynamodb.TransactWriteItemsInput:
		c := *in
		c.ReturnConsumedCapacity = total
		for _, a := range c.TransactItems {
			name, it := actionOf(&a)
			if is(name, table) {
				return &c, text(it, schema.PK), true
			}
		}
	}
	return nil, "", false
}

func is(name *string, table string) bool { return name != nil && *name == table }

// actionOf is the table that an action of a transaction writes to or looks at, and the item
// or the key that it has.
func actionOf(a *types.TransactWriteItem) (table *string, it item) {
	switch {
	case a.Put != nil:
		return a.Put.TableName, a.Put.Item
	case a.Update != nil:
		return a.Update.TableName, a.Update.Key
	case a.Delete != nil:
		return a.Delete.TableName, a.Delete.Key
	case a.ConditionCheck != nil:
		return a.ConditionCheck.TableName, a.ConditionCheck.Key
	}
	return nil, nil
}

// operationOf is the operation in a partition key of the table.
func operationOf(pk string) string {
	_, rest, _ := strings.Cut(pk, "#")
	name, _, _ := strings.Cut(rest, "#")
	if plain, err := url.PathUnescape(name); err == nil {
		return plain
	}
	return name
}

// unitsOf are the units that DynamoDB says an output took.
func unitsOf(output any) (write, read float64) {
	switch out := output.(type) {
	case *dynamodb.PutItemOutput:
		return total(out.ConsumedCapacity), 0
	case *dynamodb.UpdateItemOutput:
		return total(out.ConsumedCapacity), 0
	case *dynamodb.DeleteItemOutput:
		return total(out.ConsumedCapacity), 0
	case *dynamodb.TransactWriteItemsOutput:
		for _, c := range out.ConsumedCapacity {
			write += total(&c)
		}
	case *dynamodb.GetItemOutput:
		return 0, total(out.ConsumedCapacity)
	case *dynamodb.QueryOutput:
		return 0, total(out.ConsumedCapacity)
	case *dynamodb.ScanOutput:
		return 0, total(out.ConsumedCapacity)
	case *dynamodb.BatchGetItemOutput:
		for _, c := range out.ConsumedCapacity {
			read += total(&c)
		}
	}
	return write, read
}

func total(c *types.ConsumedCapacity) float64 {
	if c == nil || c.CapacityUnits == nil {
		return 0
	}
	return *c.CapacityUnits
}

// refusedUnits computes the write units of a call that DynamoDB has refused for a condition.
func refusedUnits(input any, err error) (units float64) {
	if refused, ok := errors.AsType[*types.ConditionalCheckFailedException](err); ok {
		return kilobytes(itemSize(refused.Item))
	}
	in, sent := input.(*dynamodb.TransactWriteItemsInput)
	if _, ok := errors.AsType[*types.TransactionCanceledException](err); !sent || !ok {
		return 0
	}
	for _, a := range in.TransactItems {
		_, it := actionOf(&a)
		units += 2 * kilobytes(itemSize(it))
	}
	return units
}

// kilobytes that are begun, at least one: the units of a write.
func kilobytes(size int) float64 { return math.Max(1, math.Ceil(float64(size)/1024)) }
