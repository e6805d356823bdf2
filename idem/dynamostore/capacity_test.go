package dynamostore

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb"
	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"
	"github.com/aws/smithy-go/middleware"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/emf"
)

// The table of costs was measured by other means: both agree.
func TestUnitsAreThoseOfTheTableOfCosts(t *testing.T) {
	text, err := os.ReadFile("../../infra/cost/measured.json")
	require.NoError(t, err)
	var costs struct {
		Paths map[string]struct{ Write, Read float64 }
	}
	require.NoError(t, json.Unmarshal(text, &costs))
	require.Equal(t, 3.0, costs.Paths["first execution, repeatable"].Write)

	f := open(t, nil)
	var lines bytes.Buffer
	metrics, err := emf.New(&emf.Options{Service: "payments", Out: &lines})
	require.NoError(t, err)
	metered := aws.Config{APIOptions: []func(*middleware.Stack) error{MeterCapacity(f.table, metrics.Units)}}
	client, err := NewClient(metered, &ClientOptions{Endpoint: *f.admin.Options().BaseEndpoint})
	require.NoError(t, err)
	store, err := New(client, f.table, &patient)
	require.NoError(t, err)
	engine, err := idem.New(store, &unhurried)
	require.NoError(t, err)

	call := func(size int, ran bool) {
		op := idem.Operation{Name: "path", Repeat: idem.Repeatable}
		out, err := engine.Execute(t.Context(), idem.Call{Key: op.Key("acme", fmt.Sprint(size)), Fingerprint: "1:q83vASNFZ4mrze8BI0VniavN7wEjRWeJq83vASNFZ4k", Run: func(context.Context) idem.Answer {
			return idem.Answer{Body: noise(size)}
		}})
		require.NoError(t, err)
		require.Equal(t, ran, out.Executed)
	}
	for _, c := range []struct {
		path string
		play func()
	}{
		{"first execution, repeatable", func() { call(1<<10, true) }},
		{"replay", func() { call(1<<10, false) }},
		{"first execution, 390 KB", func() { call(390<<10, true) }},
		{"replay, 390 KB", func() { call(390<<10, false) }},
	} {
		c.play()
		want := costs.Paths[c.path]
		line := map[string]any{}
		lines.Reset()
		require.NoError(t, metrics.Flush(t.Context()))
		require.NoError(t, json.Unmarshal(lines.Bytes(), &line))
		require.Equal(t, "path", line["operation"])
		got := map[string]any{}
		for _, name := range []string{"write_units", "read_units"} {
			if v, ok := line[name]; ok {
				got[name] = v
			}
		}
		expected := map[string]any{"write_units": want.Write}
		if want.Read > 0 {
			expected["read_units"] = want.Read
		}
		require.Equal(t, expected, got, c.path)
	}
}

