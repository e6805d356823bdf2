package api

import (
	"bytes"
	"encoding/json"
	"flag"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "accept the exported names as they are")

const module = "github.com/idem-go/idempotency"

// listed is a package that users can import.
type listed struct {
	ImportPath, Name, Dir string
	GoFiles               []string
}

func public(t *testing.T) (all []listed) {
	out, err := exec.Command("go", "list", "-json=ImportPath,Name,Dir,GoFiles", module+"/...").Output()
	require.NoError(t, err)
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p listed
		if err := dec.Decode(&p); err == io.EOF {
			return all
		} else {
			require.NoError(t, err)
		}
		own := strings.TrimPrefix(p.ImportPath, module+"/")
		top, _, _ := strings.Cut(own, "/")
		if p.Name == "main" || slices.Contains(strings.Split(own, "/"), "internal") ||
			slices.Contains([]string{"local", "template-tests"}, top) || strings.HasPrefix(own, "idem/testenv") {
			continue
		}
		all = append(all, p)
	}
}

// TestExportedNamesAreAccepted: what is exported is what testdata says, word for word.
func TestExportedNamesAreAccepted(t *testing.T) {
	packages := public(t)
	require.NotEmpty(t, packages)
	known := map[string]bool{}
	for _, p := range packages {
		own := strings.TrimPrefix(p.ImportPath, module+"/")
		file := filepath.Join("testdata", strings.ReplaceAll(own, "/", ".")+".txt")
		known[file] = true
		t.Run(own, func(t *testing.T) {
			got := exported(t, p)
			if *update {
				require.NoError(t, os.WriteFile(file, []byte(got), 0o644))
				return
			}
			want, err := os.ReadFile(file)
			require.NoError(t, err, "a package that is new: accept it with go test ./local/proof/api -update")
			require.Equal(t, string(want), got,
				"the exported names have changed: accept it with go test ./local/proof/api -update, and say so in CHANGELOG.md")
		})
	}
	files, err := filepath.Glob("testdata/*.txt")
	require.NoError(t, err)
	for _, file := range files {
		if *update && !known[file] {
			require.NoError(t, os.Remove(file))
			continue
		}
		require.True(t, known[file], "%s is of no package any more: accept it with go test ./local/proof/api -update", file)
	}
}

// exported is the package's declarations without comments, bodies and what is not
// exported, in the order of their text.
func exported(t *testing.T, p listed) string {
	fset := token.NewFileSet()
	var lines []string
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
		require.NoError(t, err)
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				d.Body, d.Doc = nil, nil
				lines = append(lines, text(t, d))
			case *ast.GenDecl:
				// A constant without a value is as its place in the group says.
				placed := d.Tok == token.CONST && slices.ContainsFunc(d.Specs,
					func(s ast.Spec) bool { return len(s.(*ast.ValueSpec).Values) == 0 })
				switch {
				case d.Tok == token.IMPORT:
				case placed:
					lines = append(lines, text(t, d))
				default:
					for _, spec := range d.Specs {
						lines = append(lines, text(t, &ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{spec}}))
					}
				}
			}
		}
	}
	slices.Sort(lines)
	return "package " + p.Name + "\n\n" + strings.Join(slices.Compact(lines), "\n") + "\n"
}

// text is a declaration as gofmt writes it, with positions and line ends of no file.
func text(t *testing.T, decl ast.Decl) string {
	var b bytes.Buffer
	require.NoError(t, format.Node(&b, token.NewFileSet(), decl))
	return b.String()
}

// What a reader of package idem has to read fits into 800 lines.
func TestPackageIdemIsReadable(t *testing.T) {
	out, err := exec.Command("go", "doc", "-all", module+"/idem").Output()
	require.NoError(t, err)
	require.LessOrEqual(t, bytes.Count(out, []byte("\n")), 800,
		"go doc -all ./idem: say it shorter, or in the package that it is about")
}

