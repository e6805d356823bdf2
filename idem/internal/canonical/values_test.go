package canonical

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/internal/canonical/canonicaltest"
)

func TestValues(t *testing.T) {
	const text = `{ "id":"a", "n":42,"big":123456789012345678901234567890,"zeros":1000000000000000000000000,"neg":-7,
		"zero":0,"minus":-0,
		"nested":{"id":"b","list":["c",{"id":"d"}]},"a/b":"slash","m~n":"tilde","":"empty name"," ":"blank","text42":"42",
		"esc":"\u0061\n\ud83d\ude00","\u0065scaped\t":"name","twice":1,"twice":2,"cas\u0065":1,"CASE":2,
		"huge":1e999,"list":[[],{},"x","y"]}`
	for pointer, want := range map[string]string{
		"/id": "a", "/n": "42", "/big": "123456789012345678901234567890", "/zeros": "1000000000000000000000000",
		"/neg": "-7", "/zero": "0", "/minus": "-0", "/nested/id": "b", "/nested/list/0": "c", "/nested/list/1/id": "d",
		"/a~1b": "slash", "/m~0n": "tilde",
		"/": "empty name", "/ ": "blank", "/text42": "42", "/esc": "a\n\U0001F600", "/escaped\t": "name", "/list/3": "y",
	} {
		values, err := Values([]byte(text), "text", pointer, "/n", pointer)
		require.NoError(t, err, pointer)
		require.Equal(t, []string{want, "42", want}, values, pointer)
	}
	values, err := Values([]byte(` "whole" `), "text", "")
	require.NoError(t, err)
	require.Equal(t, []string{"whole"}, values)
	values, err = Values([]byte(`1`), "text")
	require.NoError(t, err)
	require.Empty(t, values)
}

func TestValuesRefuseWhatNamesNothing(t *testing.T) {
	for _, test := range []struct {
		pointer, text string
		absent        bool
		reason        string
	}{
		{"/id", `{}`, true, `there is no value at "/id" of the body`},
		{"/id", `{"identity":"a"}`, true, "there is no value"},
		{"/id", `"id"`, true, "there is no value"},
		{"/id", `["id"]`, true, "there is no value"},
		{"/id", `[{"id":"a"}]`, true, "there is no value"},
		{"/id/id", `{"id":"id"}`, true, "there is no value"},
		{"/l/2", `{"l":["a","b"]}`, true, "there is no value"},
		{"/l/-", `{"l":["a","b"]}`, true, "there is no value"},
		{"/l/-1", `{"l":["a","b"]}`, true, "there is no value"},
		{"/l/01", `{"l":["a","b"]}`, true, "there is no value"},
		{"/l/+1", `{"l":["a","b"]}`, true, "there is no value"},
		{"/l/", `{"l":["a","b"]}`, true, "there is no value"},
		{"/l/1/0", `{"l":["a","b"]}`, true, "there is no value"},
		{"/l/99999999999999999999", `{"l":["a","b"]}`, true, "there is no value"},
		{"/id", `{"id":null}`, true, "is null"},
		{"/id", `{"id":""}`, false, "is empty"},
		{"/id", `{"id":1.0}`, false, "has a fraction or an exponent: send an integer or a string"},
		{"/id", `{"id":1e3}`, false, "has a fraction or an exponent"},
		{"/id", `{"id":1E3}`, false, "has a fraction or an exponent"},
		{"/id", `{"id":true}`, false, `the value at "/id" of the body is neither a string nor an integer`},
		{"/id", `{"id":false}`, false, "is neither"},
		{"/id", `{"id":[]}`, false, "is neither"},
		{"/id", `{"id":["a"]}`, false, "is neither"},
		{"/id", `{"id":{"id":"a"}}`, false, "is neither"},
		{"", `{"id":"a"}`, false, "is neither"},
		{"/id", `{"ID":"a"}`, false, `no value at "/id" of the body, which has "/ID": pointers are case-sensitive`},
		{"/Customer/ID", `{"customer":{"Id":"1"}}`, false, `which has "/customer": pointers`},
		{"/Customer/ID", `{"Customer":{"a":[{"id":1}],"id":1}}`, false, `which has "/Customer/id": pointers`},
		{"/a~1B~0", `{"a/b~":"1"}`, false, `which has "/a~1b~0": pointers`},
		{"/id", `{"id":"a","ID":"b"}`, false, `has "/ID" next to "/id"`},
		{"/id", `{"ID":"b","id":"a"}`, false, "send one of them"},
		{"/id", `{"iD":null,"id":"a"}`, false, "send one of them"},
		{"/a/id", `{"a":{"id":"a"},"A":{}}`, false, `has "/A" next to "/a/id"`},
		{"/l/0/id", `{"l":[{"id":"a","Id":""}]}`, false, `has "/l/0/Id" next to "/l/0/id"`},
		{"/key", `{"key":"a","\u212aey":"b"}`, false, "send one of them"},
	} {
		for _, pointers := range [][]string{{test.pointer}, {test.pointer, ""}} {
			values, err := Values([]byte(test.text), "body", pointers...)
			require.Nil(t, values)
			var wrong *ValueError
			require.ErrorAs(t, err, &wrong, "%s %s", test.pointer, test.text)
			require.Contains(t, wrong.Reason, test.reason)
			require.Equal(t, test.absent, wrong.Absent, "%s %s", test.pointer, test.text)
		}
	}
}

