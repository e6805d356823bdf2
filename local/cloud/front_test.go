package cloud

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// till is a template of the payments function behind an API.
const till = `
Resources:
  Records:
    Type: AWS::DynamoDB::Table
    Properties:
      AttributeDefinitions: [{AttributeName: pk, AttributeType: S}, {AttributeName: sk, AttributeType: S}]
      KeySchema: [{AttributeName: pk, KeyType: HASH}, {AttributeName: sk, KeyType: RANGE}]
  Pay:
    Type: AWS::Lambda::Function
    Metadata: {"idem:package": github.com/idem-go/idempotency/lambda/functions/payments}
    Properties:
      Runtime: provided.al2023
      Timeout: 20
      FunctionName: pay
      Environment: {Variables: {IDEM_TABLE: !Ref Records, PAYMENTS_TENANT: none, PROVIDER_URL: "http://provider"}}
  Api: {Type: AWS::ApiGatewayV2::Api, Properties: {ProtocolType: HTTP}}
  ToPay:
    Type: AWS::ApiGatewayV2::Integration
    Properties:
      {ApiId: !Ref Api, IntegrationType: AWS_PROXY, IntegrationUri: !GetAtt Pay.Arn, PayloadFormatVersion: "2.0"}
  Route:
    Type: AWS::ApiGatewayV2::Route
    Properties: {ApiId: !Ref Api, RouteKey: POST /payments, Target: !Sub "integrations/${ToPay}"}
`

// payment is a request to the API of till.
func payment(t *testing.T, r *Running, key string) *http.Request {
	t.Helper()
	return newRequest(t, "POST", r.Endpoints.APIs["Till-Api"]+"/payments", `{"amount":1,"currency":"EUR"}`,
		"Idempotency-Key: "+key+"-0123456789abcdef", "Content-Type: application/json")
}

// An outcome is that of a record: an item of the user's may have a state with the same name. An attempt also ends
// without one, parked or released, and not with a claim that is taken back, a longer lease, or the park of another one.
func TestRecordsOutcome(t *testing.T) {
	const record = `{"Key":{"pk":{"S":"a#pay#x"},"sk":{"S":"#"}},"ConditionExpression":"`
	const held, seen = record + `owner_id=:own AND in_state`, record + `(write_id=:seen OR owner_id=:seen) AND in_state`
	const values = `","ExpressionAttributeValues":{":is":{"S":"in_progress"},`
	for body, want := range map[string]bool{
		held + `=:is` + values + `":to":{"S":"completed"}}}`:                                          true,
		held + `=:is` + values + `":to":{"S":"unknown"}}}`:                                            true,
		held + `=:is AND attribute_not_exists(steps)` + values + `":to":{"S":"released"}}}`:           true,
		record + `attribute_not_exists(pk) OR owner_id=:own` + values + `":to":{"S":"released"}}}`:    false,
		held + ` IN(:is,:unknown)` + values + `":unknown":{"S":"unknown"}}}`:                          false,
		seen + ` IN(:is,:released)` + values + `":released":{"S":"released"},":to":{"S":"unknown"}}}`: false,
		seen + `=:is` + values + `":to":{"S":"in_progress"}}}`:                                        false,
		`{"TableName":"orders","Item":{"id":{"S":"1"},"status":{"S":"completed"}}}`:                   false,
	} {
		require.Equal(t, want, recordsEnd([]byte(body)), body)
	}
}

// A function's calls are known by its invocations, and its process is killed at one of them.
func TestCallsOfFunctions(t *testing.T) {
	var charges atomic.Int64
	provider := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, `{"id":"ch_%d"}`, charges.Add(1))
	}))
	defer provider.Close()
	var mu sync.Mutex
	var invocations []Invocation
	var operations []string
	r, out := startedAs(t, "Till", strings.ReplaceAll(till, "http://provider", provider.URL), Options{Log: t.Logf,
		Called: func(c Call) {
			mu.Lock()
			defer mu.Unlock()
			operations = append(operations, c.Function+" "+c.Service+" "+c.Operation)
		},
		Invoked: func(i Invocation) {
			mu.Lock()
			defer mu.Unlock()
			invocations = append(invocations, i)
		},
	})
	post := func(key string) (int, Invocation, string) {
		t.Helper()
		status, body := send(t, payment(t, r, key))
		var last Invocation
		require.Eventually(t, func() bool { // it is reported after the answer
			mu.Lock()
			defer mu.Unlock()
			if len(invocations) == 0 {
				return false
			}
			last, invocations = invocations[0], invocations[1:]
			return true
		}, minute, tick)
		return status, last, body
	}
	// pay returns the answer, and what was reported of it. While the store is too slow it sends the same again.
	pay := func(key string) (status int, inv Invocation, body string) {
		t.Helper()
		for status = 503; status == 503; {
			status, inv, body = post(key)
		}
		return status, inv, body
	}
	status, inv, body := pay("first")
	require.Equal(t, 201, status, "%s %s", body, out)
	require.Equal(t, []any{"POST /payments", "pay", 201, 1}, []any{inv.Source, inv.Function, inv.Status, len(inv.Records)})
	require.GreaterOrEqual(t, inv.Calls, 2)
	require.Regexp(t, `^#charge#[\w-]{43}$`, inv.Records[0])
	require.Subset(t, operations, []string{"pay dynamodb PutItem", "pay dynamodb UpdateItem"})

	interrupt := func(i Interruption) {
		t.Helper()
		name, err := r.Interrupt(i)
		require.NoError(t, err)
		require.Equal(t, "pay", name)
	}
	interrupt(Interruption{Function: "pay", After: true})
	status, _, _ = pay("second")
	require.Equal(t, 500, status)
	prints(t, out, "was killed after the call to DynamoDB that records how the attempt ended")
	status, inv, _ = pay("second")
	require.Equal(t, 201, status, "the outcome was recorded")
	require.Equal(t, []string{"true"}, inv.Header["Idempotency-Replayed"])
	require.EqualValues(t, 2, charges.Load())

	interrupt(Interruption{Function: "pa", Call: 1})
	status, _, _ = pay("third")
	require.Equal(t, 500, status)
	prints(t, out, "was killed before call 1 to DynamoDB")
	status, _, _ = pay("third")
	require.Equal(t, 201, status, "nothing was claimed")
	require.EqualValues(t, 3, charges.Load())

	res, err := http.Get(r.Endpoints.APIs["Till-Api"] + "/nothing")
	require.NoError(t, err)
	require.NoError(t, res.Body.Close())
	require.Eventually(t, func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(invocations) == 1 && invocations[0].Source == "GET /nothing" && invocations[0].Function == "" &&
			invocations[0].Status == 404
	}, minute, tick)
	_, err = r.Interrupt(Interruption{Function: "play", Call: 1})
	require.EqualError(t, err, `"play" names 0 functions: there are pay`)
	_, err = r.Interrupt(Interruption{Function: "pay", Call: -1})
	require.EqualError(t, err, "call -1: the first one is 1")
}
