package idemlambda

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/idem-go/idempotency/idem"
	"github.com/stretchr/testify/require"
)

func TestPointer(t *testing.T) {
	const event = `{"id":"a","n":42,"big":123456789012345678901234567890,"neg":-7,"zero":0,"nested":{"id":"b","list":["c",{"id":"d"}]},
		"a/b":"slash","m~n":"tilde","":"empty name"," ":"blank","text42":"42","esc":"\u0061\n"}`
	for pointer, want := range map[string]string{
		"/id": "a", "/n": "42", "/big": "123456789012345678901234567890", "/neg": "-7", "/zero": "0",
		"/nested/id": "b", "/nested/list/0": "c", "/nested/list/1/id": "d",
		"/a~1b": "slash", "/m~0n": "tilde", "/": "empty name", "/ ": "blank", "/text42": "42", "/esc": "a\n",
	} {
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
		"absent": `{}`, "null": `{"id":null}`, "empty": `{"id":""}`, "true": `{"id":true}`, "false": `{"id":false}`,
		"empty list": `{"id":[]}`, "list of null": `{"id":[null]}`, "list": `{"id":["a"]}`,
		"object": `{"id":{}}`, "object with id": `{"id":{"id":"a"}}`,
		"fraction": `{"id":1.5}`, "whole fraction": `{"id":1.0}`, "exponent": `{"id":1e3}`, "capital exponent": `{"id":1E3}`,
		"other case": `{"ID":"a"}`, "text event": `"id"`, "null event": `null`, "list event": `[{"id":"a"}]`, "number event": `1`,
		"empty event": ``, "no JSON": `{"id":`,
		"half a surrogate pair": `{"id":"a\ud800"}`, "no UTF-8": "{\"id\":\"a\xff\"}",
	} {
		for _, keys := range []KeyFunc{Pointer(idem.SingleTenant, "/id"), Pointer("/id", "/id"), Pointer(idem.SingleTenant, "/id", "/id")} {
			_, value, err := keys(t.Context(), json.RawMessage(event))
			require.ErrorIs(t, err, idem.ErrKeyInvalid, name)
			require.ErrorContains(t, err, `"/id"`, name)
			require.Empty(t, value)
		}
	}
}

func TestPointerIntoLists(t *testing.T) {
	event := json.RawMessage(`{"l":["a","b"]}`)
	for pointer, ok := range map[string]bool{
		"/l/0": true, "/l/1": true,
		"/l/2": false, "/l/-": false, "/l/-1": false, "/l/01": false, "/l/+1": false, "/l/": false, "/l/1/0": false,
		"/l/99999999999999999999": false,
	} {
		_, _, err := Pointer(idem.SingleTenant, pointer)(t.Context(), event)
		require.Equal(t, ok, err == nil, pointer)
	}
}

// Several values never run together.
func TestPointerJoinsSeveralValues(t *testing.T) {
	seen := map[string]string{}
	for _, event := range []string{`{"a":"x","b":"yz"}`, `{"a":"xy","b":"z"}`, `{"a":"x/y","b":"z"}`, `{"a":"x","b":"y/z"}`} {
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

// FuzzPointer: no event panics, and a value is never empty.
func FuzzPointer(f *testing.F) {
	for _, s := range []string{`{"a":{"b":"c"}}`, `{"a":{"b":1}}`, `{"a":["b"]}`, `{"a":null}`, `{`, ``, `{"a":{"b":"\ud800"}}`, ` [ ] `} {
		f.Add([]byte(s))
	}
	key := Pointer("/a/b", "/a/b", "/a")
	f.Fuzz(func(t *testing.T, event []byte) {
		for _, k := range []KeyFunc{key, Pointer(idem.SingleTenant, "/a/b"), Pointer(idem.SingleTenant, "/a/0")} {
			tenant, value, err := k(t.Context(), event)
			if err != nil {
				require.ErrorIs(t, err, idem.ErrKeyInvalid)
				continue
			}
			require.NotEmpty(t, tenant)
			require.NotEmpty(t, value)
		}
	})
}

// encoding/json fills a field from a member of any case, the last one wins: the
// handler must not see another value than the key's.
func TestPointerRefusesMembersThatDifferInCaseAlone(t *testing.T) {
	key := Pointer("/Customer", "/ID")
	for _, event := range []string{
		`{"Customer":"a","ID":"1","id":"2"}`, `{"Customer":"a","CUSTOMER":"b","ID":"1"}`, `{"CUSTOMER":"b","Customer":"a","ID":"1"}`,
	} {
		_, _, err := key(t.Context(), json.RawMessage(event))
		require.ErrorIs(t, err, idem.ErrKeyInvalid, event)
		require.ErrorContains(t, err, "send one of them")
	}
	tenant, value, err := key(t.Context(), json.RawMessage(`{"Customer":"a","ID":"1","other":"2"}`))
	require.NoError(t, err)
	require.Equal(t, "a 1", tenant+" "+value)
}

// The event of somebody who took the names of the Go fields for those of the JSON.
func TestPointerNamesTheMemberOfAnotherCase(t *testing.T) {
	for event, has := range map[string]string{
		`{"customer":{"Id":"1"}}`:              `has "/customer": pointers are case-sensitive`,
		`{"Customer":{"a":[{"id":1}],"id":1}}`: `has "/Customer/id": pointers are case-sensitive`,
	} {
		_, _, err := Pointer(idem.SingleTenant, "/Customer/ID")(t.Context(), json.RawMessage(event))
		require.ErrorIs(t, err, idem.ErrKeyInvalid)
		require.ErrorContains(t, err, `there is no value at "/Customer/ID" of the event`)
		require.ErrorContains(t, err, has)
	}
	_, _, err := Pointer(idem.SingleTenant, "/a~1B")(t.Context(), json.RawMessage(`{"a/b":"1"}`))
	require.ErrorContains(t, err, `has "/a~1b"`)
}

// Readers differ in which of two members of one name they take.
func TestPointerRefusesDuplicateNames(t *testing.T) {
	key := Pointer(idem.SingleTenant, "/order/id")
	for _, event := range []string{
		`{"order":{"id":"a","id":"b"}}`, `{"order":{"id":"a","id":"a"}}`, `{"order":{"id":"a","\u0069d":"b"}}`,
		`{"order":{"id":"a"},"order":{"id":"b"}}`, `{"order":{"id":"a"},"Order":{"id":"b"}}`,
		`{"order":{"id":"a"}}{"order":{"id":"b"}}`,
	} {
		_, _, err := key(t.Context(), json.RawMessage(event))
		require.ErrorIs(t, err, idem.ErrKeyInvalid, event)
		require.ErrorContains(t, err, `"/order/id"`)
	}
	_, value, err := key(t.Context(), json.RawMessage(`{"other":1,"other":2,"order":{"id":"a"}}`))
	require.NoError(t, err)
	require.Equal(t, "a", value)
}