// Each call by itself: what is asked, under which operation it is told, and that whoever does
// not ask sends what was sent before.
func TestUnitsOfEachCall(t *testing.T) {
	table, other := aws.String("records"), aws.String("accounts")
	pk := item{"pk": str("a%2Fcme#charge%23eu#digest"), "sk": str("#")}
	wide := item{"pk": pk["pk"], "body": &types.AttributeValueMemberB{Value: make([]byte, 3000)}}
	put := types.TransactWriteItem{Put: &types.Put{TableName: other, Item: item{"id": str("7")}}}
	update := types.TransactWriteItem{Update: &types.Update{TableName: table, Key: pk, UpdateExpression: aws.String("SET a=:a")}}
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
		two       = `{"ConsumedCapacity":{"TableName":"records","CapacityUnits":2.5}}`
		each      = `{"ConsumedCapacity":[{"TableName":"records","CapacityUnits":4},{"TableName":"accounts","CapacityUnits":2}]}`
		refused   = `{"__type":"com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException","Item":{"pk":{"S":"a"},"body":{"S":"%s"}}}`
		cancelled = `{"__type":"com.amazonaws.dynamodb.v20120810#TransactionCanceledException","CancellationReasons":[{"Code":"ConditionalCheckFailed"},{"Code":"None"}]}`
	)
	const charge = "charge#eu"
	for name, c := range map[string]struct {
		input  any
		status int
		answer string
		want   string
	}{
		"put":       {&dynamodb.PutItemInput{TableName: table, Item: wide}, 200, two, charge + " 2.5 0"},
		"update":    {&dynamodb.UpdateItemInput{TableName: table, Key: pk}, 200, two, charge + " 2.5 0"},
		"delete":    {&dynamodb.DeleteItemInput{TableName: table, Key: pk}, 200, two, charge + " 2.5 0"},
		"get":       {&dynamodb.GetItemInput{TableName: table, Key: pk}, 200, two, charge + " 0 2.5"},
		"query":     {&dynamodb.QueryInput{TableName: table}, 200, two, " 0 2.5"},
		"scan":      {&dynamodb.ScanInput{TableName: table}, 200, two, " 0 2.5"},
		"batch":     {batch("t#a#x", "u#a#x#part#o#1"), 200, each, "a 0 6"},
		"batches":   {batch("t#a#x", "t#b#x"), 200, each, " 0 6"},
		"transact":  {transact(put, update), 200, each, charge + " 6 0"},
		"refused":   {&dynamodb.PutItemInput{TableName: table, Item: pk}, 400, fmt.Sprintf(refused, strings.Repeat("x", 2040)), charge + " 2 0"},
		"nothing":   {&dynamodb.UpdateItemInput{TableName: table, Key: pk}, 400, `{"__type":"x#ConditionalCheckFailedException"}`, charge + " 1 0"},
		"cancelled": {transact(update, put, types.TransactWriteItem{Put: &types.Put{TableName: other, Item: wide}}), 400, cancelled, charge + " 10 0"},
		"throttled": {&dynamodb.UpdateItemInput{TableName: table, Key: pk}, 400, throttled, ""},
		"elsewhere": {&dynamodb.PutItemInput{TableName: other, Item: pk}, 200, two, ""},
		"no record": {transact(put), 200, each, ""},
		"no answer": {&dynamodb.GetItemInput{TableName: table, Key: pk}, 0, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			for _, asking := range []bool{true, false} {
				var told, sent string
				w := &wire{fault: func(_ int, _ string, req *http.Request) (*http.Response, error) {
					sent = bodyOf(t, req)
					if c.status == 0 {
						return nil, errReset
					}
					return answer(c.status, c.answer), nil
				}}
				var cfg aws.Config
				if asking {
					cfg.APIOptions = append(cfg.APIOptions, MeterCapacity(*table, func(_ context.Context, operation string, write, read float64) {
						told += fmt.Sprint(operation, " ", write, " ", read)
					}))
				}
				client, err := NewClient(cfg, &ClientOptions{Endpoint: "http://127.0.0.1:1", Transport: w})
				require.NoError(t, err)
				err = request(t.Context(), client, c.input)
				require.Equal(t, c.status == 200, err == nil, "%v", err)
				asked := asking && name != "elsewhere" && name != "no record"
				require.Equal(t, asked, strings.Contains(sent, `"ReturnConsumedCapacity":"TOTAL"`))
				require.NotContains(t, fmt.Sprintf("%+v", c.input), "ReturnConsumedCapacity:TOTAL", "the caller's own input")
				if asking {
					require.Equal(t, c.want, told)
				} else {
					require.Empty(t, told)
				}
			}
		})
	}
}

// request sends any of the inputs that the library has.
func request(ctx context.Context, d *dynamodb.Client, input any) (err error) {
	switch in := input.(type) {
	case *dynamodb.PutItemInput:
		_, err = d.PutItem(ctx, in)
	case *dynamodb.UpdateItemInput:
		_, err = d.UpdateItem(ctx, in)
	case *dynamodb.DeleteItemInput:
		_, err = d.DeleteItem(ctx, in)
	case *dynamodb.GetItemInput:
		_, err = d.GetItem(ctx, in)
	case *dynamodb.QueryInput:
		_, err = d.Query(ctx, in)
	case *dynamodb.ScanInput:
		_, err = d.Scan(ctx, in)
	case *dynamodb.BatchGetItemInput:
		_, err = d.BatchGetItem(ctx, in)
	case *dynamodb.TransactWriteItemsInput:
		_, err = d.TransactWriteItems(ctx, in)
	}
	return err
}
