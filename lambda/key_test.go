package idemlambda

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/aws/aws-lambda-go/events"
	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

func TestPointer(t *testing.T) {
	const event = `{"id":"a","n":42,"nested":{"id":"b","list":["c",{"id":"d"}]}}`
	for pointer, want := range map[string]string{"/id": "a", "/n": "42", "/nested/list/1/id": "d"} {
		tenant, value, err := Pointer(idem.SingleTenant, pointer)(t.Context(), json.RawMessage(event))
		require.NoError(t, err, pointer)
		require.Equal(t, want, value, pointer)
		require.Equal(t, idem.SingleTenant, tenant)
	}
	tenant, value, err := Pointer("/nested/id", "/id")(t.Context(), json.RawMessage(event))
	require.NoError(t, err)
	require.Equal(t, []string{"b", "a"}, []string{tenant, value})
}

// What is not there must not become everybody's key.
func TestPointerRefusesWhatIsNoValue(t *testing.T) {
	for name, event := range map[string]string{
		"absent": `{}`, "null": `{"id":null}`, "empty": `{"id":""}`, "list": `{"id":["a"]}`, "fraction": `{"id":1.5}`,
		"other case": `{"ID":"a"}`, "both cases": `{"id":"a","ID":"b"}`, "twice": `{"id":"a","id":"a"}`, "no JSON": `{"id":`,
	} {
		for _, keys := range []KeyFunc{Pointer(idem.SingleTenant, "/id"), Pointer("/id", "/id"),
			Pointer(idem.SingleTenant, "/id", "/id")} {
			_, value, err := keys(t.Context(), json.RawMessage(event))
			require.ErrorIs(t, err, idem.ErrKeyInvalid, name)
			require.ErrorContains(t, err, `"/id"`, name)
			require.Empty(t, value)
		}
	}
}

// Several values never run together.
func TestPointerJoinsSeveralValues(t *testing.T) {
	seen := map[string]string{}
	for _, event := range []string{`{"a":"x","b":"yz"}`, `{"a":"xy","b":"z"}`, `{"a":"x/y","b":"z"}`,
		`{"a":"x","b":"y/z"}`} {
		_, value, err := Pointer(idem.SingleTenant, "/a", "/b")(t.Context(), json.RawMessage(event))
		require.NoError(t, err)
		require.NotContains(t, seen, value, "%s and %s", seen[value], event)
		seen[value] = event
	}
}

// A tenant in the event cannot say that there is none.
func TestTenantOfTheEventCannotOptOut(t *testing.T) {
	_, _, err := Pointer("/tenant", "/id")(t.Context(), json.RawMessage(`{"tenant":"\u0000","id":"a"}`))
	require.ErrorIs(t, err, idem.ErrKeyInvalid)
}

func TestBadPointersPanic(t *testing.T) {
	for _, f := range []func(){
		func() { Pointer(idem.SingleTenant) },
		func() { Pointer("", "/id") },
		func() { Pointer("tenant", "/id") },
		func() { Pointer(idem.SingleTenant, "") },
		func() { Pointer(idem.SingleTenant, "id") },
		func() { Pointer(idem.SingleTenant, "$.id") },
		func() { Pointer(idem.SingleTenant, "/a~2") },
		func() { Pointer(idem.SingleTenant, "/a~") },
		func() { KeyFrom[payment](nil) },
	} {
		requireConfigPanic(t, f)
	}
}

func requireConfigPanic(t *testing.T, f func(), text ...string) {
	t.Helper()
	defer func() {
		t.Helper()
		err, ok := recover().(error)
		require.True(t, ok, "no panic with an error")
		var config *idem.ConfigError
		require.ErrorAs(t, err, &config)
		for _, s := range text {
			require.ErrorContains(t, err, s)
		}
	}()
	f()
}

func TestBy(t *testing.T) {
	key := KeyFrom(func(p payment) (string, string) { return p.Merchant, p.ID })
	tenant, value, err := key(context.Background(), json.RawMessage(`{"merchant":"m1","paymentId":"p1"}`))
	require.NoError(t, err)
	require.Equal(t, []string{"m1", "p1"}, []string{tenant, value})
	_, _, err = key(context.Background(), json.RawMessage(`{"merchant":1}`))
	require.Error(t, err)
}

// Who passes the tenant itself learns that the argument names where it is found; a missing key says
// nothing of the tenant.
func TestTenantThatIsNotThere(t *testing.T) {
	text := "v"
	message := &events.SQSMessage{MessageAttributes: map[string]events.SQSMessageAttribute{"tenant": {StringValue: &text,
		DataType: "String"}}}
	record := &events.KafkaRecord{Headers: []map[string]events.JSONNumberBytes{{"tenant": events.JSONNumberBytes(text)}}}
	for want, find := range map[string]func(tenant string) error{
		"idemlambda.SQSAttribute names the tenant's attribute": func(tenant string) error {
			_, _, err := SQSAttribute(tenant, "key")(t.Context(), message)
			return err
		},
		"idemlambda.KafkaHeader names the tenant's header": func(tenant string) error {
			_, _, err := KafkaHeader(tenant, "key")(t.Context(), record)
			return err
		},
	} {
		err := find("acme")
		require.ErrorIs(t, err, idem.ErrKeyInvalid)
		require.ErrorContains(t, err, "the first argument of "+want)
		require.NotContains(t, find("tenant").Error(), "first argument")
	}
}
