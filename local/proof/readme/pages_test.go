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

	"github.com/idem-go/idempotency/idem"
	"github.com/idem-go/idempotency/idem/idemhttp"
	"github.com/idem-go/idempotency/idem/idemhttp/coverage"
)

var (
	link     = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	heading  = regexp.MustCompile(`(?m)^#+ (.+)$`)
	fenced   = regexp.MustCompile("(?ms)^```.*?^```$")
	notASlug = regexp.MustCompile(`[^a-z0-9 _-]`)
)

// pages are all Markdown files of the repository.
func pages(t *testing.T) []string {
	names := tracked(t, "*.md")
	require.Contains(t, names, "README.md")
	return names
}

// anchors are the names by which a page's headings can be linked to.
func anchors(text string) map[string]bool {
	found := map[string]bool{}
	for _, m := range heading.FindAllStringSubmatch(fenced.ReplaceAllString(text, ""), -1) {
		slug := notASlug.ReplaceAllString(strings.ToLower(m[1]), "")
		found[strings.ReplaceAll(slug, " ", "-")] = true
	}
	return found
}

func TestLinksLeadSomewhere(t *testing.T) {
	for _, page := range pages(t) {
		for _, m := range link.FindAllStringSubmatch(fenced.ReplaceAllString(read(t, page), ""), -1) {
			target, anchor, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			file := page
			if target != "" {
				file = filepath.Join(filepath.Dir(page), target)
			}
			info, err := os.Stat(filepath.Join(root, file))
			require.NoError(t, err, "%s links to %s, which is not there", page, m[1])
			if anchor == "" {
				continue
			}
			require.False(t, info.IsDir(), "%s links to a heading of the folder %s", page, target)
			require.True(t, anchors(read(t, file))[anchor], "%s links to %s: there is no such heading", page, m[1])
		}
	}
}

var functionRow = regexp.MustCompile("(?m)^\\| \\[([a-z]+)\\]\\((.+?)\\) \\| .+ \\| `go test \\./(.+)` \\|$")

// The page of the functions has each folder, with a command that tests it.
func TestFunctionsAreListed(t *testing.T) {
	var folders, listed []string
	entries, err := os.ReadDir(filepath.Join(root, "lambda/functions"))
	require.NoError(t, err)
	for _, e := range entries {
		if e.IsDir() {
			folders = append(folders, e.Name())
		}
	}
	for _, row := range functionRow.FindAllStringSubmatch(read(t, "lambda/functions/README.md"), -1) {
		listed = append(listed, row[1])
		require.True(t, strings.HasPrefix(row[2], row[1]))
		require.Contains(t, read(t, row[3]+"/*_test.go"), "\nfunc Test")
	}
	slices.Sort(listed)
	require.Equal(t, folders, listed)
}

// The README needs few of the project's own words up to the reference, which begins in its second half.
const (
	mostConcepts = 8
	reference    = "\n## What happens when\n"
)

// undesigned are words of the project that have no row in the design's list of words. services are
// rows of that list that a user of the services knows already.
var (
	undesigned = []string{
		"tenant", "repeatable", "unknown", "in flight", "guard", "margin", "kill time", "probe", "shadow", "outbox",
		"atomic", "fail open", "transaction", "engine", "store",
	}
	services = []string{"gateway", "dead letter", "redelivered"}
)

// TestConceptsOfTheFirstHalf: each word of the project that a reader has to learn is met on the page
// that needs it, and the first half of the README needs few.
func TestConceptsOfTheFirstHalf(t *testing.T) {
	page := read(t, "README.md")
	half, rest, found := strings.Cut(page, reference)
	require.True(t, found)
	require.Greater(t, strings.Count(half, "\n"), strings.Count(rest, "\n"), "it is a half")
	half = fenced.ReplaceAllString(half, "")
	half = strings.ReplaceAll(link.ReplaceAllString(half, "]"), "Step Functions", "")
	var met []string
	for _, word := range concepts(t) {
		if regexp.MustCompile(`(?i)\b` + word + `(s|d|ed|ing)?\b`).MatchString(half) {
			met = append(met, word)
		}
	}
	require.LessOrEqual(t, len(met), mostConcepts, "%q", met)
}

