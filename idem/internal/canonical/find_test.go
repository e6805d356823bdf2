package canonical

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const document = `{"":0,"\"\n":4,"a":"x","b":{"c":1,"d":{"e":2},"é":3},"m/n":1,"o~p":2,"z":[10,[20,21],{"k":30}],"~1":3}`

func TestFind(t *testing.T) {
	require.Equal(t, document, canonicalOf(t, document))
	for pointer, want := range map[string]string{
		"": document, "/": "0", "/\"\n": "4", "/a": `"x"`, "/b": `{"c":1,"d":{"e":2},"é":3}`, "/b/c": "1", "/b/d": `{"e":2}`, "/b/é": "3",
		"/m~1n": "1", "/o~0p": "2", "/~01": "3", "/z/0": "10", "/z/1": "[20,21]", "/z/1/1": "21", "/z/2": `{"k":30}`, "/z/2/k": "30",
	} {
		value, found := Find([]byte(document), pointer)
		require.True(t, found, "%q", pointer)
		require.Equal(t, want, string(value), "%q", pointer)
	}
	for _, pointer := range []string{
		"/missing", "/A", "/a/b", "/b/c/x", "/b/0", "/z/3", "/z/-", "/z/00", "/z/-1", "/z/+0", "/z/", "/z/k", "/z/99999999999999999999", "/m/n",
	} {
		value, found := Find([]byte(document), pointer)
		require.False(t, found, "%q", pointer)
		require.Empty(t, value)
	}
	for _, scalar := range []string{"1", `"a"`, "null", "[]", "{}"} {
		value, found := Find([]byte(scalar), "")
		require.True(t, found)
		require.Equal(t, scalar, string(value))
		_, found = Find([]byte(scalar), "/0")
		require.False(t, found)
	}
}

func TestCutLeavesACanonicalText(t *testing.T) {
	for _, test := range []struct {
		without []string
		want    string
	}{
		{[]string{"/missing", "/a/b", "/b/c/x", "/z/3", "/z/-", "/z/00", "/z/-1", "/z/+0", "/z/99999999999999999999", "/b/0"}, document},
		{[]string{"/z", "/b", "/"}, `{"a":"x","m/n":1,"o~p":2,"~1":3,"\"\n":4}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/z", "/b"}, `{"":0,"a":"x"}`},
		{[]string{"/z", "/b", "/a", "/", "/m~1n", "/o~0p", "/~01", "/\"\n"}, `{}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/b/d/e", "/b/é", "/z/2/k"}, `{"z":[10,[20,21],{}],"b":{"c":1,"d":{}},"a":"x","":0}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/b", "/z/1/1", "/z/2", "/z/0"}, `{"z":[[20]],"a":"x","":0}`},
		{[]string{"/m~1n", "/o~0p", "/~01", "/\"\n", "/b", "/z/2", "/z/1", "/z/0"}, `{"z":[],"a":"x","":0}`},
	} {
		require.Equal(t, canonicalOf(t, test.want), string(Cut([]byte(document), test.without)), "%q", test.without)
	}
}
