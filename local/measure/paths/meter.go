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
	Client dynamostore.QuestionsClient

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

func (m *Meter) add(op string, write, read, computed float64, err error) {
	var failed *types.ConditionalCheckFailedException
	if errors.As(err, &failed) {
		// A failed conditional write is billed by the size of the existing item, at
		// least one unit (DynamoDB developer guide, "Conditional writes").
		computed = math.Max(1, math.Ceil(float64(ItemSize(failed.Item))/1024))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.usage.Calls == nil {
		m.usage.Calls = map[string]int{}
	}
	m.usage.Calls[op]++
	m.usage.Write += write + computed
	m.usage.Read += read
	m.usage.Computed += computed
}

func units(consumed ...*types.ConsumedCapacity) (sum float64) {
	for _, c := range consumed {
		if c != nil && c.CapacityUnits != nil {
			sum += *c.CapacityUnits
		}
	}
	return sum
}

// PutItem implements dynamostore.Client.
func (m *Meter) PutItem(ctx context.Context, in *dynamodb.PutItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.PutItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.PutItem(ctx, in, opts...)
	if err != nil {
		m.add(put, 0, 0, 0, err)
		return nil, err
	}
	m.add(put, units(out.ConsumedCapacity), 0, 0, nil)
	return out, nil
}

// UpdateItem implements dynamostore.Client.
func (m *Meter) UpdateItem(ctx context.Context, in *dynamodb.UpdateItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.UpdateItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.UpdateItem(ctx, in, opts...)
	if err != nil {
		m.add(update, 0, 0, 0, err)
		return nil, err
	}
	m.add(update, units(out.ConsumedCapacity), 0, 0, nil)
	return out, nil
}

// GetItem implements dynamostore.Client.
func (m *Meter) GetItem(ctx context.Context, in *dynamodb.GetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.GetItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.GetItem(ctx, in, opts...)
	if err != nil {
		m.add(get, 0, 0, 0, err)
		return nil, err
	}
	m.add(get, 0, units(out.ConsumedCapacity), 0, nil)
	return out, nil
}

// BatchGetItem implements dynamostore.Client.
func (m *Meter) BatchGetItem(ctx context.Context, in *dynamodb.BatchGetItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.BatchGetItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.BatchGetItem(ctx, in, opts...)
	if err != nil {
		m.add(batchGet, 0, 0, 0, err)
		return nil, err
	}
	read := 0.0
	for i := range out.ConsumedCapacity {
		read += units(&out.ConsumedCapacity[i])
	}
	m.add(batchGet, 0, read, 0, nil)
	return out, nil
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
	m.add(transact, 0, 0, sum, err)
	return out, err
}

// Query implements dynamostore.QuestionsClient.
func (m *Meter) Query(ctx context.Context, in *dynamodb.QueryInput, opts ...func(*dynamodb.Options)) (*dynamodb.QueryOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.Query(ctx, in, opts...)
	if err != nil {
		m.add(query, 0, 0, 0, err)
		return nil, err
	}
	m.add(query, 0, units(out.ConsumedCapacity), 0, nil)
	return out, nil
}

// DeleteItem implements dynamostore.QuestionsClient.
func (m *Meter) DeleteItem(ctx context.Context, in *dynamodb.DeleteItemInput, opts ...func(*dynamodb.Options)) (*dynamodb.DeleteItemOutput, error) {
	in.ReturnConsumedCapacity = types.ReturnConsumedCapacityTotal
	out, err := m.Client.DeleteItem(ctx, in, opts...)
	if err != nil {
		m.add(remove, 0, 0, 0, err)
		return nil, err
	}
	m.add(remove, units(out.ConsumedCapacity), 0, 0, nil)
	return out, nil
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
