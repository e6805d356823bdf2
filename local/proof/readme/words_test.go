package readme

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// private are words that a reader takes for something else, or has to read twice. Next to each is
// what to write.
var private = map[string]*regexp.Regexp{
	"no process, no call, unknown":      regexp.MustCompile(`(?i)\bnobody\b`),
	"an operator, a caller":             regexp.MustCompile(`(?i)\b(some|any)body\b`),
	"operators, or who they are":        regexp.MustCompile(`(?i)\bpeople\b`),
	"reported to, notified, gets":       regexp.MustCompile(`(?i)\btold\b`),
	"again":                             regexp.MustCompile(`(?i)\banew\b`),
	"uses":                              regexp.MustCompile(`(?i)\b(go|goes|going|gone|went) by\b`),
	"releases, returns":                 regexp.MustCompile(`(?i)\b(give|gives|giving|gave|given) (it |them )?back\b`),
	"the caller, the reader, any":       regexp.MustCompile(`(?i)\bwho(m|so)?ever\b`),
	"begin with the subject":            regexp.MustCompile(`(?i)\bof (which|whom) (no|none|nothing)\b`),
	"next to, in addition to, together": regexp.MustCompile(`(?i)\bbeside\b`),
}

// code is a span of code in a page: names are not prose.
var code = regexp.MustCompile("`[^`\n]+`")

// Pages and the documentation of exported names are in plain words.
func TestPlainWords(t *testing.T) {
	found := map[string][]string{}
	for _, page := range pages(t) {
		note(found, page, code.ReplaceAllString(fenced.ReplaceAllString(read(t, page), ""), ""))
	}
	for dir, docs := range exportedDocs(t) {
		note(found, dir, docs)
	}
	for name, words := range found {
		require.Empty(t, words, "%s: use plainer words", name)
	}
}

// note collects the lines of a text that have one of the words, each with what to write.
func note(found map[string][]string, name, text string) {
	for line := range strings.Lines(text) {
		for instead, word := range private {
			if word.MatchString(line) {
				found[name] = append(found[name], strings.TrimSpace(line)+" → "+instead)
			}
		}
	}
	slices.Sort(found[name])
}

// exportedDocs has the documentation of each package that can be imported, by its folder: of the
// package, and of its exported names, fields and methods.
func exportedDocs(t *testing.T) map[string]string {
	docs := map[string]string{}
	for _, path := range tracked(t, "*.go") {
		if strings.HasSuffix(path, "_test.go") || strings.Contains(path, "internal/") || strings.Contains(path, "testenv/") ||
			strings.Contains(path, "testdata/") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(root, path), nil, parser.ParseComments)
		if os.IsNotExist(err) {
			continue // deleted, and not committed yet
		}
		require.NoError(t, err)
		if file.Name.Name == "main" {
			continue
		}
		docs[filepath.Dir(path)] += docsOf(file)
	}
	require.NotEmpty(t, docs["idem"])
	return docs
}

func docsOf(file *ast.File) string {
	ast.FileExports(file)
	var b strings.Builder
	add := func(groups ...*ast.CommentGroup) {
		for _, g := range groups {
			b.WriteString(g.Text())
		}
	}
	add(file.Doc)
	for _, decl := range file.Decls {
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncDecl:
				add(n.Doc)
			case *ast.GenDecl:
				add(n.Doc)
			case *ast.TypeSpec:
				add(n.Doc, n.Comment)
			case *ast.ValueSpec:
				add(n.Doc, n.Comment)
			case *ast.Field:
				add(n.Doc, n.Comment)
			}
			return true
		})
	}
	return b.String()
}
