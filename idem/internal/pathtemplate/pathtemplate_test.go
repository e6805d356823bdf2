package pathtemplate

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMatch(t *testing.T) {
	for _, test := range []struct {
		path, template string
		rank           string // none if the path does not match
		parameters     map[string]string
	}{
		{"/", "/", "00", nil},
		{"/a", "/a", "00", nil},
		{"/a/b", "/a/b", "000", nil},
		{"/a/b", "/a/{x}", "001", map[string]string{"x": "b"}},
		{"/a/b/c", "/a/{x}/c", "0010", map[string]string{"x": "b"}},
		{"/a/b/c", "/{x}/b/{y}", "0101", map[string]string{"x": "a", "y": "c"}},
		{"/a/b/c", "/a/{x+}", "002", map[string]string{"x": "b/c"}},
		{"/a/b/c", "/a/{x...}", "002", map[string]string{"x": "b/c"}},
		{"/a/b/", "/a/{x+}", "002", map[string]string{"x": "b/"}},
		{"/a", "/{x+}", "02", map[string]string{"x": "a"}},
		{"/a/", "/a/{$}", "000", nil},
		{"/a/%2F", "/a/{x}", "001", map[string]string{"x": "%2F"}},
		{"/a/{x", "/a/{x", "000", nil},
		{path: "", template: "/"},
		{path: "/", template: "/a"},
		{path: "/a", template: "/"},
		{path: "/a", template: "/b"},
		{path: "/a", template: "/A"},
		{path: "/a/", template: "/a"},
		{path: "/a", template: "/a/"},
		{path: "/a", template: "/a/b"},
		{path: "/a/b", template: "/a"},
		{path: "/a/", template: "/a/{x}"},
		{path: "/a//c", template: "/a/{x}/c"},
		{path: "/a/b/c", template: "/a/{x}"},
		{path: "/a/", template: "/a/{x+}"},
		{path: "/a//b", template: "/a/{x+}"},
		{path: "/a", template: "/a/{x+}"},
		{path: "/a", template: "/a/{$}"},
		{path: "/a/b", template: "/a/{$}"},
		{path: "/", template: "/{x...}"},
	} {
		var parameters map[string]string
		rank, ok := Match(test.path, test.template, func(s Segment, part string) bool {
			if s.Kind == Literal {
				return s.Text == part
			}
			if parameters == nil {
				parameters = map[string]string{}
			}
			parameters[s.Text] = part
			return true
		})
		require.Equal(t, test.rank != "", ok, "%+v", test)
		if ok {
			require.Equal(t, test.rank, rank, "%+v", test)
			require.Equal(t, test.parameters, parameters, "%+v", test)
		}
	}
	_, ok := Match("/a/b", "/a/{x}", func(s Segment, _ string) bool { return s.Kind == Literal })
	require.False(t, ok, "the caller has the word on parameters too")
	_, ok = Match("/a/b/c", "/a/{x+}", func(s Segment, _ string) bool { return s.Kind == Literal })
	require.False(t, ok)
}

func TestValid(t *testing.T) {
	for _, template := range []string{"/", "/a", "/a/{x}", "/{x}/b/{y+}", "/{x...}", "/a/{$}", "/a:b"} {
		require.True(t, Valid(template), template)
	}
	for _, template := range []string{"/:id", "/{id", "/id}", "/{}", "/a{id}", "/{id}b", "/{{id}}", "/{:id}"} {
		require.False(t, Valid(template), template)
	}
}