// TestExportedNamesAreNeeded: what is exported is used outside its package, by an example
// or a test of it included, on a page, or in the declaration or the comment of what is.
func TestExportedNamesAreNeeded(t *testing.T) {
	packages := public(t)
	used := usedNames(t)
	for _, p := range packages {
		declared, mentioned := names(t, p)
		needless := slices.DeleteFunc(declared, func(name string) bool {
			return used[p.ImportPath+"."+name] || used[name] || mentioned[name]
		})
		assert.Empty(t, needless, "package %s exports names that no other code uses: do not export them, "+
			"or say in the comment of what they belong to what they are for", strings.TrimPrefix(p.ImportPath, module+"/"))
	}
}

// usedNames are the names, with their packages' paths, that Go files of other packages use, and those on pages.
func usedNames(t *testing.T) map[string]bool {
	used := map[string]bool{}
	root := filepath.Join("..", "..", "..")
	require.NoError(t, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() && path != root && strings.HasPrefix(d.Name(), ".") || d.Name() == "node_modules" {
			return fs.SkipDir
		}
		if strings.HasSuffix(path, ".md") {
			page, err := os.ReadFile(path)
			for _, name := range word.FindAllString(string(page), -1) {
				used[name] = true
			}
			return err
		}
		if !strings.HasSuffix(path, ".go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		imported := map[string]string{} // by its name in the file
		for _, spec := range file.Imports {
			pkg, _ := strconv.Unquote(spec.Path.Value)
			name := pkg[strings.LastIndex(pkg, "/")+1:]
			switch {
			case spec.Name != nil:
				name = spec.Name.Name
			case pkg == module+"/lambda":
				name = "idemlambda"
			}
			imported[name] = pkg
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				if x, ok := sel.X.(*ast.Ident); ok && imported[x.Name] != "" {
					used[imported[x.Name]+"."+sel.Sel.Name] = true
				}
			}
			return true
		})
		return nil
	}))
	return used
}

var word = regexp.MustCompile(`[A-Z]\w*`)

// names are those that a package declares, and those that stand in a declaration or a
// comment of another exported name. Constants that count up are their type's values.
func names(t *testing.T, p listed) (declared []string, mentioned map[string]bool) {
	mentioned = map[string]bool{}
	fset := token.NewFileSet()
	say := func(own []string, texts ...string) {
		for _, text := range texts {
			for _, name := range word.FindAllString(text, -1) {
				if !slices.Contains(own, name) {
					mentioned[name] = true
				}
			}
		}
	}
	for _, name := range p.GoFiles {
		file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments|parser.SkipObjectResolution)
		require.NoError(t, err)
		say(nil, linked(file.Doc.Text()))
		ast.FileExports(file)
		for _, decl := range file.Decls {
			switch d := decl.(type) {
			case *ast.FuncDecl:
				own := []string{d.Name.Name}
				if d.Recv == nil {
					declared = append(declared, own...)
				}
				doc := d.Doc.Text()
				d.Body, d.Doc = nil, nil
				say(own, text(t, d), linked(doc))
			case *ast.GenDecl:
				if d.Tok == token.IMPORT {
					continue
				}
				var own []string
				for _, spec := range d.Specs {
					switch s := spec.(type) {
					case *ast.TypeSpec:
						own = append(own, s.Name.Name)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							own = append(own, n.Name)
						}
						if len(s.Values) == 0 && d.Tok == token.CONST || s.Type != nil {
							say(nil, text(t, &ast.GenDecl{Tok: d.Tok, Specs: []ast.Spec{&ast.ValueSpec{Names: s.Names, Type: s.Type}}}))
						}
					}
				}
				declared = append(declared, own...)
				say(own, text(t, d))
				ast.Inspect(d, func(n ast.Node) bool {
					if c, ok := n.(*ast.CommentGroup); ok {
						say(nil, linked(c.Text()))
					}
					return true
				})
			}
		}
	}
	return declared, mentioned
}

var link = regexp.MustCompile(`\[\*?(\w+)[\].]`)

// linked are the names that a comment links to.
func linked(doc string) string {
	var names []string
	for _, m := range link.FindAllStringSubmatch(doc, -1) {
		names = append(names, m[1])
	}
	return strings.Join(names, " ")
}