func TestValuesRefuseWhatReadersReadDifferently(t *testing.T) {
	nested := func(depth int) string {
		return `{"id":"a","x":` + strings.Repeat("[", depth) + strings.Repeat("]", depth) + `}`
	}
	for text, reason := range map[string]string{
		``:                                "empty",
		`{"id":"a"`:                       "breaks off",
		`{"id":"a"} {"id":"b"}`:           "not valid JSON",
		`id=a`:                            "not valid JSON",
		"{\"id\":\"a\xff\"}":              "not valid UTF-8",
		"{\"id\":\"a\",\"b\":\"\xff\"}":   "not valid UTF-8",
		`{"id":"a\ud800"}`:                "half a surrogate pair",
		`{"id":"a","b":"\ud800"}`:         "half a surrogate pair",
		`{"id":"a","id":"b"}`:             `"id" occurs twice in one object: send each name once`,
		`{"id":"a","id":"a"}`:             "occurs twice",
		`{"id":"a","\u0069d":"b"}`:        "occurs twice",
		`{"id":"a","b":{},"c":[],"id":1}`: "occurs twice",
		nested(MaxDepth):                  "nested more than 200 deep",
	} {
		_, err := Values([]byte(text), "body", "/id")
		var wrong *Error
		require.ErrorAs(t, err, &wrong, text)
		require.Contains(t, wrong.Reason, reason)
	}
	_, err := Values([]byte(nested(MaxDepth-1)), "body", "/id")
	require.NoError(t, err)
	_, err = Values([]byte(`{"o":{"id":"a"},"o":{"id":"b"}}`), "body", "/o/id")
	require.ErrorContains(t, err, `"o" occurs twice`)
	values, err := Values([]byte(`{"a":1,"a":2,"b":{"id":1,"ID":2},"id":"x"}`), "body", "/id")
	require.NoError(t, err, "elsewhere nothing is mistaken")
	require.Equal(t, []string{"x"}, values)
}

func TestCheckPointer(t *testing.T) {
	for _, pointer := range []string{"", "/", "/a", "/a/", "//", "/~0~1", "/é", "/0"} {
		require.NoError(t, CheckPointer(pointer), pointer)
	}
	for pointer, problem := range map[string]string{
		"a": `start it with a slash, as in "/a"`, "#/a": "start it with a slash", "$.a": "start it with a slash",
		"/a~": "write ~0 for a tilde", "/~0~1~2": "write ~0 for a tilde", "/~/": "write ~0 for a tilde",
		"/\xff": "not valid UTF-8",
	} {
		require.ErrorContains(t, CheckPointer(pointer), problem)
	}
}

// Looking up values takes no more memory where the text is long or nested, or the pointers
// are many: building each token's path, for instance, would show in the allocations. A
// few are the library's, which keeps its memory in a pool.
func TestValuesCostOneReading(t *testing.T) {
	allocations := func(depth, elements, pointers int) float64 {
		body := []byte(`{"id":"a","x":` + strings.Repeat(`{"a":`, depth) + "[0" + strings.Repeat(",0", elements) + "]" +
			strings.Repeat("}", depth) + "}")
		all := make([]string, pointers)
		for i := range all {
			all[i] = "/id"
		}
		return testing.AllocsPerRun(10, func() {
			values, err := Values(body, "body", all...)
			require.NoError(t, err)
			require.Equal(t, "a", values[pointers-1])
		})
	}
	shallow := allocations(1, 1000, 1)
	require.LessOrEqual(t, allocations(1, 100_000, 1), shallow+50)
	require.LessOrEqual(t, allocations(MaxDepth-3, 100_000, 1), shallow+50)
	require.LessOrEqual(t, allocations(1, 1000, 5), shallow+50)
}

// FuzzValues: no text panics, what is found is neither empty nor a fraction, and the
// canonical form has it at the same place.
func FuzzValues(f *testing.F) {
	canonicaltest.AddSeeds(f, "testdata")
	for _, s := range []string{`{"a":{"b":"c"}}`, `{"a":{"b":1}}`, `{"a":["b"]}`, `{"a":{"b":"\ud800"}}`, ` [ ] `,
		`{"A":{"b":1},"a":{"B":2}}`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, pointer := range []string{"", "/a", "/a/b", "/a/0", "/0", "/1/a"} {
			values, err := Values(raw, "body", pointer)
			if err != nil {
				continue
			}
			require.NotEmpty(t, values[0])
			form, err := Append(nil, raw)
			if err != nil {
				continue
			}
			value, found := Find(form, pointer)
			require.True(t, found)
			if value[0] != '"' {
				require.Equal(t, canonicalOf(t, values[0]), string(value))
				continue
			}
			again, err := Values(form, "body", pointer)
			require.NoError(t, err)
			require.Equal(t, values, again)
		}
	})
}
