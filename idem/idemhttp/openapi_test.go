package idemhttp

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"
)

// responseNames are the fragment's responses by status.
var responseNames = map[int]string{
	202: "Accepted", 400: "BadRequest", 403: "Forbidden", 404: "NotFound", 408: "RequestTimeout", 409: "Conflict", 410: "Gone", 412: "PreconditionFailed",
	413: "ContentTooLarge", 422: "UnprocessableContent", 429: "TooManyRequests", 500: "InternalServerError", 503: "ServiceUnavailable",
}

func responseName(p Profile, status int) string {
	if p == Stripe {
		return "StripeRefusal"
	}
	return responseNames[status]
}

func fragment(t *testing.T) *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromFile("openapi.yaml")
	require.NoError(t, err)
	return doc
}

// constants are the package's string constants whose names start with a prefix:
// value by name.
func constants(t *testing.T, prefix string) map[string]string {
	files, err := os.ReadDir(".")
	require.NoError(t, err)
	found := map[string]string{}
	for _, file := range files {
		if !strings.HasSuffix(file.Name(), ".go") || strings.HasSuffix(file.Name(), "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file.Name(), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		for _, d := range tree.Decls {
			g, ok := d.(*ast.GenDecl)
			if !ok || g.Tok != token.CONST {
				continue
			}
			for _, s := range g.Specs {
				v := s.(*ast.ValueSpec)
				for i, name := range v.Names {
					if !strings.HasPrefix(name.Name, prefix) || i >= len(v.Values) {
						continue
					}
					lit, ok := v.Values[i].(*ast.BasicLit)
					require.True(t, ok, name.Name)
					value, err := strconv.Unquote(lit.Value)
					require.NoError(t, err)
					found[name.Name] = value
				}
			}
		}
	}
	require.NotEmpty(t, found)
	return found
}

// codes are all codes of the contract, as it declares them.
func codes(t *testing.T) []Code {
	var all []Code
	for _, value := range constants(t, "Code") {
		all = append(all, Code(value))
	}
	slices.Sort(all)
	return all
}

func TestFragmentIsOpenAPI(t *testing.T) {
	doc := fragment(t)
	require.True(t, doc.IsOpenAPI31OrLater())
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
}

// The library that validates sees what is wrong.
func TestValidationCanFail(t *testing.T) {
	good, err := os.ReadFile("openapi.yaml")
	require.NoError(t, err)
	for name, change := range map[string][2]string{
		"example against its schema": {"code: outcome_unknown", "code: outcome_unheard_of"},
		"unknown type":               {"type: integer", "type: whole"},
		"no description":             {"      description: The route is not set up", "      x-description: The route is not set up"},
	} {
		require.Contains(t, string(good), change[0], name)
		doc, err := openapi3.NewLoader().LoadFromData([]byte(strings.Replace(string(good), change[0], change[1], 1)))
		if err == nil {
			err = doc.Validate(t.Context(), openapi3.EnableExamplesValidation())
		}
		require.Error(t, err, name)
	}
	_, err = openapi3.NewLoader().LoadFromData([]byte(strings.Replace(string(good), "examples/outcome_unknown\"", "examples/none\"", 1)))
	require.Error(t, err)
}

// Each code of each profile has an example in the response of its status, and it
// is what the contract sends.
func TestFragmentHasEveryAnswer(t *testing.T) {
	doc := fragment(t)
	var enum []Code
	for _, v := range doc.Components.Schemas["IdempotencyCode"].Value.Enum {
		enum = append(enum, Code(v.(string)))
	}
	slices.Sort(enum)
	require.Equal(t, codes(t), enum, "openapi.yaml lists other codes than problem.go")

	for _, profile := range []Profile{IETF, Stripe} {
		c := newContract(t, memory(), func(o *Options) { o.Profile = profile })
		seen := map[string]int{}
		for _, code := range codes(t) {
			f := &situation{code: code}
			if code == CodeOutcomeUnavailable {
				f.status = 201
			}
			sent := c.refusal(t.Context(), payment(), f)
			name := responseName(profile, sent.Status)
			response := doc.Components.Responses[name]
			require.NotNil(t, response, "openapi.yaml has no response for %s, %d", code, sent.Status)
			media := response.Value.Content[sent.Headers["Content-Type"]]
			require.NotNil(t, media, "%s has no content of type %s", name, sent.Headers["Content-Type"])
			example := media.Examples[string(code)]
			require.NotNil(t, example, "%s has no example %s", name, code)
			want, err := json.Marshal(example.Value.Value)
			require.NoError(t, err)
			require.JSONEq(t, string(want), string(sent.Body), "openapi.yaml and the contract differ")

			var body any
			require.NoError(t, json.Unmarshal(sent.Body, &body))
			require.NoError(t, media.Schema.Value.VisitJSON(body, openapi3.EnableJSONSchema2020()))
			if c.rows[code].retryable {
				require.Contains(t, response.Value.Headers, "Retry-After", name)
			}
			seen[name]++
		}
		for status := range responseNames {
			name := responseName(profile, status)
			content := doc.Components.Responses[name].Value.Content
			require.Len(t, content, 1)
			for _, media := range content {
				require.Len(t, media.Examples, seen[name], "%s has an example that the contract never sends", name)
			}
		}
	}
}

func TestFragmentHasTheContractsHeaders(t *testing.T) {
	doc := fragment(t)
	var all strings.Builder
	for name, h := range doc.Components.Headers {
		all.WriteString(name + " " + h.Value.Description + "\n")
	}
	for _, header := range constants(t, "Header") {
		bare := strings.ReplaceAll(header, "-", "")
		require.True(t, strings.Contains(all.String(), bare) || strings.Contains(all.String(), header), header)
	}
	p := doc.Components.Parameters["IdempotencyKey"].Value
	require.Equal(t, DefaultKeyHeader, p.Name)
	require.Equal(t, "header", p.In)
}

// The fragment's pattern and the contract take the same keys.
func TestFragmentsKeyIsTheContracts(t *testing.T) {
	schema := fragment(t).Components.Parameters["IdempotencyKey"].Value.Schema.Value
	for _, k := range []string{
		testKey, `"` + testKey + `"`, "AZaz09-._~:AZaz09", "1234567890123456", "123456789012345", strings.Repeat("k", MaxKey),
		strings.Repeat("k", MaxKey+1), "", `""`, testKey + "," + testKey, `"` + testKey, testKey + `"`, `"` + testKey + `";a=1`,
		"12345678 12345678", "1234567890123456ä", "12345678/12345678", "1234567890123456\n",
	} {
		_, err := keyIn(k)
		require.Equal(t, err == nil, schema.VisitJSON(k, openapi3.EnableJSONSchema2020()) == nil, "%q", k)
	}
}
