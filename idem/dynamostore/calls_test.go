package dynamostore

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/protocol"
	"github.com/idem-go/idempotency/idem/schema"
)

// The requests that each change takes on a table without transactions, as the package's doc says.
func TestCallsWithoutTransactions(t *testing.T) {
	f := open(t, &noTransactions)
	q := f.adminStore(t)
	o := f.outside(t, q, "a")
	for _, c := range []struct {
		make maker
		want string
	}{
		{o.claims, "PutItem"},
		{o.parks, "PutItem UpdateItem PutItem"},
		{o.escalates, "PutItem UpdateItem PutItem"},
		{o.resolves(protocol.Completed), "PutItem GetItem UpdateItem PutItem"},
		{o.extends, "GetItem PutItem UpdateItem PutItem"},
		{o.forgets, "GetItem PutItem DeleteItem PutItem"},
	} {
		w := c.make(o.read())
		f.wire.set(nil)
		require.NoError(t, w.send(t.Context(), q))
		require.Equal(t, c.want, strings.Join(f.wire.calls(), " "))
	}
}

// Both writes of a first execution, with 200 bytes of result, take 1,300 bytes at most.
func TestAFirstExecutionSendsLittle(t *testing.T) {
	var bodies []string
	w := &wire{fault: func(_ int, _ string, req *http.Request) (*http.Response, error) {
		bodies = append(bodies, bodyOf(t, req))
		return answer(http.StatusOK, "{}"), nil
	}}
	engine := must(idem.New(over(w), nil))
	key := idem.Operation{Name: "charge", Repeat: idem.Repeatable}.Key("acme", "order-1000000")
	out, err := engine.Execute(t.Context(),
		idem.Call{Key: key, Fingerprint: "1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k",
			Run: func(context.Context) idem.Answer { return idem.Answer{Body: noise(200)} }})
	require.NoError(t, err)
	require.Equal(t, idem.Completed, out.RecordState)
	require.Equal(t, []string{"PutItem", "UpdateItem"}, w.calls())
	require.LessOrEqual(t, len(bodies[0])+len(bodies[1]), 1300)
}

// A counter is an item of its own that TTL deletes. It is no record, whatever its name.
func TestACounterIsAnItemThatExpires(t *testing.T) {
	t.Parallel()
	f := open(t, &patient)
	const id = "t#op#k"
	f.claimed(t, id, "o")
	for n, want := range []bool{true, true, false, false} {
		counted, err := f.CountKey(t.Context(), id, 2, base.Add(time.Minute))
		require.NoError(t, err)
		require.Equal(t, want, counted, n)
	}
	counted, err := f.CountKey(t.Context(), id, 3, base.Add(time.Minute))
	require.NoError(t, err)
	require.True(t, counted, "the bound is higher now")
	counted, err = f.CountKey(t.Context(), "another", 1, base)
	require.NoError(t, err)
	require.True(t, counted)

	require.Equal(t, protocol.InProgress, f.get(t, id).State)
	p, err := f.scanner().Scan(t.Context(), protocol.ScanQuery{Segments: 1})
	require.NoError(t, err)
	require.Len(t, p.Records, 1)
	require.Empty(t, p.Unreadable)
	require.Equal(t, item{
		schema.PK: str(id), schema.SK: str("limit"), schema.NewKeys: num("3"),
		"expires_at": num(strconv.FormatInt(base.Add(time.Minute).Unix(), 10)),
	}, f.rawAt(t, itemKey(id, schema.LimitSK)))
}

