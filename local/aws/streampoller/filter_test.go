package streampoller

import (
	"testing"

	"github.com/stretchr/testify/require"

	samples "github.com/idem-go/idempotency/events"
	"github.com/idem-go/idempotency/idem/schema"
)

func TestFilterRules(t *testing.T) {
	for _, c := range []struct {
		pattern, record string
		want            bool
	}{
		{`{"a":["x"]}`, `{"a":"x"}`, true},
		{`{"a":["x"]}`, `{"a":"xy"}`, false},
		{`{"a":["x"]}`, `{"b":"x"}`, false},
		{`{"a":["x","y"]}`, `{"a":"y"}`, true},
		{`{"a":["x"],"b":["y"]}`, `{"a":"x","b":"z"}`, false},
		{`{"a":{"b":["x"]}}`, `{"a":{"b":"x","c":1}}`, true},
		{`{"a":{"b":["x"]}}`, `{"a":"x"}`, false},
		{`{"a":[1]}`, `{"a":1.0}`, true},
		{`{"a":[1]}`, `{"a":"1"}`, false},
		{`{"a":["1"]}`, `{"a":1}`, false},
		{`{"a":[9007199254740993]}`, `{"a":9007199254740992}`, false},
		{`{"a":[true]}`, `{"a":true}`, true},
		{`{"a":[true]}`, `{"a":"true"}`, false},
		{`{"a":[null]}`, `{"a":null}`, true},
		{`{"a":[null]}`, `{}`, false},
		{`{"a":[""]}`, `{"a":""}`, true},

		{`{"a":[{"prefix":"out"}]}`, `{"a":"outbox"}`, true},
		{`{"a":[{"prefix":"out"}]}`, `{"a":"Outbox"}`, false},
		{`{"a":[{"prefix":"1"}]}`, `{"a":12}`, false},
		{`{"a":[{"prefix":"x"},{"prefix":"out"}]}`, `{"a":"outbox"}`, true},
		{`{"a":[{"suffix":"box"}]}`, `{"a":"outbox"}`, true},
		{`{"a":[{"equals-ignore-case":"ABC"}]}`, `{"a":"aBc"}`, true},

		{`{"a":[{"exists":true}]}`, `{"a":null}`, true},
		{`{"a":[{"exists":true}]}`, `{}`, false},
		{`{"a":[{"exists":true}]}`, `{"a":{"b":1}}`, false},
		{`{"a":[{"exists":false}]}`, `{}`, true},
		{`{"a":[{"exists":false}]}`, `{"a":1}`, false},
		{`{"a":{"b":[{"exists":false}]}}`, `{}`, true},
		{`{"a":{"b":[{"exists":false}]}}`, `{"a":{"b":1}}`, false},
		{`{"a":[{"exists":false}, "x"]}`, `{"a":"x"}`, true},

		{`{"a":[{"anything-but":["x","y"]}]}`, `{"a":"z"}`, true},
		{`{"a":[{"anything-but":["x","y"]}]}`, `{"a":"y"}`, false},
		{`{"a":[{"anything-but":"x"}]}`, `{"a":"x"}`, false},
		{`{"a":[{"anything-but":[1]}]}`, `{"a":2}`, true},
		{`{"a":[{"anything-but":[1]}]}`, `{"a":1}`, false},
		{`{"a":[{"anything-but":["x"]}]}`, `{}`, false},

		{`{"a":[{"numeric":["=",100]}]}`, `{"a":1e2}`, true},
		{`{"a":[{"numeric":[">",0,"<=",5]}]}`, `{"a":5}`, true},
		{`{"a":[{"numeric":[">",0,"<=",5]}]}`, `{"a":0}`, false},
		{`{"a":[{"numeric":[">",0,"<=",5]}]}`, `{"a":5.0001}`, false},
		{`{"a":[{"numeric":["<",5]}]}`, `{"a":"4"}`, false},
		{`{"a":[{"numeric":["<",5]}]}`, `{"a":1e999999999}`, false},

		{`{"a":["x"]}`, `{"a":["y","x"]}`, true},
		{`{"a":["x"]}`, `{"a":[]}`, false},
		{`{"a":[{"exists":false}]}`, `{"a":[]}`, true},
		{`{"a":{"b":["1"],"c":["2"]}}`, `{"a":[{"b":"1","c":"3"},{"b":"4","c":"2"}]}`, false},
		{`{"a":{"b":["1"],"c":["2"]}}`, `{"a":[{"b":"1","c":"3"},{"b":"1","c":"2"}]}`, true},
	} {
		f, err := ParseFilter(c.pattern)
		require.NoError(t, err, c.pattern)
		got, err := f.Match([]byte(c.record))
		require.NoError(t, err, c.record)
		require.Equal(t, c.want, got, "%s on %s", c.pattern, c.record)
	}
}

