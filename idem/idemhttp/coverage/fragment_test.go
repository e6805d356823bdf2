package coverage

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/stretchr/testify/require"

	"github.com/idem-go/idempotency/idem/idemhttp"
)

const fragmentFile = "../openapi.yaml"

// responseNames are the fragment's responses by status.
var responseNames = map[int]string{
	202: "Accepted", 400: "BadRequest", 403: "Forbidden", 404: "NotFound", 408: "RequestTimeout", 409: "Conflict",
	410: "Gone", 412: "PreconditionFailed", 413: "ContentTooLarge", 422: "UnprocessableContent",
	429: "TooManyRequests", 500: "InternalServerError", 503: "ServiceUnavailable",
}

// answer is one that the contract sends, as its own tests have recorded it.
type answer struct {
	Profile, Code, Type string
	Status              int
	Retryable           bool
	Body                json.RawMessage
}

func (a answer) response() string {
	switch {
	case a.Code == "":
		return "AcceptedForLater"
	case a.Profile == "stripe":
		return "StripeRefusal"
	}
	return responseNames[a.Status]
}

// contract is what the tests of package idemhttp hold the contract to.
type contract struct {
	Codes   []string
	Headers map[string]string
	Keys    map[string]bool
	answers []answer
}

func recorded(t *testing.T) (c contract) {
	text, err := os.ReadFile("../testdata/answers.jsonl")
	require.NoError(t, err)
	lines := json.NewDecoder(bytes.NewReader(text))
	require.NoError(t, lines.Decode(&c))
	for lines.More() {
		var a answer
		require.NoError(t, lines.Decode(&a))
		c.answers = append(c.answers, a)
	}
	require.NotEmpty(t, c.Codes)
	require.NotEmpty(t, c.Headers)
	require.NotEmpty(t, c.Keys)
	require.Len(t, c.answers, 2*len(c.Codes)+2)
	return c
}

func fragment(t *testing.T) *openapi3.T {
	doc, err := openapi3.NewLoader().LoadFromFile(fragmentFile)
	require.NoError(t, err)
	return doc
}

func TestFragmentIsOpenAPI(t *testing.T) {
	doc := fragment(t)
	require.True(t, doc.IsOpenAPI31OrLater())
	require.NoError(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
}

// The library that validates sees what is wrong.
func TestValidationCanFail(t *testing.T) {
	good, err := os.ReadFile(fragmentFile)
	require.NoError(t, err)
	for name, change := range map[string][2]string{
		"example against its schema": {"code: outcome_unknown", "code: outcome_unheard_of"},
		"unknown type":               {"type: integer", "type: whole"},
		"no description": {
			"      description: The route is not set up", "      x-description: The route is not set up",
		},
	} {
		require.Contains(t, string(good), change[0], name)
		doc, err := openapi3.NewLoader().LoadFromData([]byte(strings.Replace(string(good), change[0], change[1], 1)))
		if err == nil {
			err = doc.Validate(t.Context(), openapi3.EnableExamplesValidation())
		}
		require.Error(t, err, name)
	}
	dangling := strings.Replace(string(good), "examples/outcome_unknown\"", "examples/none\"", 1)
	_, err = openapi3.NewLoader().LoadFromData([]byte(dangling))
	require.Error(t, err)
}

// Each code of each profile has an example in the response of its status, and it is what the contract sends.
func TestFragmentHasEveryAnswer(t *testing.T) {
	doc, contract := fragment(t), recorded(t)
	var enum []string
	for _, v := range doc.Components.Schemas["IdempotencyCode"].Value.Enum {
		enum = append(enum, v.(string))
	}
	slices.Sort(enum)
	require.Equal(t, contract.Codes, enum, "openapi.yaml lists other codes than problem.go")

	seen := map[string]int{}
	for _, sent := range contract.answers {
		name := sent.response()
		response := doc.Components.Responses[name]
		require.NotNil(t, response, "openapi.yaml has no response for %s, %d", sent.Code, sent.Status)
		media := response.Value.Content[sent.Type]
		require.NotNil(t, media, "%s has no content of type %s", name, sent.Type)
		var body any
		require.NoError(t, json.Unmarshal(sent.Body, &body))
		require.NoError(t, media.Schema.Value.VisitJSON(body, openapi3.EnableJSONSchema2020()))
		if sent.Retryable {
			require.Contains(t, response.Value.Headers, "Retry-After", name)
		}
		if sent.Code == "" { // its id is different each time
			continue
		}
		example := media.Examples[sent.Code]
		require.NotNil(t, example, "%s has no example %s", name, sent.Code)
		want, err := json.Marshal(example.Value.Value)
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(sent.Body), "openapi.yaml and the contract differ")
		seen[name]++
	}
	for _, name := range append(slices.Collect(maps.Values(responseNames)), "StripeRefusal") {
		content := doc.Components.Responses[name].Value.Content
		require.Len(t, content, 1)
		for _, media := range content {
			require.Len(t, media.Examples, seen[name], "%s has an example that the contract never sends", name)
		}
	}
}

func TestFragmentHasTheContractsHeaders(t *testing.T) {
	doc := fragment(t)
	var all strings.Builder
	for name, h := range doc.Components.Headers {
		all.WriteString(name + " " + h.Value.Description + "\n")
	}
	for _, header := range recorded(t).Headers {
		bare := strings.ReplaceAll(header, "-", "")
		require.True(t, strings.Contains(all.String(), bare) || strings.Contains(all.String(), header), header)
	}
	p := doc.Components.Parameters["IdempotencyKey"].Value
	require.Equal(t, idemhttp.DefaultKeyHeader, p.Name)
	require.Equal(t, "header", p.In)
}

// The fragment's pattern and the contract take the same keys.
func TestFragmentsKeyIsTheContracts(t *testing.T) {
	schema := fragment(t).Components.Parameters["IdempotencyKey"].Value.Schema.Value
	for k, taken := range recorded(t).Keys {
		require.Equal(t, taken, schema.VisitJSON(k, openapi3.EnableJSONSchema2020()) == nil, "%q", k)
	}
}

// A service's document can refer to the fragment as the README shows.
func TestFragmentCanBeReferredTo(t *testing.T) {
	doc := "openapi: 3.1.0\ninfo: {title: Payments, version: '1'}\n" + readmeBlock(t)
	fragment, err := os.ReadFile(fragmentFile)
	require.NoError(t, err)
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "idempotency.yaml"), fragment, 0o600), "the copy")
	loader := openapi3.NewLoader()
	loader.IsExternalRefsAllowed = true
	api, err := loader.LoadFromDataWithPath([]byte(doc), &url.URL{Path: filepath.Join(dir, "service.yaml")})
	require.NoError(t, err)
	require.NoError(t, api.Validate(t.Context(), openapi3.EnableExamplesValidation()))
	post := api.Paths.Value("/payments").Post
	require.Equal(t, idemhttp.DefaultKeyHeader, post.Parameters[0].Value.Name)
	require.NotNil(t, post.Responses.Value("409").Value.Content[idemhttp.ProblemMediaType].Schema.Value)

	_, err = openapi3.NewLoader().LoadFromData(bytes.ReplaceAll([]byte(doc), []byte("idempotency.yaml#"), []byte("#")))
	require.Error(t, err, "references are looked up")
}

// readmeBlock is the README's YAML.
func readmeBlock(t *testing.T) string {
	text, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	found := regexp.MustCompile("(?s)```yaml\n(.*?)```").FindSubmatch(text)
	require.NotNil(t, found)
	return string(found[1])
}
