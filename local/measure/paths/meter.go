package paths

import (
	"context"
	"errors"
	"math"
	"sync"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/idem-go/idempotency/idem/dynamostore"
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

// Meter is a client that counts.
type Meter struct {
	// Client that does the work.
	Client dynamostore.Client

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

func (m *Meter) count(op string, write, read []types.ConsumedCapacity, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usage.Calls == nil {
		m.usage.Calls = map[string]int{}
	}
	m.usage.Calls[op]++
	m.usage.Write += units(write)
	m.usage.Read += units(read)
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		// A failed conditional write is billed by the size of the existing item, at
		// least one unit (DynamoDB developer guide, "Conditional writes").
		u := math.Max(1, math.Ceil(float64(ItemSize(failed.Item))/1024))
		m.usage.Write += u
		m.usage.Computed += u
	}
}

func units(cs []types.ConsumedCapacity) (sum float64) {
	for _, c := range cs {
		if c.CapacityUnits != nil {
			sum += *c.CapacityUnits
		}
	}
	return sum
}

func one(c *types.ConsumedCapacity) []types.ConsumedCapacity {
	if c == nil {
		return nil
	}
	return []types.ConsumedCapacity{*c}
}

// PutItem implements dynamostore.Client.
func (m *Meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.PutItem(ctx, in, opts...)
	var c []types.ConsumedCapacity
	if err == nil {
		c = one(out.ConsumedCapacity)
	}
	m.count(put, c, nil, err)
	return out, err
}

// UpdateItem implements dynamostore.Client.
func (m *Meter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.UpdateItem(ctx, in, opts...)
	var c []types.ConsumedCapacity
	if err == nil {
		c = one(out.ConsumedCapacity)
	}
	m.count(update, c, nil, err)
	return out, err
}

// GetItem implements dynamostore.Client.
func (m *Meter) GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.GetItem(ctx, in, opts...)
	var c []types.ConsumedCapacity
	if err == nil {
		c = one(out.ConsumedCapacity)
	}
	m.count(get, nil, c, err)
	return out, err
}

// BatchGetItem implements dynamostore.Client.
func (m *Meter) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.BatchGetItem(ctx, in, opts...)
	var c []types.ConsumedCapacity
	if err == nil {
		c = out.ConsumedCapacity
	}
	m.count(batchGet, nil, c, err)
	return out, err
}

// TransactWriteItems implements dynamostore.Client. A write in a transaction costs
// two units a kilobyte, also if it is cancelled; DynamoDB Local's own report is
// wrong, so that they are computed from the items (developer guide, "Capacity
// management for transactions").
func (m *Meter) TransactWriteItems(ctx context.Context, in *dynamodb.TransactWriteItemsInput, opts ...func(*dynamodb.Options)) (*dynamodb.TransactWriteItemsOutput, error) {
	out, err := m.Client.TransactWriteItems(ctx, in, opts...)
	sum := 0.0
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
	m.count(transact, nil, nil, err)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.usage.Write += sum
	m.usage.Computed += sum
	return out, err
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