func TestFiltersThatAreRefused(t *testing.T) {
	for pattern, says := range map[string]string{
		``:                                    "not JSON",
		`{"a":["x"]} x`:                       "not JSON",
		`[]`:                                  "use a JSON object",
		`{}`:                                  "names at least one field",
		`{"a":"x"}`:                           `a must be an object or an array of rules, as ["x"]`,
		`{"a":{"b":{}}}`:                      "a.b is an empty object",
		`{"a":[]}`:                            "a is an empty array",
		`{"$or":[{"a":["x"]}]}`:               "$or is not imitated",
		`{"a":[["x"]]}`:                       "cannot be an array",
		`{"a":[{"wildcard":"x*"}]}`:           `operator "wildcard" is not imitated; there are anything-but, equals-ignore-case, exists, numeric, prefix, suffix`,
		`{"a":[{"prefix":"x","suffix":"y"}]}`: "one operator, this one has 2",
		`{"a":[{}]}`:                          "has 0",
		`{"a":[{"prefix":1}]}`:                "use a string",
		`{"a":[{"prefix":""}]}`:               "not empty",
		`{"a":[{"exists":"yes"}]}`:            "true or false",
		`{"a":[{"anything-but":[]}]}`:         "empty",
		`{"a":[{"anything-but":{"prefix":"x"}}]}`:  "only strings and numbers",
		`{"a":[{"numeric":[">"]}]}`:                "use [",
		`{"a":[{"numeric":["!",1]}]}`:              "is none of",
		`{"a":[{"numeric":["=","1"]}]}`:            "not a number",
		`{"a":[{"numeric":["=",5000000001]}]}`:     "not a number in the range",
		`{"a":[{"numeric":["<",5,">",1]}]}`:        "lower bound first",
		`{"a":{"b":[{"nope":1}]},"c":{"d":["x"]}}`: "a.b: operator",
	} {
		_, err := ParseFilter(pattern)
		require.ErrorContains(t, err, says, pattern)
	}
	f, err := ParseFilter(`{"a":["x"]}`)
	require.NoError(t, err)
	_, err = f.Match([]byte(`{`))
	require.Error(t, err)
}

func TestFilterOnTheSample(t *testing.T) {
	event, err := samples.Get("dynamodb-stream")
	require.NoError(t, err)
	for pattern, want := range map[string][]bool{
		`{"eventName":["INSERT"]}`:                                            {true, false, false},
		`{"dynamodb":{"Keys":{"pk":{"S":[{"prefix":"payment#"}]}}}}`:          {true, true, true},
		`{"dynamodb":{"NewImage":{"status":{"S":["captured"]}}}}`:             {false, true, false},
		`{"dynamodb":{"NewImage":{"amount":{"N":["4999"]}}}}`:                 {true, true, false},
		`{"dynamodb":{"NewImage":{"amount":{"N":[{"numeric":["=",4999]}]}}}}`: {false, false, false},
		`{"dynamodb":{"OldImage":{"status":{"S":[{"exists":false}]}}}}`:       {true, false, false},
		`{"dynamodb":{"NewImage":{"tags":{"SS":["web"]}}}}`:                   {true, true, false},
		`{"userIdentity":{"principalId":["dynamodb.amazonaws.com"]}}`:         {false, false, true},
		schema.OutboxFilter: {false, false, false},
	} {
		f, err := ParseFilter(pattern)
		require.NoError(t, err)
		for i, r := range sampleRecords(t, event) {
			got, err := f.Match(r)
			require.NoError(t, err)
			require.Equal(t, want[i], got, "%s on record %d", pattern, i)
		}
	}
}
