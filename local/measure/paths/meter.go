package paths

import (
	"context"
	"errors"
	"math"
	"reflect"
	"sync"

	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
)

// Usage is what calls took.
type Usage struct {
	// Calls by DynamoDB operation.
	Calls map[string]int
	// Write and Read capacity units. DynamoDB reports them, but not for a write
	// whose condition failed: those are computed from the item's size and also
	// counted in Computed.
	Write, Read, Computed float64
}

// Meter counts the calls of the clients that it is part of:
//
//	client := dynamodb.New(options, meter.Count)
type Meter struct {
	mu    sync.Mutex
	usage Usage
}

// Take returns the usage since the last Take.
func (m *Meter) Take() Usage {
	m.mu.Lock()
	defer m.mu.Unlock()
	u := m.usage
	m.usage = Usage{}
	return u
}

// Count is an option of a client.
func (m *Meter) Count(o *dynamodb.Options) {
	o.APIOptions = append(o.APIOptions, func(s *middleware.Stack) error {
		return s.Initialize.Add(middleware.InitializeMiddlewareFunc("Meter", m.call), middleware.After)
	})
}

func (m *Meter) call(ctx context.Context, in middleware.InitializeInput,
	next middleware.InitializeHandler) (out middleware.InitializeOutput, md middleware.Metadata, err error) {
	op := awsmiddleware.GetOperationName(ctx)
	if op != transact {
		// All other inputs that the library sends have this field.
		reflect.ValueOf(in.Parameters).Elem().FieldByName("ReturnConsumedCapacity").Set(
			reflect.ValueOf(types.ReturnConsumedCapacityTotal))
	}
	out, md, err = next.HandleInitialize(ctx, in)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usage.Calls == nil {
		m.usage.Calls = map[string]int{}
	}
	m.usage.Calls[op]++
	var failed *types.ConditionalCheckFailedException
	computed := 0.0
	switch {
	case op == transact:
		computed = transactionUnits(in.Parameters.(*dynamodb.TransactWriteItemsInput))
	case errors.As(err, &failed):
		// A failed conditional write is billed by the size of the existing item, at
		// least one unit (DynamoDB developer guide, "Conditional writes").
		computed = math.Max(1, math.Ceil(float64(ItemSize(failed.Item))/1024))
	case err != nil:
	case op == get, op == batchGet, op == query:
		m.usage.Read += reported(out.Result)
	default:
		m.usage.Write += reported(out.Result)
	}
	m.usage.Write += computed
	m.usage.Computed += computed
	return out, md, err
}

// reported are the units that DynamoDB reports in an output: for one table, or for each.
func reported(output any) (sum float64) {
	switch c := reflect.ValueOf(output).Elem().FieldByName("ConsumedCapacity").Interface().(type) {
	case *types.ConsumedCapacity:
		sum = *c.CapacityUnits
	case []types.ConsumedCapacity:
		for _, one := range c {
			sum += *one.CapacityUnits
		}
	}
	return sum
}

// transactionUnits are computed from the items, because DynamoDB Local's own report is
// wrong: a write in a transaction costs two units a kilobyte, also if it is cancelled
// (developer guide, "Capacity management for transactions").
func transactionUnits(in *dynamodb.TransactWriteItemsInput) (sum float64) {
	for _, a := range in.TransactItems {
		var size int
		switch {
		case a.Put != nil:
			size = ItemSize(a.Put.Item)
		case a.Update != nil:
			size = ItemSize(a.Update.Key) + ItemSize(a.Update.ExpressionAttributeValues)
		case a.Delete != nil:
			size = ItemSize(a.Delete.Key)
		case a.ConditionCheck != nil:
			size = ItemSize(a.ConditionCheck.Key)
		}
		sum += 2 * math.Max(1, math.Ceil(float64(size)/1024))
	}
	return sum
}

// ItemSize is an item's size as DynamoDB counts it: names and values in UTF-8, a
// number about a byte for two digits and one more, three bytes for a map and one
// for each of its entries.
func ItemSize(item map[string]types.AttributeValue) int {
	n := 0
	for name, v := range item {
		n += len(name) + valueSize(v)
	}
	return n
}

func valueSize(v types.AttributeValue) int {
	switch v := v.(type) {
	case *types.AttributeValueMemberS:
		return len(v.Value)
	case *types.AttributeValueMemberB:
		return len(v.Value)
	case *types.AttributeValueMemberN:
		return (len(v.Value)+1)/2 + 1
	case *types.AttributeValueMemberM:
		return 3 + len(v.Value) + ItemSize(v.Value)
	case *types.AttributeValueMemberL:
		n := 3 + len(v.Value)
		for _, e := range v.Value {
			n += valueSize(e)
		}
		return n
	}
	return 1
}
