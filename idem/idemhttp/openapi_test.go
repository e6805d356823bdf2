package idemhttp

import (
	"bytes"
	"encoding/json"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// constants are the package's string constants whose names start with a prefix: value by name.
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

// answersFile has what the contract sends and which keys it takes: the tests of package
// coverage hold openapi.yaml to it, with a library that this module does not require.
const answersFile = "answers.jsonl"

// contractNames is the first line of answersFile.
type contractNames struct {
	Codes   []Code            `json:"codes"`
	Headers map[string]string `json:"headers"`
	Keys    map[string]bool   `json:"keys"` // whether the contract takes such a value
}

// contractAnswer is each other line of it.
type contractAnswer struct {
	Profile   string          `json:"profile"`
	Code      Code            `json:"code,omitempty"` // none: accepted for later
	Status    int             `json:"status"`
	Type      string          `json:"type"`
	Retryable bool            `json:"retryable"`
	Body      json.RawMessage `json:"body"`
}

func TestAnswersAreThoseThatTheFragmentIsHeldTo(t *testing.T) {
	names := contractNames{codes(t), constants(t, "Header"), map[string]bool{}}
	for _, k := range []string{
		testKey, `"` + testKey + `"`, "AZaz09-._~:AZaz09", "1234567890123456", "123456789012345",
		strings.Repeat("k", MaxKey), strings.Repeat("k", MaxKey+1), "", `""`,
		testKey + "," + testKey, `"` + testKey, testKey + `"`, `"` + testKey + `";a=1`,
		"12345678 12345678", "1234567890123456ä", "12345678/12345678", "1234567890123456\n",
	} {
		_, err := keyIn(k)
		names.Keys[k] = err == nil
	}
	lines := []any{names}
	for _, profile := range []Profile{IETF, Stripe} {
		c := newContract(t, memory(), func(o *Options) { o.Profile = profile })
		for _, code := range codes(t) {
			f := &situation{code: code}
			if code == CodeOutcomeUnavailable {
				f.status = 201
			}
			sent := c.refusal(t.Context(), payment(), f)
			name := map[Profile]string{IETF: "ietf", Stripe: "stripe"}[profile]
			lines = append(lines, contractAnswer{
				name, code, sent.Status, sent.Headers["Content-Type"], c.rows[code].retryable, sent.Body,
			})
		}
	}
	b := newLaterService(t, memory())
	b.accepted()
	require.Regexp(t, "^[A-Za-z0-9_-]{64}$", b.at)
	for _, sent := range []heard{b.post(june), b.send("GET", b.server.URL+"/statements/"+b.at, "blue", "")} {
		var body map[string]any
		require.NoError(t, json.Unmarshal([]byte(sent.body), &body))
		require.Equal(t, b.at, body["id"])
		always := strings.ReplaceAll(sent.body, b.at, strings.Repeat("A", 64)) // it is random
		lines = append(lines, contractAnswer{"ietf", "", sent.status, sent.header.Get("Content-Type"), true, []byte(always)})
	}
	var text bytes.Buffer
	for _, line := range lines {
		require.NoError(t, json.NewEncoder(&text).Encode(line))
	}
	golden(t, answersFile, text.Bytes())
}

func readme(t *testing.T) string {
	text, err := os.ReadFile("README.md")
	require.NoError(t, err)
	return string(text)
}

// blocks are the README's code blocks of a language.
func blocks(t *testing.T, language string) (found []string) {
	for _, m := range regexp.MustCompile("(?s)```([a-z]*)\n(.*?)```").FindAllStringSubmatch(readme(t), -1) {
		if m[1] == language {
			found = append(found, m[2])
		}
	}
	require.NotEmpty(t, found)
	return found
}

// The README's table has every code once, with what both profiles answer.
func TestReadmeHasEveryCode(t *testing.T) {
	type line struct {
		ietf, stripe int
		retryable    bool
	}
	got := map[Code]line{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\| (\\d+) \\| (\\d+) \\| (yes|no) "+
		"\\| \\S.* \\|$").FindAllStringSubmatch(readme(t), -1) {
		ietf, _ := strconv.Atoi(m[2])
		stripe, _ := strconv.Atoi(m[3])
		require.NotContains(t, got, Code(m[1]), "twice")
		got[Code(m[1])] = line{ietf, stripe, m[4] == "yes"}
	}
	one, err := IETF.rows()
	require.NoError(t, err)
	two, err := Stripe.rows()
	require.NoError(t, err)
	want := map[Code]line{}
	for _, code := range codes(t) {
		require.Contains(t, one, code)
		want[code] = line{one[code].status, two[code].status, one[code].retryable}
	}
	require.Equal(t, want, got, "the README's table and problem.go differ")
}

func TestReadmeNamesEveryHeaderAndDefault(t *testing.T) {
	text := readme(t)
	for _, header := range constants(t, "Header") {
		require.Contains(t, text, "`"+header)
	}
	for _, value := range []string{
		DefaultKeyHeader, ProblemMediaType,
		// And the client's defaults, see TestClientMistakes.
		strconv.Itoa(DefaultMinKey) + " to " + strconv.Itoa(MaxKey) + " characters", "up to 200 ms", "up to 10 s",
		"1 MiB", "24 hours",
	} {
		require.Contains(t, text, value)
	}
}

// The README's Go stands in an example that compiles and runs, or is a test.
func TestReadmeGoIsTested(t *testing.T) {
	var examples []byte
	names, err := filepath.Glob("*_example_test.go")
	require.NoError(t, err)
	for _, name := range names {
		example, err := os.ReadFile(name)
		require.NoError(t, err)
		examples = append(examples, example...)
	}
	flat := func(s string) string { return regexp.MustCompile(`(?m)^\t+`).ReplaceAllString(s, "") }
	for _, block := range blocks(t, "go") {
		if strings.HasPrefix(block, "func Test") {
			formatted, err := format.Source([]byte(block))
			require.NoError(t, err)
			require.Equal(t, block, string(formatted))
			doc, err := os.ReadFile("coverage/coverage.go")
			require.NoError(t, err)
			for line := range strings.Lines(block) {
				require.Contains(t, string(doc), strings.TrimSpace(line))
			}
			continue
		}
		require.Contains(t, flat(string(examples)), flat(block))
	}
}