// concepts are the project's words.
func concepts(t *testing.T) []string {
	_, list, found := strings.Cut(read(t, "idem/DESIGN.md"), "| word | sense |\n|---|---|\n")
	require.True(t, found)
	list, _, found = strings.Cut(list, "\n\n")
	require.True(t, found)
	all := slices.Clone(undesigned)
	for line := range strings.Lines(list) {
		all = append(all, strings.TrimSpace(strings.Split(line, "|")[1]))
	}
	for _, known := range services {
		require.Contains(t, all, known)
		all = slices.DeleteFunc(all, func(word string) bool { return word == known })
	}
	return all
}

// private are words that a reader takes for something else, or has to read twice. Next to each is what to write.
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

var routes = idemhttp.Routes{"POST /payments": {Name: "charge", Repeat: idem.Repeatable}}

func TestEveryRouteIsProtected(t *testing.T) {
	coverage.Require(t, routes, "openapi.yaml")
}

var (
	// inPackage is a package with the tests that follow it.
	inPackage = regexp.MustCompile("`((?:idem|lambda|infra|local|template-tests)[a-z/-]*)`((?:,? ?`Test[A-Za-z0-9]+`)+)")
	testName  = regexp.MustCompile("`(Test[A-Za-z0-9]+)`")
	goFiles   = regexp.MustCompile("^`[a-z/]+/[a-z_]+\\.go`(?:, `[a-z/]+/[a-z_]+\\.go`)*$")
	goFile    = regexp.MustCompile("`([^`]+)`")
	packages  = regexp.MustCompile("^" + inPackage.String() + "(?:; " + inPackage.String() + ")*$")
)

// design is the design page with its lines joined where a paragraph or a bullet goes on.
func design(t *testing.T) string {
	return regexp.MustCompile("\n +").ReplaceAllString(read(t, "idem/DESIGN.md"), " ")
}

// TestPagesNameTestsThatExist finds every test that the pages of the design and of the guarantees
// name, in the package that they name.
func TestPagesNameTestsThatExist(t *testing.T) {
	text := design(t) + read(t, "idem/GUARANTEES.md")
	named := 0
	for _, m := range inPackage.FindAllStringSubmatch(text, -1) {
		for _, test := range testName.FindAllStringSubmatch(m[2], -1) {
			has := strings.Contains(read(t, m[1]+"/*_test.go"), "\nfunc "+test[1]+"(")
			require.True(t, has, "%s has no %s", m[1], test[1])
			named++
		}
	}
	require.Equal(t, len(testName.FindAllString(text, -1)), named, "a test is named without its package")
}

// Each invariant names the files that decide it, which exist, and the tests that hold it.
func TestInvariantsNameTheirFilesAndTests(t *testing.T) {
	_, section, found := strings.Cut(design(t), "\n## Invariants\n")
	require.True(t, found)
	section, _, found = strings.Cut(section, "\n## ")
	require.True(t, found)
	invariants := strings.Split(section, "\n### ")[1:]
	require.Greater(t, len(invariants), 25)
	for _, invariant := range invariants {
		title, body, _ := strings.Cut(invariant, "\n")
		body = "\n" + body
		prose, _, _ := strings.Cut(body, "\n- ")
		require.NotEmpty(t, strings.TrimSpace(prose), "%q says nothing", title)
		decided, held := bullet(t, body, title, "Decided in"), bullet(t, body, title, "Held by")
		require.Regexp(t, goFiles, decided, "%q: name Go files from the root of the repository", title)
		for _, file := range goFile.FindAllStringSubmatch(decided, -1) {
			require.FileExists(t, filepath.Join(root, file[1]), title)
		}
		require.Regexp(t, packages, held, "%q: name packages and tests", title)
	}
}

// bullet is what an invariant lists under the name.
func bullet(t *testing.T, body, title, name string) string {
	parts := strings.Split(body, "\n- "+name+": ")
	require.Len(t, parts, 2, "%q has one list %q", title, name)
	line, _, _ := strings.Cut(parts[1], "\n")
	return line
}