// Each call by itself: what is asked, under which operation it is reported, and that a client
// that does not ask sends what was sent before.
func TestUnitsOfEachCall(t *testing.T) {
	table, other := aws.String("records"), aws.String("accounts")
	pk := item{"pk": str("a%2Fcme#charge%23eu#digest"), "sk": str("#")}
	wide := item{"pk": pk["pk"], "body": &types.AttributeValueMemberB{Value: make([]byte, 3000)}}
	put := types.TransactWriteItem{Put: &types.Put{TableName: other, Item: item{"id": str("7")}}}
	update := types.TransactWriteItem{Update: &types.Update{TableName: table, Key: pk,
		UpdateExpression: aws.String("SET a=:a")}}
	batch := func(pks ...string) *dynamodb.BatchGetItemInput {
		in := types.KeysAndAttributes{}
		for _, pk := range pks {
			in.Keys = append(in.Keys, item{"pk": str(pk), "sk": str("#")})
		}
		return &dynamodb.BatchGetItemInput{RequestItems: map[string]types.KeysAndAttributes{*table: in}}
	}
	transact := func(actions ...types.TransactWriteItem) *dynamodb.TransactWriteItemsInput {
		return &dynamodb.TransactWriteItemsInput{TransactItems: actions}
	}
	const (
		two  = `{"ConsumedCapacity":{"TableName":"records","CapacityUnits":2.5}}`
		each = `{"ConsumedCapacity":[{"TableName":"records","CapacityUnits":4},{"TableName":"accounts",` +
			`"CapacityUnits":2}]}`
		refused = `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","Item":{"pk":{"S":"a"},` +
			`"body":{"S":"%s"}}}`
		cancelled = `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException",` +
			`"CancellationReasons":[{"Code":"ConditionalCheckFailed"},{"Code":"None"}]}`
	)
	const charge = "charge#eu"
	for name, c := range map[string]struct {
		input  any
		status int
		answer string
		want   string
	}{
		"put":      {&dynamodb.PutItemInput{TableName: table, Item: wide}, 200, two, charge + " 2.5 0"},
		"update":   {&dynamodb.UpdateItemInput{TableName: table, Key: pk}, 200, two, charge + " 2.5 0"},
		"delete":   {&dynamodb.DeleteItemInput{TableName: table, Key: pk}, 200, two, charge + " 2.5 0"},
		"get":      {&dynamodb.GetItemInput{TableName: table, Key: pk}, 200, two, charge + " 0 2.5"},
		"query":    {&dynamodb.QueryInput{TableName: table}, 200, two, " 0 2.5"},
		"scan":     {&dynamodb.ScanInput{TableName: table}, 200, two, " 0 2.5"},
		"batch":    {batch("t#a#x", "u#a#x#part#o#1"), 200, each, "a 0 6"},
		"batches":  {batch("t#a#x", "t#b#x"), 200, each, " 0 6"},
		"transact": {transact(put, update), 200, each, charge + " 6 0"},
		"refused": {&dynamodb.PutItemInput{TableName: table, Item: pk},
			400, fmt.Sprintf(refused, strings.Repeat("x", 2040)), charge + " 2 0"},
		"nothing": {&dynamodb.UpdateItemInput{TableName: table, Key: pk}, 400,
			`{"__type":"x#ConditionalCheckFailedException"}`, charge + " 1 0"},
		"cancelled": {transact(update, put, types.TransactWriteItem{Put: &types.Put{TableName: other, Item: wide}}), 400,
			cancelled, charge + " 10 0"},
		"throttled": {&dynamodb.UpdateItemInput{TableName: table, Key: pk}, 400, throttled, ""},
		"elsewhere": {&dynamodb.PutItemInput{TableName: other, Item: pk}, 200, two, ""},
		"no record": {transact(put), 200, each, ""},
		"no answer": {&dynamodb.GetItemInput{TableName: table, Key: pk}, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asking := range []bool{true, false} {
				var metered, sent string
				w := &wire{fault: func(_ int, _ string, req *http.Request) (*http.Response, error) {
					sent = bodyOf(t, req)
					if c.status == 0 {
						return nil, errReset
					}
					return answer(c.status, c.answer), nil
				}}
				var cfg aws.Config
				if asking {
					cfg.APIOptions = append(cfg.APIOptions,
						MeterCapacity(*table, func(_ context.Context, operation string, write, read float64) {
							metered += fmt.Sprint(operation, " ", write, " ", read)
						}))
				}
				err := request(t.Context(), must(NewClient(cfg, nowhere(w))), c.input)
				require.Equal(t, c.status == 200, err == nil, "%v", err)
				asked := asking && name != "elsewhere" && name != "no record"
				require.Equal(t, asked, strings.Contains(sent, `"ReturnConsumedCapacity":"TOTAL"`))
				require.NotContains(t, fmt.Sprintf("%+v", c.input), "ReturnConsumedCapacity:TOTAL", "the caller's own input")
				require.Equal(t, map[bool]string{true: c.want}[asking], metered)
			}
		})
	}
}

// request sends any of the inputs that the library has.
func request(ctx context.Context, d *dynamodb.Client, input any) error {
	operation := strings.TrimSuffix(reflect.TypeOf(input).Elem().Name(), "Input")
	answers := reflect.ValueOf(d).MethodByName(operation).Call([]reflect.Value{reflect.ValueOf(ctx),
		reflect.ValueOf(input)})
	err, _ := answers[1].Interface().(error)
	return err
}
